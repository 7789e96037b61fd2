// The draw of admission by probability: the same in every process and on every device.
#pragma once

#include <cstdint>

#include "core/plan/id_place.h"

namespace embla::zch {

// End of draws: 53 bits, as many as a double has, so that comparing them with a probability is
// exact.
inline constexpr double kDrawEnd = 0x1.0p53;

// Uniform in [0, kDrawEnd), for an id at a step.
constexpr std::uint64_t DrawOf(RowId id, std::uint64_t step, std::uint64_t seed) {
  return SplitMix64(SplitMix64(HashId(id) ^ seed) + step) >> 11;
}

}  // namespace embla::zch
