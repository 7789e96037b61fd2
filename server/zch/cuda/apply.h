// SlotMap::Apply on the device: a batch of ids is found and touched, and what is new gets slots,
// with the CPU's answers and the CPU's bytes in the groups, whatever the batch. Contract of all
// verbs: kernels/cuda/launch.h.
//
// On the host stays what a bucket has beside its groups and those who wait: the history of
// evictions, which follows from the answers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "server/zch/cuda/device_groups.h"
#include "server/zch/eviction_policy.h"
#include "server/zch/slot_map_options.h"

namespace embla::zch::cuda {

// Batch (server/zch/batch.h) on the device.
struct DeviceBatch {
  const std::int64_t* ids = nullptr;      // Any; may repeat.
  const std::uint32_t* counts = nullptr;  // Null: 1 each.
  const std::uint32_t* ttls = nullptr;    // Null: the table's.
  std::size_t count = 0;
  Clock clock;
  bool admits_all = false;
};

// Answer (server/zch/batch.h) on the device.
struct DeviceAnswer {
  std::int64_t* slots = nullptr;     // ZchSlot of each id.
  std::uint8_t* outcomes = nullptr;  // Outcome of each id.
  // Room for as many as the batch has ids; in the order of Answer::evictions.
  DeviceEviction* evictions = nullptr;
  std::uint32_t* eviction_count = nullptr;
  // Statistics::collisions_avoided, added to. The other counts follow from outcomes and evictions.
  std::uint64_t* collisions_avoided = nullptr;
};

// *bytes (host) = the workspace that ApplyAsync needs for `count` ids, about 60 bytes each. Needs a
// device, as sorting does.
int ApplyBytes(std::size_t count, std::size_t* bytes);

// Finds, touches, inserts, evicts. `groups` is of a table with these options. The answer overlaps
// nothing.
//
// cudaErrorInvalidValue: options.admission is kCount, and groups.candidates is empty; a table of
// 2^32 - 1 groups or more; 2^31 ids or more; too small a workspace.
int ApplyAsync(const SlotMapOptions& options, const DeviceGroups& groups, const DeviceBatch& batch,
               const DeviceAnswer& answer, kernels::cuda::Workspace workspace,
               kernels::cuda::StreamHandle stream);

}  // namespace embla::zch::cuda
