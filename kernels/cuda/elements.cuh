// Elements of device rows as fp32, and back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace embla::kernels::cuda {

inline __device__ float ToFloat(float v) { return v; }
inline __device__ float ToFloat(__half v) { return __half2float(v); }
inline __device__ float ToFloat(__nv_bfloat16 v) { return __bfloat162float(v); }

inline __device__ void ToNearest(float v, float* out) { *out = v; }
inline __device__ void ToNearest(float v, __half* out) { *out = __float2half_rn(v); }
inline __device__ void ToNearest(float v, __nv_bfloat16* out) { *out = __float2bfloat16_rn(v); }

// Away from zero with the probability of what is cut off; kernels/cpu/random-inl.h in scalars.
inline __device__ void ToStochastic(float v, std::uint32_t, float* out) { *out = v; }
inline __device__ void ToStochastic(float v, std::uint32_t random, __nv_bfloat16* out) {
  if (!isfinite(v)) return ToNearest(v, out);
  const std::uint32_t bits = __float_as_uint(v) + (random >> 16);
  *out = __ushort_as_bfloat16(static_cast<unsigned short>(bits >> 16));
}
inline __device__ void ToStochastic(float v, std::uint32_t random, __half* out) {
  const float magnitude = fabsf(v);
  if (!(magnitude < 65536.0f)) {  // Infinite in fp16, or NaN.
    return ToNearest(v, out);
  }
  std::uint32_t half = 0;
  if (magnitude < 0x1p-14f) {  // Multiples of 2^-24.
    const float scaled = magnitude * 16777216.0f;
    const float whole = truncf(scaled);
    const float uniform = static_cast<float>(random >> 8) * 0x1p-24f;
    half = static_cast<std::uint32_t>(whole) + (uniform < scaled - whole ? 1u : 0u);
  } else {
    half = (__float_as_uint(magnitude) + (random >> 19) - (112u << 23)) >> 13;
  }
  half |= (__float_as_uint(v) >> 16) & 0x8000u;
  *out = __ushort_as_half(static_cast<unsigned short>(half));
}

}  // namespace embla::kernels::cuda
