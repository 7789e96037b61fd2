// The ids that wait for a slot in one bucket (admission by count), as a GPU has them: the content
// of CandidateCounts in one flat block of memory, with a place for as many ids as may wait.
//
//   block  = ids counts passed size        i64 * places, u32 * places, u32 * lines, u32; padded to
//   64 line   = 32 places, which a warp reads at once; a count of 0 is an empty place
//
// An id's probe begins at its home line and goes on line by line, round the end. The id has a place
// in the first line that had room when it came, and every line that it passed counts it. So a probe
// ends at a line that no id has passed, and a place is free at once when its id leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/plan/id_place.h"
#include "server/zch/slot_map_options.h"

namespace embla::zch {

class CandidateCounts;

inline constexpr std::uint32_t kPlacesPerLine = 32;

// Offsets of a block's parts, in bytes.
struct CandidateLayout {
  std::uint32_t lines = 0;  // 0: ids never wait, and there are no blocks.

  constexpr std::size_t places() const { return std::size_t{lines} * kPlacesPerLine; }
  constexpr std::size_t counts_at() const { return places() * sizeof(std::int64_t); }
  constexpr std::size_t passed_at() const { return counts_at() + places() * sizeof(std::uint32_t); }
  constexpr std::size_t size_at() const {
    return passed_at() + std::size_t{lines} * sizeof(std::uint32_t);
  }
  constexpr std::size_t bytes() const {
    return lines == 0 ? 0 : (size_at() + sizeof(std::uint32_t) + 63) / 64 * 64;
  }
};

// Places for SlotMapOptions::candidates_per_bucket ids. Requires: valid options.
inline CandidateLayout CandidateLayoutOf(const SlotMapOptions& options) {
  if (options.admission != Admission::kCount) return {};
  return {(options.candidates_per_bucket() + kPlacesPerLine - 1) / kPlacesPerLine};
}

// By a second hash: the first one chose the bucket.
constexpr std::uint32_t HomeLineOf(RowId id, std::uint32_t lines) {
  const std::uint64_t high = SplitMix64(HashId(id)) >> 32;
  return static_cast<std::uint32_t>((high * lines) >> 32);
}

// A block with these ids, which the layout has places for.
std::vector<std::byte> EncodeCandidates(const CandidateLayout& layout,
                                        const CandidateCounts& candidates);
// Reads the counts of a block. Requires: block.size() == layout.bytes().
CandidateCounts DecodeCandidates(const CandidateLayout& layout, std::span<const std::byte> block);

}  // namespace embla::zch
