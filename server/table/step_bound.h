// How far the training of a ZCH table has come, and how far an update may go beyond it.
//
// An id is never evicted for an update of an earlier step than its latest touch (docs/zch.md). One
// update of step 2^64 - 1, as a broken counter sends it, would so keep its ids for ever. So a step
// may be at most 2^20 beyond the highest that the table has seen on this node, and 2^14 more for
// each second since: no training is faster, and a table that was not trained for long, or by
// somebody who began elsewhere, is never shut. The first step may be any up to 2^48, as trainers go
// on from checkpoints.
//
// A decided step is never checked again, so a repetition from the journal needs no clock.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace embla {

// Thread safety: none; it belongs to the table's lead device.
class StepBound {
 public:
  static constexpr std::uint64_t kStepMax = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kAheadMax = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kPerSecond = std::uint64_t{1} << 14;

  // InvalidArgument, with both steps, for an update that is too far ahead at `now`.
  absl::Status Check(std::uint64_t step, absl::Time now) const;
  // An update of `step` is applied.
  void Note(std::uint64_t step, absl::Time now);
  // No id is left that was touched at any step: the next update is the first again.
  void Reset() { *this = StepBound(); }

  std::uint64_t highest() const { return highest_; }

 private:
  std::uint64_t highest_ = 0;  // 0: none so far.
  absl::Time raised_at_ = absl::InfinitePast();
};

}  // namespace embla
