// Load and memory on one scale: quotients in 2^-20, by multiplication.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/planner/problem/units.h"

namespace embla::planner {

inline constexpr std::int64_t kRatioMax = std::int64_t{1} << 30;

// 2^80 / b, as far as it fits.
constexpr std::int64_t Reciprocal(std::int64_t b) {
  const Int128 inverse = (static_cast<Int128>(1) << 80) / std::max<std::int64_t>(b, 1);
  return static_cast<std::int64_t>(std::min<Int128>(inverse, INT64_MAX));
}

// a / b in 2^-20, at most kRatioMax; `reciprocal` is Reciprocal(b).
constexpr std::int64_t Ratio(std::int64_t a, std::int64_t reciprocal) {
  return static_cast<std::int64_t>(
      std::min<Int128>((static_cast<Int128>(a) * reciprocal) >> 60, kRatioMax));
}

}  // namespace embla::planner
