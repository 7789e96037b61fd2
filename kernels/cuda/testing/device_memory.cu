#include "kernels/cuda/testing/device_memory.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace embla::kernels::cuda {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

}  // namespace

void* DeviceAllocate(std::size_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes + 1), "cudaMalloc");
  return memory;
}

void DeviceFree(void* memory) { Check(cudaFree(memory), "cudaFree"); }

void CopyToDevice(void* device, const void* host, std::size_t bytes) {
  Check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

void CopyToHost(void* host, const void* device, std::size_t bytes) {
  Check(cudaDeviceSynchronize(), "kernels queued before");
  Check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
}

}  // namespace embla::kernels::cuda
