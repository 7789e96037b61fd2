#include "kernels/cuda/launch.h"

#include <cuda_runtime.h>

namespace embla::kernels::cuda {

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

const char* ErrorText(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace embla::kernels::cuda
