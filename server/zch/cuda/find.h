// SlotMap::Find on the device: ids to slots over a copy of the table's groups, with the CPU's
// answers. Contract of the verb: kernels/cuda/launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace embla::zch::cuda {

// The groups of a table on the device, the bytes of SlotGroup each, bucket after bucket as in
// GroupTable. Groups of buckets that are not here are not read.
struct DeviceGroups {
  const std::byte* groups = nullptr;   // A multiple of 64.
  const std::uint8_t* held = nullptr;  // By bucket; 0: not here.
  std::uint32_t buckets = 0;
  std::uint32_t groups_per_bucket = 0;
  std::uint32_t reserved_lanes = 0;  // SlotMapOptions::reserved_lanes.
};

// slots[i] and outcomes[i] are ZchSlot and Outcome of ids[i]: kHit, kMissing or kNotHere. Touches
// nothing. Requires: one batch's ids do not overlap its results.
int FindAsync(const DeviceGroups& groups, const std::int64_t* ids, std::size_t count,
              std::int64_t* slots, std::uint8_t* outcomes, kernels::cuda::StreamHandle stream);

}  // namespace embla::zch::cuda
