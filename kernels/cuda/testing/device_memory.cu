#include "kernels/cuda/testing/device_memory.h"

#include "kernels/cuda/testing/check_cuda.h"

namespace embla::kernels::cuda {

void* DeviceAllocate(std::size_t bytes) {
  void* memory = nullptr;
  CheckCuda(cudaMalloc(&memory, bytes + 1), "cudaMalloc");
  return memory;
}

void DeviceFree(void* memory) { CheckCuda(cudaFree(memory), "cudaFree"); }

void CopyToDevice(void* device, const void* host, std::size_t bytes) {
  CheckCuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

void CopyToHost(void* host, const void* device, std::size_t bytes) {
  CheckCuda(cudaDeviceSynchronize(), "kernels queued before");
  CheckCuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy to the host");
}

}  // namespace embla::kernels::cuda
