// Shows how training goes: a bar on a terminal, lines elsewhere.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace embla::train {

// Thread safety: every method may be called from any thread.
class Progress {
 public:
  enum class Style { kBar, kLines, kSilent };

  // `out` and `clock` are not owned; they outlive this object.
  Progress(std::ostream& out, Style style, const Clock& clock)
      : out_(out), style_(style), clock_(clock) {}

  // total == 0: not known yet.
  void BeginEpoch(int epoch, int epochs, std::uint64_t total);
  void Add(std::uint64_t examples, double loss_sum);
  // Shows the present state if that is due. Call a few times per second.
  void Draw();
  void EndEpoch();
  // A line of its own, between epochs.
  void Say(std::string_view line);

  // Mean loss of the current or last epoch so far; 0 before the first example.
  double mean_loss() const;

 private:
  struct Counts {
    std::uint64_t examples = 0;
    double loss_sum = 0.0;
  };
  void Print(bool last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int Percent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::ostream& out_;
  const Style style_;
  const Clock& clock_;

  mutable Mutex mu_;
  int epoch_ ABSL_GUARDED_BY(mu_) = 0;
  int epochs_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t total_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time began_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);
  Counts shown_ ABSL_GUARDED_BY(mu_);  // Counts in the last line.
  absl::Time shown_at_ ABSL_GUARDED_BY(mu_);
  int shown_percent_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace embla::train
