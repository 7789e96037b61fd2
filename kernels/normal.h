// Normal numbers from random bits, the same on every compiler and machine: only + - * / and sqrt
// of doubles, which IEEE 754 fixes. Error below 1e-6 (initialize_test.cc, against erfc). constexpr,
// so that CUDA code can call it as well.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace embla::kernels {

// ln(x) for normal x > 0: x = m * 2^e with m in [2/3, 4/3), ln m = 2 artanh((m-1)/(m+1)).
constexpr double PortableLog(double x) {
  auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t two_thirds = std::bit_cast<std::uint64_t>(2.0 / 3.0);
  const auto exponent = static_cast<std::int64_t>(bits - two_thirds) >> 52;
  bits -= static_cast<std::uint64_t>(exponent) << 52;
  const double m = std::bit_cast<double>(bits);
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 0.0;
  for (int k = 17; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return static_cast<double>(exponent) * 0.693147180559945309 + 2.0 * s * series;
}

// The value below which a standard normal variable falls with probability (bits + 0.5) / 2^32.
// Wichura, "Algorithm AS 241", PPND7.
constexpr double StandardNormal(std::uint32_t bits) {
  const double p = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  const double q = p - 0.5;
  if (q <= 0.425 && q >= -0.425) {
    const double r = 0.180625 - q * q;
    const double top = ((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179;
    const double bottom = ((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0;
    return q * top / bottom;
  }
  double r = std::sqrt(-PortableLog(q < 0.0 ? p : 1.0 - p));
  double value;
  if (r <= 5.0) {
    r -= 1.6;
    value = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
            ((0.12021132975 * r + 0.73700164250) * r + 1.0);
  } else {
    r -= 5.0;
    value = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
            ((0.012258202635 * r + 0.24197894225) * r + 1.0);
  }
  return q < 0.0 ? -value : value;
}

}  // namespace embla::kernels
