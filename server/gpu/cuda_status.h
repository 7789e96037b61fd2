// Maps error codes of the CUDA runtime to statuses.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace embla::gpu {

// Whether the device can do nothing any more: everything that follows on it fails likewise.
bool StopsDevice(int cuda_error);

// ResourceExhausted: memory. Internal: anything else; says what was tried, and the error's name and
// text. Requires: cuda_error != 0.
absl::Status CudaStatus(int cuda_error, std::string_view what);

// Why the runtime finds no GPUs, and what to do about it. FailedPrecondition.
absl::Status NoGpus(int cuda_error);

}  // namespace embla::gpu
