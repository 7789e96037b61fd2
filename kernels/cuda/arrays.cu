// A thread has a unit of four floats, and neighbours have neighbours. Arrays that are not all at
// multiples of 16 bytes go float by float, and so does what is left of the others.
#include "kernels/cuda/arrays.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/units.cuh"

namespace embla::kernels::cuda {
namespace {

constexpr int kUnitFloats = 4;
constexpr unsigned kInputsInFlight = 4;  // Units of a thread, of as many inputs.

struct SumInputs {
  const float* at[kSumInputsMax];
  unsigned count;
};

// The first `units` units of an array are moved as such, the floats behind them one by one.
Grid GridOf(std::size_t count, std::size_t units) {
  const std::size_t items = std::max(units, count - units * kUnitFloats);
  const std::size_t blocks = (items + kThreads - 1) / kThreads;
  return {static_cast<unsigned>(std::min(blocks, kBlocksMax)), kThreads, 1};
}

bool IsAtUnit(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

__device__ __forceinline__ std::size_t FirstOfThread() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::size_t Threads() { return std::size_t{gridDim.x} * blockDim.x; }

__global__ void __launch_bounds__(kThreads)
    FillKernel(float* data, std::size_t count, std::size_t units, float value) {
  const std::uint32_t bits = BitsOf(value);
  for (std::size_t i = FirstOfThread(); i < units; i += Threads()) {
    Store(data + i * kUnitFloats, uint4{bits, bits, bits, bits});
  }
  for (std::size_t i = units * kUnitFloats + FirstOfThread(); i < count; i += Threads()) {
    Store<std::uint32_t>(data + i, bits);
  }
}

// out = the sum of what the inputs have from element `at` on, kFloats of them. All of it is read
// before it is written: `out` may be an input.
template <int kFloats>
__device__ __forceinline__ void SumAt(const SumInputs& inputs, std::size_t at, float* out) {
  using FloatUnit = Words<kFloats * 4>;
  const auto load = [&](unsigned r) {
    return LoadWords<kFloats * 4, false>(reinterpret_cast<const std::byte*>(inputs.at[r] + at));
  };
  FloatUnit sum;
  for (unsigned r = 0; r < inputs.count; r += kInputsInFlight) {
    FloatUnit units[kInputsInFlight];
#pragma unroll
    for (unsigned u = 0; u < kInputsInFlight; ++u) {
      if (r + u < inputs.count) units[u] = load(r + u);
    }
#pragma unroll
    for (unsigned u = 0; u < kInputsInFlight; ++u) {
      if (r + u >= inputs.count) continue;
#pragma unroll
      for (int j = 0; j < kFloats; ++j) {
        const float value = FloatOf(units[u].word[j]);
        sum.word[j] = BitsOf(r + u == 0 ? value : FloatOf(sum.word[j]) + value);
      }
    }
  }
  auto* const to = reinterpret_cast<std::byte*>(out + at);
  if constexpr (kFloats == kUnitFloats) {
    Store(to, uint4{sum.word[0], sum.word[1], sum.word[2], sum.word[3]});
  } else {
    StoreWords(to, sum);
  }
}

__global__ void __launch_bounds__(kThreads)
    SumKernel(SumInputs inputs, std::size_t count, std::size_t units, float* out) {
  for (std::size_t i = FirstOfThread(); i < units; i += Threads()) {
    SumAt<kUnitFloats>(inputs, i * kUnitFloats, out);
  }
  for (std::size_t i = units * kUnitFloats + FirstOfThread(); i < count; i += Threads()) {
    SumAt<1>(inputs, i, out);
  }
}

}  // namespace

int FillAsync(float* data, std::size_t count, float value, StreamHandle stream) {
  if (count == 0) return cudaSuccess;
  const std::size_t units = IsAtUnit(data) ? count / kUnitFloats : 0;
  return Launch(FillKernel, GridOf(count, units), stream, data, count, units, value);
}

int SumInOrderAsync(const float* const* inputs, std::size_t input_count, std::size_t count,
                    float* out, StreamHandle stream) {
  if (input_count == 0 || input_count > kSumInputsMax) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  SumInputs all{};
  std::copy_n(inputs, input_count, all.at);
  all.count = static_cast<unsigned>(input_count);
  const bool in_units = IsAtUnit(out) && std::all_of(inputs, inputs + input_count, IsAtUnit);
  const std::size_t units = in_units ? count / kUnitFloats : 0;
  return Launch(SumKernel, GridOf(count, units), stream, all, count, units, out);
}

}  // namespace embla::kernels::cuda
