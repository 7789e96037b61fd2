#include "server/zch/inspection.h"

#include <algorithm>
#include <bit>

namespace embla::zch {

ZchSlot ReservedSlotOf(const SlotMapOptions& options, RowId id, std::uint64_t group_number) {
  const std::uint32_t reserved = options.reserved_lanes;
  if (reserved == 0) return kNoSlot;
  // The high half of a second hash: the first one chose bucket, group and tag.
  const std::uint64_t high = SplitMix64(HashId(id)) >> 32;
  return SlotAt(group_number,
                static_cast<int>(options.lanes_for_ids() + ((high * reserved) >> 32)));
}

Explanation ExplainIn(const SlotMapOptions& options, RowId id, const SlotGroup& group,
                      const BucketState& bucket) {
  Explanation explanation;
  explanation.place = PlaceOf(id, options.buckets, options.groups_per_bucket());
  explanation.bucket_here = true;
  const std::uint64_t number = GroupNumber(options, explanation.place);
  explanation.reserved_slot = ReservedSlotOf(options, id, number);
  explanation.group_residents = static_cast<std::uint32_t>(std::popcount(~EmptyLanes(group)));
  const int lane = LaneOf(group, explanation.place, id);
  if (lane >= 0) {
    explanation.slot = SlotAt(number, lane);
    explanation.last_step = group.last_steps[lane];
    explanation.word = group.words[lane];
  }
  explanation.waiting_count = bucket.candidates.CountOf(id);
  if (const Eviction* const last = bucket.history.LatestOf(id)) explanation.last_eviction = *last;
  explanation.evictions_known_since = bucket.history.KnownSince();
  return explanation;
}

void AddBucketTo(Survey& survey, const SlotMapOptions& options, const BucketState& bucket) {
  ++survey.buckets;
  survey.slots += std::uint64_t{options.groups_per_bucket()} * options.lanes_for_ids();
  survey.residents += bucket.residents;
  survey.residents_of_fullest_bucket =
      std::max(survey.residents_of_fullest_bucket, bucket.residents);
  survey.waiting += bucket.candidates.size();
}

void AddGroupTo(Survey& survey, const SlotMapOptions& options, const SlotGroup& group,
                std::uint64_t step) {
  std::uint64_t lanes = ~EmptyLanes(group);
  survey.full_groups += lanes == FirstLanes(options.lanes_for_ids());
  for (; lanes != 0; lanes &= lanes - 1) {
    const std::uint64_t last = group.last_steps[std::countr_zero(lanes)];
    const std::uint64_t age = step > last ? step - last : 0;
    survey.age_sum += age;
    survey.latest_step = std::max(survey.latest_step, last);
    survey.oldest_age = std::max(survey.oldest_age, age);
  }
}

void Record(const Eviction& eviction, BucketState& bucket, Statistics& statistics) {
  --bucket.residents;
  bucket.history.Add(eviction);
  ++statistics.evictions[static_cast<std::size_t>(eviction.reason)];
  if (eviction.step > eviction.last_step) {
    statistics.evicted_age_sum += eviction.step - eviction.last_step;
  }
}

}  // namespace embla::zch
