// Finds a run of ids with their cache misses overlapped: while one id is compared, the ids of the
// next ones and the tags of those after them are already on their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/ids.h"
#include "server/zch/group_table.h"

namespace embla::zch {

struct Probe {
  SlotGroup* group = nullptr;  // Null: the bucket is not here.
  std::uint64_t group_number = 0;
  std::uint64_t candidates = 0;  // Lanes with the id's tag.
  Place place;
};

// Calls visit(position, probe, lane) for each id in order; lane -1: not found. What is found is
// prefetched for a touch if kTouch.
template <bool kTouch, typename Visit>
void ProbeAll(const GroupTable& table, std::span<const RowId> ids, const Visit& visit) {
  constexpr std::size_t kRing = 64;
  constexpr std::size_t kTagsAhead = 32;  // Then the ids, kIdsAhead before they are compared.
  constexpr std::size_t kIdsAhead = 16;
  Probe ring[kRing];

  const auto fetch_tags = [&](std::size_t i) {
    Probe& probe = ring[i % kRing];
    probe.place = table.PlaceOf(ids[i]);
    probe.group_number = table.GroupNumber(probe.place);
    probe.group = table.Holds(probe.place.bucket) ? table.At(probe.group_number) : nullptr;
    if (probe.group != nullptr) __builtin_prefetch(probe.group->tags);
  };
  const auto fetch_ids = [&](std::size_t i) {
    Probe& probe = ring[i % kRing];
    probe.candidates = 0;
    if (probe.group == nullptr) return;
    probe.candidates = LanesWithTag(*probe.group, probe.place.tag);
    if (probe.candidates == 0) return;
    const int lane = std::countr_zero(probe.candidates);
    __builtin_prefetch(&probe.group->ids[lane]);
    if (kTouch) __builtin_prefetch(&probe.group->last_steps[lane], 1);
  };
  const std::size_t n = ids.size();
  for (std::size_t i = 0; i < n + kTagsAhead; ++i) {
    if (i < n) fetch_tags(i);
    if (i >= kTagsAhead - kIdsAhead && i - (kTagsAhead - kIdsAhead) < n) {
      fetch_ids(i - (kTagsAhead - kIdsAhead));
    }
    if (i < kTagsAhead) continue;
    const std::size_t at = i - kTagsAhead;
    const Probe& probe = ring[at % kRing];
    const int lane =
        probe.candidates == 0 ? -1 : LaneOf(*probe.group, probe.candidates, ToInt(ids[at]));
    visit(at, probe, lane);
  }
}

}  // namespace embla::zch
