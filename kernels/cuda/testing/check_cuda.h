// For tests and benches: a CUDA error ends the process.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace embla::kernels::cuda {

// `what` was asked for.
inline void CheckCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

}  // namespace embla::kernels::cuda
