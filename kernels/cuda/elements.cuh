// Elements of rows as fp32, and back; kernels/cpu/elements-inl.h and random-inl.h in scalars.
// 16-bit formats are moved as their bits. Hardware converts on a GPU; the emulated device uses the
// integer arithmetic below it, which is the same function.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/row_kernels.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace embla::kernels::cuda {

__device__ __forceinline__ float BFloat16ToFloat(std::uint32_t half) { return FloatOf(half << 16); }

// Adds `below` to the 16 bits that are cut off, which carries into the kept ones.
__device__ __forceinline__ std::uint32_t ToBFloat16Adding(float v, std::uint32_t below) {
  const std::uint32_t bits = BitsOf(v);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return bits >> 16 | 0x40u;
  if (magnitude == 0x7f800000u) return bits >> 16;
  return (bits + below) >> 16;
}

#ifdef __CUDACC__

__device__ __forceinline__ float Float16ToFloat(std::uint32_t half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(half)));
}
__device__ __forceinline__ std::uint32_t ToFloat16(float v) {
  return __half_as_ushort(__float2half_rn(v));
}
__device__ __forceinline__ std::uint32_t ToBFloat16(float v) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

#else

inline float Float16ToFloat(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t shifted = (half & 0x7fffu) << 13;
  const std::uint32_t exponent = shifted & 0x0f800000u;
  if (exponent == 0x0f800000u) return FloatOf(sign | (shifted + (224u << 23)));
  if (exponent != 0) return FloatOf(sign | (shifted + (112u << 23)));
  // A subnormal: its fraction behind an implied one, minus that one.
  const float magnitude = FloatOf(shifted + (113u << 23)) - FloatOf(113u << 23);
  return FloatOf(sign | BitsOf(magnitude));
}
inline std::uint32_t ToFloat16(float v) {
  const std::uint32_t magnitude = BitsOf(v) & 0x7fffffffu;
  const std::uint32_t sign = BitsOf(v) >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 143u << 23) return sign | 0x7c00u;  // 2^16 and up.
  if (magnitude >= 113u << 23) {                       // 2^-14 and up; carries into infinity.
    return sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  }
  // 0.5 has its last bit at 2^-24, where subnormals end: the addition rounds there.
  return sign | (BitsOf(FloatOf(magnitude) + 0.5f) - BitsOf(0.5f));
}
inline std::uint32_t ToBFloat16(float v) {
  return ToBFloat16Adding(v, 0x7fffu + (BitsOf(v) >> 16 & 1u));
}

#endif

// Away from zero with the probability of what is cut off, decided by 32 random bits.
__device__ __forceinline__ std::uint32_t ToBFloat16Stochastic(float v, std::uint32_t random) {
  return ToBFloat16Adding(v, random >> 16);
}
__device__ __forceinline__ std::uint32_t ToFloat16Stochastic(float v, std::uint32_t random) {
  const std::uint32_t magnitude = BitsOf(v) & 0x7fffffffu;
  if (magnitude >= 143u << 23) return ToFloat16(v);  // Infinite in fp16, or NaN.
  const std::uint32_t sign = BitsOf(v) >> 16 & 0x8000u;
  if (magnitude >= 113u << 23) return sign | (magnitude + (random >> 19) - (112u << 23)) >> 13;
  // Subnormals are multiples of 2^-24.
  const float scaled = FloatOf(magnitude) * 16777216.0f;
  const float whole = truncf(scaled);
  const float uniform = static_cast<float>(random >> 8) * 5.9604644775390625e-8f;
  return sign | (static_cast<std::uint32_t>(whole) + (uniform < scaled - whole ? 1u : 0u));
}

// The weights' formats. Never kInt8Rowwise, which has units.cuh's header arithmetic.
template <Element kElement>
__device__ __forceinline__ float ToFloat(std::uint32_t bits) {
  if constexpr (kElement == Element::kFloat16) return Float16ToFloat(bits);
  if constexpr (kElement == Element::kBFloat16) return BFloat16ToFloat(bits);
  return FloatOf(bits);
}
template <Element kElement>
__device__ __forceinline__ std::uint32_t ToNearest(float v) {
  if constexpr (kElement == Element::kFloat16) return ToFloat16(v);
  if constexpr (kElement == Element::kBFloat16) return ToBFloat16(v);
  return BitsOf(v);
}
template <Element kElement>
__device__ __forceinline__ std::uint32_t ToStochastic(float v, std::uint32_t random) {
  if constexpr (kElement == Element::kFloat16) return ToFloat16Stochastic(v, random);
  if constexpr (kElement == Element::kBFloat16) return ToBFloat16Stochastic(v, random);
  return BitsOf(v);
}

}  // namespace embla::kernels::cuda
