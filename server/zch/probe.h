// Finds a run of ids with their cache misses overlapped, in blocks of 64: while one block's ids are
// compared, the tags of the next block are on their way. Each pass is a loop without unpredictable
// branches; one loop with the three steps interleaved is 2.5 times as slow.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/ids.h"
#include "server/zch/group_table.h"

namespace embla::zch {

// Further cache lines to prefetch for a lane that is probably the id's.
enum class Touching : std::uint8_t { kNothing, kStep, kStepAndWord };

struct Probe {
  SlotGroup* group = nullptr;  // Null: the bucket is not here.
  std::uint64_t group_number = 0;
  std::uint64_t candidates = 0;  // Lanes with the id's tag.
  std::uint8_t tag = 0;
};

namespace detail {

inline constexpr std::size_t kProbeBlock = 64;

inline void ProbeTags(const GroupTable& table, std::span<const RowId> ids, Probe* probes) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Place place = table.PlaceOf(ids[i]);
    Probe& probe = probes[i];
    probe.tag = place.tag;
    probe.group_number = table.GroupNumber(place);
    probe.group = table.Holds(place.bucket) ? table.At(probe.group_number) : nullptr;
    __builtin_prefetch(probe.group);  // The tags come first; null does no harm.
  }
}

template <Touching kTouching>
void ProbeIds(std::size_t n, Probe* probes) {
  for (std::size_t i = 0; i < n; ++i) {
    Probe& probe = probes[i];
    probe.candidates = 0;
    if (probe.group == nullptr) continue;
    probe.candidates = LanesWithTag(*probe.group, probe.tag);
    const int lane = std::countr_zero(probe.candidates | std::uint64_t{1} << (kLanes - 1));
    // Without a candidate the tags are fetched again: cheaper than a branch.
    const auto prefetch = [&probe](const void* line) {
      __builtin_prefetch(probe.candidates != 0 ? line : probe.group, 1);
    };
    prefetch(&probe.group->ids[lane]);
    if (kTouching != Touching::kNothing) prefetch(&probe.group->last_steps[lane]);
    if (kTouching == Touching::kStepAndWord) prefetch(&probe.group->words[lane]);
  }
}

}  // namespace detail

// Calls visit(position, probe, lane) for each id in order; lane -1: not found.
template <Touching kTouching, typename Visit>
void ProbeAll(const GroupTable& table, std::span<const RowId> ids, const Visit& visit) {
  using detail::kProbeBlock;
  Probe probes[2][kProbeBlock];
  const auto block = [&](std::size_t begin) {
    return begin < ids.size() ? ids.subspan(begin, std::min(kProbeBlock, ids.size() - begin))
                              : std::span<const RowId>();
  };
  detail::ProbeTags(table, block(0), probes[0]);
  for (std::size_t begin = 0; begin < ids.size(); begin += kProbeBlock) {
    const auto now = block(begin);
    Probe* const probed = probes[begin / kProbeBlock % 2];
    detail::ProbeIds<kTouching>(now.size(), probed);
    detail::ProbeTags(table, block(begin + kProbeBlock), probes[(begin / kProbeBlock + 1) % 2]);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const Probe& probe = probed[i];
      const int lane =
          probe.candidates == 0 ? -1 : LaneOf(*probe.group, probe.candidates, ToInt(now[i]));
      visit(begin + i, probe, lane);
    }
  }
}

}  // namespace embla::zch
