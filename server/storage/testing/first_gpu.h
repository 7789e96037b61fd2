// GPU 0 and lanes to it, for conformance suites on a real GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "server/gpu/gpus.h"
#include "server/storage/device_lanes.h"
#include "server/storage/memory_budget.h"

namespace embla::testing {

// Null lanes: there is none, and `status` says why.
struct FirstGpu {
  FirstGpu() {
    auto opened = gpu::OpenGpu(0);
    status = opened.status();
    if (!status.ok()) return;
    device = *std::move(opened);
    auto made = DeviceLanes::Create(*device);
    status = made.status();
    if (status.ok()) lanes = *std::move(made);
  }

  absl::Status status;
  std::unique_ptr<gpu::Device> device;
  MemoryBudget budget{std::size_t{1} << 30};
  std::unique_ptr<DeviceLanes> lanes;
};

}  // namespace embla::testing
