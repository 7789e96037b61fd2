// Touches and victims: what the policies of core/plan/zch_spec.h do to one group.
#pragma once

#include <cstdint>

#include "server/zch/slot_group.h"
#include "server/zch/slot_map_options.h"

namespace embla::zch {

// Logical time. Both come from the caller; the map reads no clock.
struct Clock {
  std::uint64_t step = 0;  // The training step; the order in which things were touched.
  std::uint32_t now = 0;   // In ticks of the caller's choice; kTtl only.
};

// Records a touch at `step`. `word` is the number of touches to add (kLfu, kDistanceLfu) or the
// expiry it promises (kTtl); kLru ignores it.
//
// Touches commute: any order of any set of them, also from several threads at once, leaves the same
// bytes. (Steps and expiries take the maximum, counts a saturating sum.)
void Touch(Policy policy, SlotGroup& group, int lane, std::uint64_t step, std::uint32_t word);

// Fills an empty lane.
struct Resident {
  std::int64_t id = 0;
  std::uint8_t tag = 0;
  std::uint64_t step = 0;
  std::uint32_t word = 0;  // See Touch.
};
void FillLane(Policy policy, SlotGroup& group, int lane, const Resident& resident);
void ClearLane(Policy policy, SlotGroup& group, int lane);

// The lane that makes room at `clock`, or -1 when none may go. Lanes touched at clock.step or later
// never do.
int VictimOf(const SlotMapOptions& options, const SlotGroup& group, const Clock& clock);

}  // namespace embla::zch
