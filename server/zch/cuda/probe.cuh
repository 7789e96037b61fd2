// The probe of ids: four lanes have an id. Each reads 16 of its group's 64 tags, so that the line
// of tags is read in one access, and compares the ids at the lanes whose tag fits, 1.2 on average.
// kIdsInFlight lines of tags are on their way at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/plan/id_place.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "server/zch/batch.h"
#include "server/zch/cuda/device_groups.h"
#include "server/zch/slot_group.h"

namespace embla::zch::cuda {

namespace device = kernels::cuda;

inline constexpr unsigned kProbeLanesLog2 = 2;
inline constexpr int kIdsInFlight = 4;

inline device::Grid GridOfProbes(std::size_t ids) {
  return device::GridOfGroups(ids, {kProbeLanesLog2, 1}, kIdsInFlight);
}

// Address of a group; its bucket is here.
__device__ __forceinline__ std::byte* GroupAt(const DeviceGroups& groups, std::uint64_t number) {
  return groups.groups + (number - groups.first_group) * sizeof(SlotGroup);
}
// Addresses of a group's parts.
__device__ __forceinline__ std::byte* IdAt(std::byte* group, unsigned lane) {
  return group + offsetof(SlotGroup, ids) + sizeof(std::int64_t) * lane;
}
__device__ __forceinline__ std::byte* LastStepAt(std::byte* group, unsigned lane) {
  return group + offsetof(SlotGroup, last_steps) + sizeof(std::uint64_t) * lane;
}
__device__ __forceinline__ std::byte* WordAt(std::byte* group, unsigned lane) {
  return group + offsetof(SlotGroup, words) + sizeof(std::uint32_t) * lane;
}

__device__ __forceinline__ std::int64_t SlotOf(std::uint64_t group_number, unsigned lane) {
  return static_cast<std::int64_t>(group_number * kLanes + lane);
}

// SlotMap::ReservedSlotOf.
__device__ __forceinline__ std::int64_t ReservedSlotOf(const DeviceGroups& groups, std::int64_t id,
                                                       std::uint64_t group_number) {
  if (groups.reserved_lanes == 0) return static_cast<std::int64_t>(kNoSlot);
  const std::uint64_t high = SplitMix64(HashId(RowId{id})) >> 32;
  const std::uint64_t lane = kLanes - groups.reserved_lanes + (high * groups.reserved_lanes >> 32);
  return SlotOf(group_number, static_cast<unsigned>(lane));
}

// 0x80 in each byte of `word` that equals `byte`.
__device__ __forceinline__ std::uint32_t EqualBytes(std::uint32_t word, std::uint8_t byte) {
  const std::uint32_t x = word ^ (byte * 0x01010101u);
  return ~(((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x | 0x7f7f7f7fu);
}

// An id's place, and the tags of it that this lane has read.
struct FoundPlace {
  std::uint64_t group_number = 0;
  std::uint8_t tag = 0;  // 0: the bucket is not here, or there is no id.
  device::uint4 tags = {};

  __device__ __forceinline__ bool is_here() const { return tag != 0; }
};

// The group's lane that holds the id, or -1, of the four words that this lane has.
__device__ __forceinline__ int LaneOfId(const DeviceGroups& groups, const FoundPlace& place,
                                        std::int64_t id, unsigned lane) {
  int found = -1;
  const std::uint32_t words[] = {place.tags.x, place.tags.y, place.tags.z, place.tags.w};
#pragma unroll
  for (unsigned w = 0; w < 4; ++w) {
    std::uint32_t equal = EqualBytes(words[w], place.tag);
    for (; equal != 0; equal &= equal - 1) {
      const unsigned candidate = 16 * lane + 4 * w + (device::FirstBit(equal) - 1) / 8;
      const std::byte* const at = IdAt(GroupAt(groups, place.group_number), candidate);
      if (static_cast<std::int64_t>(device::LoadConstant<unsigned long long>(at)) == id) {
        found = static_cast<int>(candidate);
      }
    }
  }
  return found;
}

// Calls visit(position, id, place, lane) once for each id, in one of its four lanes; lane -1: not
// found. `visit` may write last steps and words of groups, never tags or ids.
template <class Visit>
__device__ __forceinline__ void ProbeIds(const DeviceGroups& groups, const std::int64_t* ids,
                                         std::size_t count, const Visit& visit) {
  const device::Group group = device::GroupOfThread(kProbeLanesLog2);
  for (std::size_t i = group.first; i < count; i += kIdsInFlight * group.count) {
    // All ids, then what the buckets say, then all tags: none of them waits for another one's.
    std::int64_t id[kIdsInFlight];
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      const std::size_t at = i + u * group.count;
      id[u] = ids[at < count ? at : i];
    }
    FoundPlace places[kIdsInFlight];
    std::uint8_t held[kIdsInFlight];
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      const Place place = PlaceOf(RowId{id[u]}, groups.buckets, groups.groups_per_bucket);
      places[u].group_number = std::uint64_t{place.bucket} * groups.groups_per_bucket + place.group;
      places[u].tag = place.tag;
      held[u] = groups.held[place.bucket];
    }
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      if (i + u * group.count >= count || held[u] == 0) places[u].tag = 0;
      if (!places[u].is_here()) continue;
      places[u].tags = device::LoadConstant<device::uint4>(GroupAt(groups, places[u].group_number) +
                                                           16 * group.lane);
    }
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      const std::size_t at = i + u * group.count;
      if (at >= count) break;
      int lane = places[u].is_here() ? LaneOfId(groups, places[u], id[u], group.lane) : -1;
      for (unsigned half = 1; half < group.lanes; half *= 2) {
        const int other = device::FromLane(group, lane, group.lane ^ half);
        lane = lane > other ? lane : other;
      }
      if (group.lane == 0) visit(at, id[u], places[u], lane);
    }
  }
}

}  // namespace embla::zch::cuda
