// The devices of a shard server, as the command line names them (docs/gpu.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/collective/collectives.h"
#include "server/gpu/device.h"
#include "server/shard/shard_node.h"

namespace embla {

// Part of a list of devices.
struct DeviceItem {
  DeviceKind kind = DeviceKind::kCpu;
  std::uint32_t count = 0;  // CPU devices.
  // GPUs: ordinals first..last, or all that there are.
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  bool all = false;
  bool operator==(const DeviceItem&) const = default;
};

// "cpu:2", "gpu:0", "gpu:0-7", "gpu:all", and several of them: "gpu:0,cpu:2". A GPU that is named
// twice is two devices. InvalidArgument: not such a list.
absl::StatusOr<std::vector<DeviceItem>> ParseDevices(const std::string& text);

// Source of GPUs.
struct GpuSource {
  std::function<absl::StatusOr<std::vector<gpu::DeviceProperties>>()> list;
  std::function<absl::StatusOr<std::unique_ptr<gpu::Device>>(std::uint32_t ordinal)> open;
};
// This machine's (server/gpu/gpus.h).
GpuSource MachineGpus();

// A node's devices, in the order of the list.
struct DeviceList {
  std::vector<DeviceSpec> specs;
  std::vector<gpu::Device*> gpus;                   // By device; null: a CPU device.
  std::vector<std::unique_ptr<gpu::Device>> owned;  // Each GPU once.
  CollectivesChoice choice;                         // The options', or the fastest.
};

struct DeviceListOptions {
  // 0: CPU devices share 80 % of this machine's memory (or of the container's), and the devices of
  // a GPU 90 % of its memory.
  std::int64_t memory_per_device = 0;
  // Cache on each device that is a GPU, see ShardNodeOptions; with it, `memory_per_device` is
  // stated.
  std::int64_t gpu_cache_bytes = 0;
  // How the node's devices are going to add up partial sums; kAuto is decided now.
  Collectives collectives = Collectives::kAuto;
};

// Errors: InvalidArgument (more than 64 devices, or options), FailedPrecondition (there is no such
// GPU, or less memory on it; says what is missing), those of gpu::Device.
absl::StatusOr<DeviceList> OpenDevices(const std::vector<DeviceItem>& items,
                                       const DeviceListOptions& options, const GpuSource& gpus);

// "64 GiB" as 68719476736: a number of bytes, or with K, M, G, T and optionally i and B.
// Errors: InvalidArgument.
absl::StatusOr<std::int64_t> ParseBytes(const std::string& text);

}  // namespace embla
