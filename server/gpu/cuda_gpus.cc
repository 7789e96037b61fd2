#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/gpu/cuda_device.h"
#include "server/gpu/cuda_status.h"
#include "server/gpu/gpus.h"

namespace embla::gpu {
namespace {

absl::StatusOr<std::uint32_t> GpuCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();  // Not the next call's.
    return NoGpus(error);
  }
  if (count == 0) return NoGpus(cudaErrorNoDevice);
  return static_cast<std::uint32_t>(count);
}

}  // namespace

absl::StatusOr<std::vector<DeviceProperties>> ListGpus() {
  EMBLA_ASSIGN_OR_RETURN(const std::uint32_t count, GpuCount());
  std::vector<DeviceProperties> gpus;
  for (std::uint32_t ordinal = 0; ordinal < count; ++ordinal) {
    EMBLA_ASSIGN_OR_RETURN(gpus.emplace_back(), CudaDevice::Describe(ordinal));
  }
  return gpus;
}

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(std::uint32_t ordinal) {
  EMBLA_ASSIGN_OR_RETURN(const std::uint32_t count, GpuCount());
  if (ordinal >= count) {
    return absl::NotFoundError(absl::StrCat("this machine has ", count, " GPU",
                                            count == 1 ? "" : "s",
                                            ", numbered from 0: there is no GPU ", ordinal));
  }
  return CudaDevice::Open(ordinal);
}

}  // namespace embla::gpu
