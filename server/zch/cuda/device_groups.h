// A table's groups on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/zch/candidate_block.h"

namespace embla::zch::cuda {

// The ids that wait for a slot, in tables with admission by count: a block for each bucket from
// that of DeviceGroups::first_group on, as server/zch/candidate_block.h lays it out.
struct DeviceCandidates {
  std::byte* blocks = nullptr;  // A multiple of 8.
  CandidateLayout layout;
  std::uint32_t most = 0;  // SlotMapOptions::candidates_per_bucket.
};

// The bytes of SlotGroup each (server/zch/slot_group.h), bucket after bucket as in GroupTable, from
// some bucket on. Groups of buckets that are not here are neither read nor written.
struct DeviceGroups {
  std::byte* groups = nullptr;         // The first one; a multiple of 64.
  const std::uint8_t* held = nullptr;  // By bucket; 0: not here.
  std::uint32_t buckets = 0;
  std::uint32_t groups_per_bucket = 0;
  std::uint32_t reserved_lanes = 0;  // SlotMapOptions::reserved_lanes.
  std::uint64_t first_group = 0;     // Number of the group at `groups`, over the whole table.
  DeviceCandidates candidates = {};

  // Number of groups in the whole table.
  constexpr std::uint64_t count() const { return std::uint64_t{buckets} * groups_per_bucket; }
};

// An id that lost its slot: Eviction (server/zch/batch.h) without the step, which is the caller's.
struct DeviceEviction {
  std::int64_t id;
  std::int64_t slot;
  std::uint64_t last_step;
  std::uint64_t reason;  // EvictionReason.
};

}  // namespace embla::zch::cuda
