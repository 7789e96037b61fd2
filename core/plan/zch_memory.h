// What a ZCH table's map of ids takes of a device, beside weights and optimizer state.
#pragma once

#include <cstdint>

#include "core/plan/zch_spec.h"

namespace embla {

// Of a slot, with admission by count: room for an id that waits, as many as there are slots
// (server/zch/candidate_block.h); on the host a hash table takes about as much.
inline constexpr std::int64_t kWaitingBytesPerSlot = 13;

constexpr std::int64_t IdMapBytesPerSlot(const ZchSpec& spec) {
  const bool counts = spec.admission == zch::Admission::kCount;
  return zch::kBytesPerSlot + (counts ? kWaitingBytesPerSlot : 0);
}

}  // namespace embla
