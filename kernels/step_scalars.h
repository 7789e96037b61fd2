// The scalar parts of a step, shared by the kernels and their oracle, and constexpr so that CUDA
// code can call them as well. They run once per batch or row; what they compute in double is the
// same on every compiler (basic operations only).
#pragma once

#include <cstdint>

namespace embla::kernels {

inline constexpr float kStepCountMax = 16777216.0f;  // 2^24: the last that fp32 counts to.

// 1 - beta^t of Adam, by repeated squaring. Powers below 2^-26 do not change it any more, and what
// is left of t only makes them smaller: the loop is short, however many steps a row has had.
constexpr float BiasCorrectionOf(float beta, std::uint64_t t) {
  double power = 1.0;
  for (double base = beta; t != 0; t >>= 1, base *= base) {
    if (base < 0x1p-26) return 1.0f;
    if ((t & 1) != 0) power *= base;
  }
  return static_cast<float>(1.0 - power);
}

// A row's step count after one more step. Compared by hand: std::min would take the address of
// kStepCountMax, which no device has, and nvcc compiles that to a trap without a word.
constexpr float NextStepCount(float count) {
  const float next = count + 1.0f;
  return kStepCountMax < next ? kStepCountMax : next;
}

}  // namespace embla::kernels
