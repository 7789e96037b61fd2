// One thread per element: neighbours read and write neighbours.
#include "kernels/cuda/arrays.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace embla::kernels::cuda {
namespace {

struct SumInputs {
  const float* at[kSumInputsMax];
  unsigned count;
};

Grid GridOf(std::size_t count) {
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  return {static_cast<unsigned>(std::min(blocks, kBlocksMax)), kThreads, 1};
}

__device__ __forceinline__ std::size_t FirstOfThread() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::size_t Threads() { return std::size_t{gridDim.x} * blockDim.x; }

__global__ void FillKernel(float* data, std::size_t count, float value) {
  for (std::size_t i = FirstOfThread(); i < count; i += Threads()) {
    Store<std::uint32_t>(data + i, BitsOf(value));
  }
}

// Every thread reads its elements before it writes them: `out` may be an input.
__global__ void SumKernel(SumInputs inputs, std::size_t count, float* out) {
  for (std::size_t i = FirstOfThread(); i < count; i += Threads()) {
    float sum = FloatOf(Load<std::uint32_t>(inputs.at[0] + i));
    for (unsigned r = 1; r < inputs.count; ++r) {
      sum = sum + FloatOf(Load<std::uint32_t>(inputs.at[r] + i));
    }
    Store<std::uint32_t>(out + i, BitsOf(sum));
  }
}

}  // namespace

int FillAsync(float* data, std::size_t count, float value, StreamHandle stream) {
  if (count == 0) return cudaSuccess;
  return Launch(FillKernel, GridOf(count), stream, data, count, value);
}

int SumInOrderAsync(const float* const* inputs, std::size_t input_count, std::size_t count,
                    float* out, StreamHandle stream) {
  if (input_count == 0 || input_count > kSumInputsMax) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  SumInputs all{};
  std::copy_n(inputs, input_count, all.at);
  all.count = static_cast<unsigned>(input_count);
  return Launch(SumKernel, GridOf(count), stream, all, count, out);
}

}  // namespace embla::kernels::cuda
