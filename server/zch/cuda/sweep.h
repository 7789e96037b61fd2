// SlotMap's sweeps on the device: EvictExpired, EvictIdle and HalveCounts, with the CPU's bytes.
// Contract of all verbs: kernels/cuda/launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "server/zch/batch.h"
#include "server/zch/cuda/device_groups.h"
#include "server/zch/slot_map_options.h"

namespace embla::zch::cuda {

// Selects the ids that lose their slots: those of the buckets [bucket_begin, bucket_end) that are
// here and, by the reason,
//   kExpired  policy kTtl, whose expiry is <= clock.now
//   kIdle     any policy, last touched before before_step
struct DeviceSweep {
  EvictionReason reason = EvictionReason::kExpired;
  std::uint32_t bucket_begin = 0;
  std::uint32_t bucket_end = 0;  // At most groups.buckets.
  std::uint32_t now = 0;
  std::uint64_t before_step = 0;
};

// The ids that a sweep has evicted, by ascending slot.
struct DeviceSweptIds {
  DeviceEviction* evictions = nullptr;  // Room for all slots of the sweep's buckets.
  std::uint32_t* count = nullptr;
};

// *bytes (host) = the workspace that SweepAsync needs for so many buckets, about 6 bytes per slot.
// Needs a device, as selecting does.
int SweepBytes(const DeviceGroups& groups, std::uint32_t bucket_count, std::size_t* bytes);

// `groups` is of a table with these options. Buckets of 2^31 slots and more are swept in parts.
//
// cudaErrorInvalidValue: another reason; no such buckets; too many slots; too small a workspace.
int SweepAsync(const SlotMapOptions& options, const DeviceGroups& groups, const DeviceSweep& sweep,
               const DeviceSweptIds& swept, kernels::cuda::Workspace workspace,
               kernels::cuda::StreamHandle stream);

// Counts (kLfu, kDistanceLfu) of all buckets that are here become half of themselves, rounded down.
int HalveCountsAsync(const SlotMapOptions& options, const DeviceGroups& groups,
                     kernels::cuda::StreamHandle stream);

}  // namespace embla::zch::cuda
