// The devices of a node: memory and threads of the host, or a GPU behind them, and how they reach
// one another.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/collective/communicator.h"
#include "server/collective/nccl_library.h"
#include "server/shard/gpu_meter.h"
#include "server/shard/shard_node.h"
#include "server/storage/device_lanes.h"
#include "server/storage/memory_budget.h"
#include "server/storage/row_cache.h"
#include "server/storage/row_store.h"
#include "server/storage/thread_pool.h"
#include "server/table/lookup_share.h"
#include "server/table/own_slice.h"
#include "server/table/update_share.h"

namespace embla {

// One device. Everything but the budgets, health() and MakeMemory() belongs to the device's thread.
struct Device {
  // Without its ways to others. Requires: CheckDevices.
  Device(const ShardNodeOptions& options, std::uint32_t index);

  // OK, or why it can serve no rows any more.
  absl::Status health() const {
    return lanes == nullptr ? absl::OkStatus() : lanes->device().health();
  }
  // Memory for `slice`, which the device outlives; the store of its rows has dirty_rows(). Errors:
  // those of HostRowStore::Create, DeviceRowStore::Create or TieredRowStore::Create, and of the
  // maps of ids beside them.
  absl::StatusOr<SliceMemory> MakeMemory(const TableSpec& spec, const Slice& slice, NewRows rows);

  const std::uint32_t index;
  Metrics* const metrics;     // Not owned; may be null.
  MemoryBudget budget;        // Memory for rows.
  MemoryBudget cache_budget;  // Memory for rows in use, on a GPU whose rows are in host memory.
  const RowCache::Policy cache_policy;
  ThreadPool pool;
  // To its GPU; both null: a CPU device.
  std::unique_ptr<GpuMeter> meter;
  std::unique_ptr<DeviceLanes> lanes;
  std::unique_ptr<Communicator> communicator;  // Rank == device.

  // Memory that one batch after the other uses.
  std::vector<float> reduce_in;
  std::vector<float> reduce_out;
  std::vector<UpdateShare> update_shares;

 private:
  absl::StatusOr<std::unique_ptr<RowStore>> MakeStore(const TableSpec& spec, const Slice& slice,
                                                      NewRows rows);
  absl::StatusOr<std::unique_ptr<zch::IdMap>> MakeIdMap(const TableSpec& spec, const Slice& slice);
  bool keeps_rows_on_gpu() const { return lanes != nullptr && cache_budget.limit_bytes() == 0; }
};

struct NodeDevices {
  std::unique_ptr<NcclLibrary> nccl;  // Null unless it is used. Outlives the devices.
  std::vector<std::unique_ptr<Device>> devices;
};

// InvalidArgument: what `options` says of devices cannot be.
absl::Status CheckDevices(const ShardNodeOptions& options);

// Requires: CheckDevices. FailedPrecondition: the GPUs cannot meet by `options.collectives`; says
// why. Errors of gpu::Device.
absl::StatusOr<NodeDevices> MakeNodeDevices(const ShardNodeOptions& options);

}  // namespace embla
