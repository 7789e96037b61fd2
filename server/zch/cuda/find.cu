// Four lanes have an id: each reads 16 of its group's 64 tags, so that the line of tags is read in
// one access, and compares the ids at the lanes whose tag fits, 1.2 on average. kIdsInFlight lines
// of tags are on their way at once.
#include "server/zch/cuda/find.h"

#include <cstddef>
#include <cstdint>

#include "core/plan/id_place.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"

namespace embla::zch::cuda {
namespace {

namespace device = kernels::cuda;

// The layout of SlotGroup (server/zch/slot_group.h); find_test.cc holds it to these.
constexpr std::uint32_t kGroupLanes = 64;
constexpr std::size_t kGroupBytes = 21 * kGroupLanes;
constexpr std::size_t kIdsAt = kGroupLanes;

constexpr unsigned kLanesLog2 = 2;
constexpr int kIdsInFlight = 4;

// The values of Outcome (server/zch/batch.h).
constexpr std::uint8_t kHit = 1;
constexpr std::uint8_t kMissing = 3;
constexpr std::uint8_t kNotHere = 6;
constexpr std::int64_t kNone = -1;

// 0x80 in each byte of `word` that equals `byte`.
__device__ __forceinline__ std::uint32_t EqualBytes(std::uint32_t word, std::uint8_t byte) {
  const std::uint32_t x = word ^ (byte * 0x01010101u);
  return ~(((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x | 0x7f7f7f7fu);
}

// An id's place, and the tags of it that this lane has read.
struct FoundPlace {
  std::uint64_t group_number;
  const std::byte* group;  // Null: the bucket is not here, or there is no id.
  std::uint8_t tag;
  device::uint4 tags;
};

__device__ __forceinline__ FoundPlace ReadTags(const DeviceGroups& groups, std::int64_t id,
                                               unsigned lane) {
  const Place place = PlaceOf(RowId{id}, groups.buckets, groups.groups_per_bucket);
  FoundPlace found{};
  found.tag = place.tag;
  found.group_number = std::uint64_t{place.bucket} * groups.groups_per_bucket + place.group;
  if (groups.held[place.bucket] == 0) return found;
  found.group = groups.groups + found.group_number * kGroupBytes;
  found.tags = device::LoadConstant<device::uint4>(found.group + 16 * lane);
  return found;
}

// The group's lane that holds the id, or -1, of the four words that this lane has.
__device__ __forceinline__ int LaneOfId(const FoundPlace& place, std::int64_t id, unsigned lane) {
  int found = -1;
  const std::uint32_t words[] = {place.tags.x, place.tags.y, place.tags.z, place.tags.w};
#pragma unroll
  for (unsigned w = 0; w < 4; ++w) {
    std::uint32_t equal = EqualBytes(words[w], place.tag);
    for (; equal != 0; equal &= equal - 1) {
      const unsigned candidate = 16 * lane + 4 * w + (device::FirstBit(equal) - 1) / 8;
      const std::byte* const at = place.group + kIdsAt + 8 * candidate;
      if (static_cast<std::int64_t>(device::LoadConstant<unsigned long long>(at)) == id) {
        found = static_cast<int>(candidate);
      }
    }
  }
  return found;
}

__device__ __forceinline__ std::int64_t SlotWithoutRow(const DeviceGroups& groups, std::int64_t id,
                                                       std::uint64_t group_number) {
  if (groups.reserved_lanes == 0) return kNone;
  // SlotMap::ReservedSlotOf.
  const std::uint64_t high = SplitMix64(HashId(RowId{id})) >> 32;
  const std::uint64_t lane =
      kGroupLanes - groups.reserved_lanes + (high * groups.reserved_lanes >> 32);
  return static_cast<std::int64_t>(group_number * kGroupLanes + lane);
}

__global__ void __launch_bounds__(device::kThreads)
    FindKernel(DeviceGroups groups, const std::int64_t* ids, std::size_t count, std::int64_t* slots,
               std::uint8_t* outcomes) {
  const device::Group group = device::GroupOfThread(kLanesLog2);
  for (std::size_t i = group.first; i < count; i += kIdsInFlight * group.count) {
    FoundPlace places[kIdsInFlight];
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      const std::size_t at = i + u * group.count;
      places[u] = at < count ? ReadTags(groups, ids[at], group.lane) : FoundPlace{};
    }
#pragma unroll
    for (int u = 0; u < kIdsInFlight; ++u) {
      const std::size_t at = i + u * group.count;
      if (at >= count) break;
      const std::int64_t id = ids[at];
      const bool here = places[u].group != nullptr;
      int lane = here ? LaneOfId(places[u], id, group.lane) : -1;
      for (unsigned half = 1; half < group.lanes; half *= 2) {
        const int other = device::FromLane(group, lane, group.lane ^ half);
        lane = lane > other ? lane : other;
      }
      if (group.lane != 0) continue;
      std::int64_t slot = kNone;
      if (lane >= 0) {
        slot = static_cast<std::int64_t>(places[u].group_number * kGroupLanes) + lane;
      } else if (here) {
        slot = SlotWithoutRow(groups, id, places[u].group_number);
      }
      slots[at] = slot;
      outcomes[at] = lane >= 0 ? kHit : here ? kMissing : kNotHere;
    }
  }
}

}  // namespace

int FindAsync(const DeviceGroups& groups, const std::int64_t* ids, std::size_t count,
              std::int64_t* slots, std::uint8_t* outcomes, kernels::cuda::StreamHandle stream) {
  if (count == 0) return 0;
  const device::Grid grid = device::GridOfGroups(count, {kLanesLog2, 1}, kIdsInFlight);
  return device::Launch(FindKernel, grid, stream, groups, ids, count, slots, outcomes);
}

}  // namespace embla::zch::cuda
