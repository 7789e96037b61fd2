// SlotMap::Find on the device: ids to slots over a copy of the table's groups, with the CPU's
// answers. Contract of the verb: kernels/cuda/launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "server/zch/cuda/device_groups.h"

namespace embla::zch::cuda {

// slots[i] and outcomes[i] are ZchSlot and Outcome of ids[i]: kHit, kMissing or kNotHere. Touches
// nothing. Requires: one batch's ids do not overlap its results.
int FindAsync(const DeviceGroups& groups, const std::int64_t* ids, std::size_t count,
              std::int64_t* slots, std::uint8_t* outcomes, kernels::cuda::StreamHandle stream);

}  // namespace embla::zch::cuda
