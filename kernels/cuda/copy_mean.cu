// One thread per value, a few of them at a time: neighbours read neighbours, from every copy.
#include "kernels/cuda/copy_mean.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/group.cuh"

namespace embla::kernels::cuda {
namespace {

constexpr unsigned kAtOnce = 4;  // Values of a thread in flight, per copy.
constexpr std::size_t kWarpsMax = kCopyDistances;

// Where the values of a thread are, in every copy and in the result.
struct Places {
  std::size_t from[kAtOnce];
  std::size_t to[kAtOnce];
  unsigned count;  // The places behind it repeat the first.

  __device__ __forceinline__ Places(unsigned first, unsigned step, unsigned end, unsigned columns,
                                    std::size_t from_stride, std::size_t to_stride,
                                    unsigned element_bytes)
      : count(0) {
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; ++u) {
      const unsigned value = first + u * step;
      const bool is_one = value < end;
      count += is_one ? 1 : 0;
      const unsigned row = (is_one ? value : first) / columns;
      const unsigned column = (is_one ? value : first) % columns;
      from[u] = row * from_stride + column * element_bytes;
      to[u] = row * to_stride + column * element_bytes;
    }
  }
};

__device__ __forceinline__ double Larger(double a, double b) { return a < b ? b : a; }

// Adds up what the threads of a warp have found. The lanes of a warp end together.
__device__ __forceinline__ void AddDistances(CopyDistance mine, CopyDistance* distances) {
#pragma unroll
  for (unsigned lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    mine.max = Larger(mine.max, __shfl_xor_sync(kAllLanes, mine.max, static_cast<int>(lanes)));
    mine.squares += __shfl_xor_sync(kAllLanes, mine.squares, static_cast<int>(lanes));
  }
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned warps = gridDim.x * blockDim.x / kWarp;
  if (thread % kWarp != 0) return;
  distances[thread / kWarp] = mine;
  for (unsigned w = thread / kWarp + warps; w < kCopyDistances; w += warps) {
    distances[w] = CopyDistance{0.0, 0.0};
  }
}

template <Element kElement, bool kLargest>
__global__ void MeanOfCopiesKernel(CopiesOfRows copies, unsigned values, float share, Output out,
                                   CopyDistance* distances) {
  using Bits = std::conditional_t<ElementBytes(kElement) == 4, std::uint32_t, unsigned short>;
  const unsigned threads = gridDim.x * blockDim.x;
  CopyDistance distance{0.0, 0.0};
  for (unsigned first = blockIdx.x * blockDim.x + threadIdx.x; first < values;
       first += threads * kAtOnce) {
    const Places at(first, threads, values, copies.columns, copies.stride_bytes, out.stride_bytes,
                    ElementBytes(kElement));
    Bits bits[kAtOnce];
    float sum[kAtOnce];
    float own[kAtOnce];
    bool is_same[kAtOnce];
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; ++u) {
      bits[u] = Load<Bits>(static_cast<const std::byte*>(copies.base[0]) + at.from[u]);
      own[u] = sum[u] = ToFloat<kElement>(bits[u]);
      is_same[u] = true;
    }
    for (unsigned c = 1; c < copies.count; ++c) {
      const auto* const copy = static_cast<const std::byte*>(copies.base[c]);
#pragma unroll
      for (unsigned u = 0; u < kAtOnce; ++u) {
        const Bits other = Load<Bits>(copy + at.from[u]);
        const float value = ToFloat<kElement>(other);
        is_same[u] = is_same[u] && other == bits[u];
        if (c == copies.own) own[u] = value;
        if constexpr (kLargest) {
          sum[u] = sum[u] < value ? value : sum[u];
        } else {
          sum[u] = sum[u] + value;
        }
      }
    }
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; ++u) {
      if (u >= at.count) continue;
      const float mean = kLargest ? sum[u] : sum[u] * share;
      Store(static_cast<std::byte*>(out.base) + at.to[u],
            is_same[u] ? bits[u] : static_cast<Bits>(ToNearest<kElement>(mean)));
      if (is_same[u]) continue;
      const double far = static_cast<double>(own[u]) - static_cast<double>(mean);
      distance.max = Larger(distance.max, far < 0.0 ? -far : far);
      distance.squares += far * far;
    }
  }
  if (distances != nullptr) AddDistances(distance, distances);
}

template <Element kElement>
int LaunchMean(const CopiesOfRows& copies, unsigned values, CopyRule rule, const Output& out,
               CopyDistance* distances, StreamHandle stream) {
  if (rule == CopyRule::kLargest && kElement != Element::kFloat32) return kInvalidValue;
  constexpr std::size_t kBlocks = std::min(kBlocksMax, kWarpsMax * kWarp / kThreads);
  const std::size_t wanted = (std::size_t{values} + kThreads * kAtOnce - 1) / (kThreads * kAtOnce);
  const Grid grid{static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, kBlocks)), kThreads, 1};
  const float share = 1.0f / static_cast<float>(copies.count);
  if constexpr (kElement == Element::kFloat32) {
    if (rule == CopyRule::kLargest) {
      return Launch(MeanOfCopiesKernel<kElement, true>, grid, stream, copies, values, share, out,
                    distances);
    }
  }
  return Launch(MeanOfCopiesKernel<kElement, false>, grid, stream, copies, values, share, out,
                distances);
}

}  // namespace

int MeanOfCopiesAsync(const CopiesOfRows& copies, std::size_t row_count, CopyRule rule,
                      const Output& out, CopyDistance* distances, StreamHandle stream) {
  const std::size_t values = row_count * copies.columns;
  if (copies.count == 0 || copies.count > kCopiesMax || copies.own >= copies.count ||
      out.element != copies.element || values >> 31 != 0) {
    return kInvalidValue;
  }
  // Without values, too, a grid writes the distances.
  if (values == 0 && distances == nullptr) return cudaSuccess;
  const auto count = static_cast<unsigned>(values);
  switch (copies.element) {
    case Element::kFloat32:
      return LaunchMean<Element::kFloat32>(copies, count, rule, out, distances, stream);
    case Element::kFloat16:
      return LaunchMean<Element::kFloat16>(copies, count, rule, out, distances, stream);
    case Element::kBFloat16:
      return LaunchMean<Element::kBFloat16>(copies, count, rule, out, distances, stream);
    case Element::kInt8Rowwise:
      return kInvalidValue;
  }
  return kInvalidValue;
}

}  // namespace embla::kernels::cuda
