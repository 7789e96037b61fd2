// The GPUs of this machine. The only place that knows whether the program was built with CUDA: one
// of cuda_gpus.cc and no_gpus.cc is compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/gpu/device.h"

namespace embla::gpu {

// All of them, by ordinal; at least one. FailedPrecondition: there is none that could be used; says
// what is missing (CUDA in this program, a driver, a GPU).
absl::StatusOr<std::vector<DeviceProperties>> ListGpus();

// Errors: those of ListGpus; NotFound (no such ordinal); those of Device.
absl::StatusOr<std::unique_ptr<Device>> OpenGpu(std::uint32_t ordinal);

}  // namespace embla::gpu
