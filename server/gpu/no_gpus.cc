#include "server/gpu/gpus.h"

namespace embla::gpu {
namespace {

absl::Status BuiltWithoutCuda() {
  return absl::FailedPreconditionError(
      "this program was built without CUDA; build it where nvcc is found (and without "
      "-DEMBLA_CUDA=OFF)");
}

}  // namespace

absl::StatusOr<std::vector<DeviceProperties>> ListGpus() { return BuiltWithoutCuda(); }

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(std::uint32_t) { return BuiltWithoutCuda(); }

}  // namespace embla::gpu
