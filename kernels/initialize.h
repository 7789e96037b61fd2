// Initial weights: a function of (seed, global row, column) only, so the same under every plan.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_kernels.h"

namespace embla::kernels {

// u = 24 random bits / 2^24, in [0, 1); see random.h.
//   kConstant  a
//   kUniform   a + (b - a) * u, in fp32, and below b when a < b
//   kNormal    a + b * z; z from 32 random bits by the inverse of the normal distribution
//              (Wichura's PPND7 and a logarithm of our own, in double, basic operations only)
enum class InitRule : std::uint8_t { kConstant = 1, kUniform = 2, kNormal = 3 };

struct InitParameters {
  InitRule rule = InitRule::kConstant;
  float a = 0.0f;
  float b = 0.0f;
  std::uint64_t seed = 0;
};

// Fills slots [first_slot, first_slot + row_count): slot s becomes row first_row + s, columns
// column_begin and on. fp16 and bf16 are rounded to nearest even.
struct InitRows {
  MutableRows weights;
  std::int64_t first_row = 0;
  std::uint32_t column_begin = 0;
};
void Initialize(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                std::size_t row_count);

}  // namespace embla::kernels
