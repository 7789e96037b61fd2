// Sums that stop at the largest value.
#pragma once

#include <cstdint>
#include <limits>

namespace embla::zch {

constexpr std::uint32_t AddSaturating(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  return a > kMost - b ? kMost : a + b;
}

}  // namespace embla::zch
