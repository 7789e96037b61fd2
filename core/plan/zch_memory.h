// Bytes of a device that a ZCH table's id map takes, beside weights and optimizer state.
#pragma once

#include <cstdint>

#include "core/plan/zch_spec.h"

namespace embla {

// Bytes per slot with admission by count: room for an id that waits, as many as there are slots
// (server/zch/candidate_block.h); on the host a hash table takes about as much.
inline constexpr std::int64_t kWaitingBytesPerSlot = 13;

constexpr std::int64_t IdMapBytesPerSlot(const ZchSpec& spec) {
  const bool counts = spec.admission == zch::Admission::kCount;
  return zch::kBytesPerSlot + (counts ? kWaitingBytesPerSlot : 0);
}

}  // namespace embla
