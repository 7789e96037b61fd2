#include "server/zch/candidate_block.h"

#include <cstring>
#include <limits>

#include "core/base/check.h"
#include "server/zch/admission.h"

namespace embla::zch {
namespace {

template <typename T>
T Read(std::span<const std::byte> block, std::size_t begin, std::size_t index) {
  T value;
  std::memcpy(&value, block.data() + begin + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Write(std::vector<std::byte>& block, std::size_t begin, std::size_t index, T value) {
  std::memcpy(block.data() + begin + index * sizeof(T), &value, sizeof(T));
}

// The first empty place from the id's home on; counts the lines that it passes.
std::size_t TakePlace(const CandidateLayout& layout, std::int64_t id,
                      std::vector<std::byte>& block) {
  std::uint32_t line = HomeLineOf(RowId{id}, layout.lines);
  for (std::uint32_t passed = 0; passed < layout.lines; ++passed) {
    for (std::size_t i = 0; i < kPlacesPerLine; ++i) {
      const std::size_t place = std::size_t{line} * kPlacesPerLine + i;
      if (Read<std::uint32_t>(block, layout.counts_at(), place) == 0) return place;
    }
    const auto count = Read<std::uint32_t>(block, layout.passed_at(), line);
    Write<std::uint32_t>(block, layout.passed_at(), line, count + 1);
    line = line + 1 == layout.lines ? 0 : line + 1;
  }
  EMBLA_CHECK(false);
}

}  // namespace

std::vector<std::byte> EncodeCandidates(const CandidateLayout& layout,
                                        const CandidateCounts& candidates) {
  EMBLA_CHECK(candidates.size() <= layout.places());
  std::vector<std::byte> block(layout.bytes());
  for (const Candidate& candidate : candidates.Sorted()) {
    const std::size_t place = TakePlace(layout, candidate.id, block);
    Write(block, 0, place, candidate.id);
    Write(block, layout.counts_at(), place, candidate.count);
  }
  if (layout.lines > 0) {
    Write(block, layout.size_at(), 0, static_cast<std::uint32_t>(candidates.size()));
  }
  return block;
}

CandidateCounts DecodeCandidates(const CandidateLayout& layout, std::span<const std::byte> block) {
  EMBLA_CHECK(block.size() == layout.bytes());
  CandidateCounts candidates;
  for (std::size_t place = 0; place < layout.places(); ++place) {
    const auto count = Read<std::uint32_t>(block, layout.counts_at(), place);
    if (count == 0) continue;
    candidates.Add(RowId{Read<std::int64_t>(block, 0, place)}, count,
                   std::numeric_limits<std::size_t>::max());
  }
  return candidates;
}

}  // namespace embla::zch
