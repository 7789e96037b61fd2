// The scalar parts of a step, shared by the kernels and their oracle, and constexpr so that CUDA
// code can call them as well. They run once per batch or row; what they compute in double is the
// same on every compiler (basic operations only).
#pragma once

#include <cstdint>

namespace embla::kernels {

inline constexpr float kStepCountMax = 16777216.0f;  // 2^24: the last that fp32 counts to.

// base^exponent by repeated squaring.
constexpr double Power(double base, std::uint64_t exponent) {
  double result = 1.0;
  for (; exponent != 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

// 1 - beta^t of Adam.
constexpr float BiasCorrectionOf(float beta, std::uint64_t t) {
  return static_cast<float>(1.0 - Power(beta, t));
}

// A row's step count after one more step. Compared by hand: std::min would take the address of
// kStepCountMax, which no device has, and nvcc compiles that to a trap without a word.
constexpr float NextStepCount(float count) {
  const float next = count + 1.0f;
  return kStepCountMax < next ? kStepCountMax : next;
}

}  // namespace embla::kernels
