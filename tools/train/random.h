// Random numbers that are the same on every machine: processes that split one input by a seed must
// agree on the order, and standard distributions and shuffles may differ between libraries.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <utility>

#include "core/base/split_mix.h"

namespace embla::train {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(SplitMix64(seed)) {}

  std::uint64_t Next() { return SplitMix64(state_++); }
  // Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // Uniform in 0..bound-1, biased by less than bound / 2^64. Requires: bound > 0.
  std::uint64_t Below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // Mean 0, standard deviation 1.
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform());
  }
  template <typename T>
  void Shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[Below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace embla::train
