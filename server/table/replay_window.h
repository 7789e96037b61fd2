// Which updates of which sessions a table has applied: what makes a retried update take effect
// exactly once (docs/consistency.md).
//
// Per session: {floor, 256 bits}. Every seq below the floor has been acknowledged to its sender, so
// nobody needs its record; the floor follows the `first_incomplete` that updates carry. Bit i says
// whether seq floor + i has been applied. A sender that has 256 updates between its oldest
// unacknowledged one and a new one is told to wait.
//
// The unit of deduplication is what owns a ReplayWindows object: today a table on a node. A window
// is a value, so that it can travel with the rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"

namespace embla {

// One session's record. Not thread safe.
class ReplayWindow {
 public:
  static constexpr std::uint64_t kSize = 256;
  enum class Verdict : std::uint8_t { kNew, kApplied, kTooNew };

  Verdict Classify(UpdateSeq seq) const;
  // Forgets what is below `first_incomplete`; the floor never falls.
  void RaiseFloor(UpdateSeq first_incomplete);
  // Requires: Classify(seq) == kNew.
  void Record(UpdateSeq seq);

  UpdateSeq floor() const { return UpdateSeq{floor_}; }
  bool operator==(const ReplayWindow&) const = default;

 private:
  static constexpr std::uint64_t kWordBits = 64;

  std::uint64_t* WordOf(std::uint64_t seq) { return &words_[seq % kSize / kWordBits]; }
  static std::uint64_t BitOf(std::uint64_t seq) { return std::uint64_t{1} << seq % kWordBits; }

  std::uint64_t floor_ = 1;
  std::array<std::uint64_t, kSize / kWordBits> words_ = {};  // Bit seq % 256, for floor..floor+255.
};

// All sessions of one table.
// Thread safety: every method may be called from any thread.
class ReplayWindows {
 public:
  struct Options {
    std::size_t sessions_max = 4096;
    // A session that has been silent this long has no update in flight: longer than any request's
    // deadline. Only such sessions make room for new ones.
    absl::Duration idle_min = absl::Hours(1);
  };
  ReplayWindows() : ReplayWindows(Options{}) {}
  explicit ReplayWindows(Options options) : options_(options) {}

  // Whether (session, seq) has been applied. Also raises the session's floor.
  // ResourceExhausted: too many updates in flight, or too many sessions.
  absl::StatusOr<bool> IsApplied(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete,
                                 absl::Time now);
  // Requires: IsApplied answered false, and nobody recorded it since.
  void Record(SessionId session, UpdateSeq seq);

  std::size_t sessions() const;

 private:
  struct Session {
    ReplayWindow window;
    absl::Time last_used;
  };

  absl::Status MakeRoom(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::uint64_t, Session> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
