#include "bench/gpu/device_clock.h"

#include <cuda_runtime.h>

#include "kernels/cuda/testing/check_cuda.h"

namespace embla::bench {

using kernels::cuda::CheckCuda;

struct DeviceClock::Marks {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

DeviceClock::DeviceClock() : marks_(std::make_unique<Marks>()) {
  CheckCuda(cudaEventCreate(&marks_->begin), "cudaEventCreate");
  CheckCuda(cudaEventCreate(&marks_->end), "cudaEventCreate");
}

DeviceClock::~DeviceClock() {
  CheckCuda(cudaEventDestroy(marks_->begin), "cudaEventDestroy");
  CheckCuda(cudaEventDestroy(marks_->end), "cudaEventDestroy");
}

void DeviceClock::Start() {
  CheckCuda(cudaDeviceSynchronize(), "work queued before");
  CheckCuda(cudaEventRecord(marks_->begin, nullptr), "cudaEventRecord");
}

double DeviceClock::StopUs() {
  CheckCuda(cudaEventRecord(marks_->end, nullptr), "cudaEventRecord");
  CheckCuda(cudaEventSynchronize(marks_->end), "timed work");
  float ms = 0.0f;
  CheckCuda(cudaEventElapsedTime(&ms, marks_->begin, marks_->end), "cudaEventElapsedTime");
  return 1e3 * static_cast<double>(ms);
}

void QueueDriversCopy(const std::byte* from, std::byte* to, std::size_t bytes) {
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr), "copy");
}

std::string DeviceName() {
  cudaDeviceProp properties{};
  CheckCuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.name;
}

}  // namespace embla::bench
