#include "server/gpu/cuda_status.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla::gpu {
namespace {

std::string Describe(int cuda_error) {
  const auto error = static_cast<cudaError_t>(cuda_error);
  return absl::StrCat(cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
}

std::string RuntimeVersion() {
  return absl::StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10);
}

}  // namespace

// By the runtime's documentation: "leaves the process in an inconsistent state and any further CUDA
// work will return the same error", or "the process must be terminated"; and a device that is gone.
// cuda_status_test compares this list with driver_types.h.
bool StopsDevice(int cuda_error) {
  // Older runtimes have no names for these.
  constexpr int kContained = 226;
  constexpr int kTensorMemoryLeak = 721;
  constexpr int kExternalDevice = 911;
  switch (cuda_error) {
    case kContained:
    case kTensorMemoryLeak:
    case kExternalDevice:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(int cuda_error, std::string_view what) {
  const std::string message = absl::StrCat(ToAbsl(what), ": ", Describe(cuda_error));
  if (cuda_error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

absl::Status NoGpus(int cuda_error) {
  switch (static_cast<cudaError_t>(cuda_error)) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
      return absl::FailedPreconditionError(absl::StrCat(
          "this machine has no NVIDIA driver, or one too old for CUDA ", RuntimeVersion(),
          ", which this program is built with: ", Describe(cuda_error),
          ". Install or update the driver; in a container, ", "start it with access to the GPUs"));
    case cudaErrorNoDevice: {
      const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
      return absl::FailedPreconditionError(absl::StrCat(
          "the NVIDIA driver of this machine shows no GPU to this process",
          visible == nullptr ? std::string()
                             : absl::StrCat(" (CUDA_VISIBLE_DEVICES is `", visible, "`)")));
    }
    default:
      return absl::FailedPreconditionError(
          absl::StrCat("the GPUs of this machine cannot be used: ", Describe(cuda_error)));
  }
}

}  // namespace embla::gpu
