// Inspects groups of slots and the records of their buckets: explanations of ids, and surveys. The
// same for a map on the host and for one on a GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/ids.h"
#include "core/plan/id_place.h"
#include "server/zch/batch.h"
#include "server/zch/bucket_state.h"
#include "server/zch/slot_group.h"
#include "server/zch/slot_map_options.h"
#include "server/zch/statistics.h"

namespace embla::zch {

// Everything known about one id.
struct Explanation {
  Place place;
  bool bucket_here = false;  // False: nothing below is known.
  // The id's own slot, with when it was last touched and its count or expiry; else kNoSlot.
  ZchSlot slot = kNoSlot;
  std::uint64_t last_step = 0;
  std::uint32_t word = 0;           // See SlotGroup::words.
  ZchSlot reserved_slot = kNoSlot;  // The slot that the id shares while it has none.
  std::uint32_t waiting_count = 0;  // Occurrences counted towards admission.
  std::uint32_t group_residents = 0;
  std::optional<Eviction> last_eviction;  // If the bucket still remembers.
  // The bucket remembers no evictions before this step; 0: it remembers all.
  std::uint64_t evictions_known_since = 0;
};

// Counted over the whole table: bucket * groups_per_bucket + group within the bucket.
inline std::uint64_t GroupNumber(const SlotMapOptions& options, const Place& place) {
  return std::uint64_t{place.bucket} * options.groups_per_bucket() + place.group;
}
inline ZchSlot SlotAt(std::uint64_t group_number, int lane) {
  return ZchSlot{static_cast<std::int64_t>(group_number * kLanes) + lane};
}
// The slot that an id without one shares, or kNoSlot.
ZchSlot ReservedSlotOf(const SlotMapOptions& options, RowId id, std::uint64_t group_number);

// The group's lane that has the id, or -1.
inline int LaneOf(const SlotGroup& group, const Place& place, RowId id) {
  return LaneOf(group, LanesWithTag(group, place.tag), ToInt(id));
}

// Explains an id whose bucket is here: `group` is its group, `bucket` the record of its bucket.
Explanation ExplainIn(const SlotMapOptions& options, RowId id, const SlotGroup& group,
                      const BucketState& bucket);

// Adds what is known of one bucket's record, and of each of its groups. Ages are up to `step`.
void AddBucketTo(Survey& survey, const SlotMapOptions& options, const BucketState& bucket);
void AddGroupTo(Survey& survey, const SlotMapOptions& options, const SlotGroup& group,
                std::uint64_t step);

// Puts an eviction on the record of its bucket, and counts it.
void Record(const Eviction& eviction, BucketState& bucket, Statistics& statistics);

}  // namespace embla::zch
