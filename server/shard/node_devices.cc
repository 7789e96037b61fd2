#include "server/shard/node_devices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "kernels/row_kernels.h"
#include "server/collective/collectives.h"
#include "server/shard/cache_meter.h"
#include "server/shard/metered_communicator.h"
#include "server/storage/device_row_store.h"
#include "server/storage/host_row_store.h"
#include "server/storage/tiered_row_store.h"
#include "server/storage/tracked_store.h"
#include "server/table/device_executor.h"
#include "server/zch/device/device_id_map.h"
#include "server/zch/host_id_map.h"

namespace embla {
namespace {

gpu::Device* GpuOf(const ShardNodeOptions& options, std::size_t device) {
  return options.gpus.empty() ? nullptr : options.gpus[device];
}

absl::Status CheckDevice(const ShardNodeOptions& options, std::size_t device) {
  const DeviceSpec& spec = options.devices[device];
  const bool has_gpu = GpuOf(options, device) != nullptr;
  if ((spec.kind == DeviceKind::kGpu) != has_gpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device,
                     has_gpu ? " is no GPU, but one is given" : " is a GPU, but none is given"));
  }
  if (spec.memory_bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("device ", device, " with ", spec.memory_bytes, " bytes of memory"));
}

// A slice has the share of the GPU that it has of the host's memory, so there is room for all.
std::uint32_t CacheLines(const Slice& slice, const MemoryBudget& rows, const MemoryBudget& cache) {
  const double share = std::min(
      1.0, static_cast<double>(cache.limit_bytes()) / static_cast<double>(rows.limit_bytes()));
  const auto lines = static_cast<std::int64_t>(static_cast<double>(slice.rows()) * share);
  const std::int64_t lines_max = std::min<std::int64_t>(slice.rows(), kernels::kNoSlot - 1);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(lines, 1, lines_max));
}

}  // namespace

Device::Device(const ShardNodeOptions& options, std::uint32_t index)
    : index(index),
      metrics(options.metrics),
      budget(static_cast<std::size_t>(options.devices[index].memory_bytes)),
      cache_budget(GpuOf(options, index) == nullptr ? 0 : options.gpu_cache_bytes),
      cache_policy(options.gpu_cache_policy),
      pool(options.threads_per_device) {}

absl::StatusOr<SliceMemory> Device::MakeMemory(const TableSpec& spec, const Slice& slice,
                                               NewRows rows) {
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<RowStore> store, MakeStore(spec, slice, rows));
  SliceMemory memory;
  memory.rows = std::make_unique<TrackedStore>(std::move(store));
  if (spec.zch.has_value()) {
    EMBLA_ASSIGN_OR_RETURN(memory.ids, MakeIdMap(spec, slice));
  }
  return memory;
}

// Makes the map in the memory of the rows, if a GPU can have it.
absl::StatusOr<std::unique_ptr<zch::IdMap>> Device::MakeIdMap(const TableSpec& spec,
                                                              const Slice& slice) {
  const zch::SlotMapOptions options = IdMapOptionsOf(spec, slice);
  if (!keeps_rows_on_gpu() || !zch::DeviceIdMap::CanHold(options)) {
    return zch::HostIdMap::Create(options);
  }
  return zch::DeviceIdMap::Create(options, BucketsOf(spec, slice), budget, *lanes);
}

absl::StatusOr<std::unique_ptr<RowStore>> Device::MakeStore(const TableSpec& spec,
                                                            const Slice& slice, NewRows rows) {
  if (lanes == nullptr) return HostRowStore::Create(spec, slice, budget, pool, rows);
  if (keeps_rows_on_gpu()) return DeviceRowStore::Create(spec, slice, budget, *lanes, rows);
  return TieredRowStore::Create(spec, slice,
                                {.host = budget,
                                 .gpu = cache_budget,
                                 .pool = pool,
                                 .lanes = *lanes,
                                 .cache_lines = CacheLines(slice, budget, cache_budget),
                                 .policy = cache_policy},
                                rows, std::make_unique<CacheMeter>(metrics, spec.name, index));
}

absl::Status CheckDevices(const ShardNodeOptions& options) {
  const std::size_t count = options.devices.size();
  if (count == 0 || count > kDevicesPerNodeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("node has ", count, " devices, 1 to ", kDevicesPerNodeMax, " are possible"));
  }
  if (!options.gpus.empty() && options.gpus.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.gpus.size(), " GPUs are given for ", count, " devices"));
  }
  for (std::size_t d = 0; d < count; ++d) EMBLA_RETURN_IF_ERROR(CheckDevice(options, d));
  const auto is_gpu = [](const DeviceSpec& spec) { return spec.kind == DeviceKind::kGpu; };
  if (options.gpu_cache_bytes > 0 && std::ranges::none_of(options.devices, is_gpu)) {
    return absl::InvalidArgumentError("a cache of rows on GPUs needs a device that is a GPU");
  }
  const bool all_gpus = std::ranges::all_of(options.devices, is_gpu);
  if (all_gpus || options.collectives == Collectives::kHost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "collectives among GPUs need a node all of whose devices are GPUs; use those of the host");
}

absl::StatusOr<NodeDevices> MakeNodeDevices(const ShardNodeOptions& options) {
  NodeDevices node;
  std::vector<gpu::Device*> gpus = options.gpus;
  gpus.resize(options.devices.size());
  EMBLA_ASSIGN_OR_RETURN(Communicators ranks,
                         MakeCommunicators(options.collectives, gpus, &node.nccl));
  for (std::uint32_t d = 0; d < options.devices.size(); ++d) {
    auto device = std::make_unique<Device>(options, d);
    device->communicator = Metered(std::move(ranks[d]), CollectiveSeconds(options.metrics, d));
    if (gpu::Device* const gpu = GpuOf(options, d); gpu != nullptr) {
      device->meter = std::make_unique<GpuMeter>(options.metrics, d, *gpu);
      EMBLA_ASSIGN_OR_RETURN(
          device->lanes, DeviceLanes::Create(*gpu, device->meter.get(), options.gpu_piece_bytes));
    }
    node.devices.push_back(std::move(device));
  }
  return node;
}

}  // namespace embla
