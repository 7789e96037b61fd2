// A table's groups on the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace embla::zch::cuda {

// The bytes of SlotGroup each (server/zch/slot_group.h), bucket after bucket as in GroupTable.
// Groups of buckets that are not here are neither read nor written.
struct DeviceGroups {
  std::byte* groups = nullptr;         // A multiple of 64.
  const std::uint8_t* held = nullptr;  // By bucket; 0: not here.
  std::uint32_t buckets = 0;
  std::uint32_t groups_per_bucket = 0;
  std::uint32_t reserved_lanes = 0;  // SlotMapOptions::reserved_lanes.

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
