// An exchange in which every rank reads the others' memory directly: GPUs that are connected so, or
// several devices on one GPU.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "server/collective/gpu_exchange.h"
#include "server/gpu/device.h"

namespace embla {

// The ends of ranks 0..gpus.size()-1. FailedPrecondition: two GPUs have no direct access.
absl::StatusOr<std::vector<std::unique_ptr<GpuExchange>>> MakePeerExchanges(
    std::span<gpu::Device* const> gpus);

}  // namespace embla
