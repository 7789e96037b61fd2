// Tells how far a start has come, while it reads the node's directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/metrics/metrics.h"

namespace embla {

struct JournalProgress {
  std::uint64_t records = 0;          // Records of the journal that were applied,
  std::uint64_t bytes = 0;            // and bytes of their content.
  std::uint64_t read_bytes = 0;       // Bytes of files, so far.
  std::uint64_t directory_bytes = 0;  // All files have so many; 0: not known.
  absl::Duration elapsed;

  // 0 to 1. Files that are of no use any more are not read: the end may come before 1.
  double share() const;
  // "37 % of 3.4 GiB, read at 812 MiB/s, about 5 s left".
  std::string Text() const;
};

// Thread safety: every method may be called from any thread.
class RecoveryProgress {
 public:
  using Tell = std::function<void(const JournalProgress&)>;

  // `tell`, which may be empty, is called at most once in `every`, by who calls NoteRead or
  // NoteApplied, perhaps by two at once.
  RecoveryProgress(std::uint64_t directory_bytes, absl::Duration every, Tell tell);

  // Metrics that follow.
  void SetGauges(const Gauge& share, const Gauge& applied_bytes);

  void NoteRead(std::uint64_t bytes);
  // So much in all.
  void NoteApplied(std::uint64_t records, std::uint64_t bytes);
  // All of it is done.
  void End();

 private:
  template <typename Note>
  void Take(const Note& note) ABSL_LOCKS_EXCLUDED(mu_);

  const absl::Duration every_;
  const Tell tell_;
  const absl::Time start_;

  Mutex mu_;
  JournalProgress progress_ ABSL_GUARDED_BY(mu_);
  absl::Time told_ ABSL_GUARDED_BY(mu_);
  Gauge share_ ABSL_GUARDED_BY(mu_);
  Gauge applied_bytes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
