// 64 slots that are probed together: one cache line of tags tells which lanes may hold an id, so a
// find reads that line and, with 8-bit tags, 1.2 lines of ids.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "server/zch/slot_map_options.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace embla::zch {

// Invariant: an empty lane (tag 0) is 0 in every array, so equal contents are equal bytes.
struct alignas(64) SlotGroup {
  std::uint8_t tags[kLanes];
  std::int64_t ids[kLanes];
  std::uint64_t last_steps[kLanes];  // Steps of the latest touches.
  std::uint32_t words[kLanes];       // kLfu, kDistanceLfu: touches. kTtl: expiry. kLru: 0.
};
static_assert(sizeof(SlotGroup) == kBytesPerSlot * kLanes,
              "no padding: groups are copied as bytes");

// Bit l: lane l has this tag.
inline std::uint64_t LanesWithTag(const SlotGroup& group, std::uint8_t tag) {
#if defined(__SSE2__)
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(tag));
  std::uint64_t lanes = 0;
  for (std::uint32_t i = 0; i < kLanes; i += 16) {
    const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(group.tags + i));
    const auto equal = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(tags, wanted)));
    lanes |= std::uint64_t{equal} << i;
  }
  return lanes;
#else
  std::uint64_t lanes = 0;
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    lanes |= std::uint64_t{group.tags[i] == tag} << i;
  }
  return lanes;
#endif
}

inline std::uint64_t EmptyLanes(const SlotGroup& group) { return LanesWithTag(group, 0); }

// The first `count` lanes. Requires: 1 <= count <= 64.
constexpr std::uint64_t FirstLanes(std::uint32_t count) {
  return ~std::uint64_t{0} >> (64 - count);
}

// The lane of `candidates` that holds `id`, or -1.
inline int LaneOf(const SlotGroup& group, std::uint64_t candidates, std::int64_t id) {
  for (; candidates != 0; candidates &= candidates - 1) {
    const int lane = std::countr_zero(candidates);
    if (group.ids[lane] == id) return lane;
  }
  return -1;
}

}  // namespace embla::zch
