// Grouping by a stable least-significant-digit radix sort of (id - smallest id, position).
//
// Ids are reduced to their range first: where it fits in 32 bits (nearly always), id and position
// share a word. One pass over the data makes the histograms of all digits; digits in which all
// ids agree cost nothing. A small batch would spend its time on the histograms of wide digits, so
// it has narrow ones. The smallest are sorted by comparison: positions make all items different, so
// that is stable too. Covered by combine_test.cc against std::stable_sort.
#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/combine.h"

namespace embla::kernels {
namespace {

// Measured with 64 to 4096 ids in a range of 14 to 30 bits.
constexpr std::size_t kDigitBits = 11;
constexpr std::size_t kNarrowDigitBits = 8;
constexpr std::size_t kNarrowDigitsMax = 512;  // Ids.
constexpr std::size_t kComparisonSortMax = 24;

using Wide = std::array<std::uint64_t, 2>;  // Key, position.

std::uint64_t KeyOf(std::uint64_t item) { return item >> 32; }
std::uint64_t KeyOf(const Wide& item) { return item[0]; }
std::uint32_t PositionOf(std::uint64_t item) { return static_cast<std::uint32_t>(item); }
std::uint32_t PositionOf(const Wide& item) { return static_cast<std::uint32_t>(item[1]); }

void Assign(std::uint64_t& item, std::uint64_t key, std::uint64_t position) {
  item = key << 32 | position;
}
void Assign(Wide& item, std::uint64_t key, std::uint64_t position) { item = {key, position}; }

// Sorts items by key; `other` is memory of the same size. The result is in `items`.
template <std::size_t kBits, typename Item>
void RadixSort(std::vector<Item>& items, std::vector<Item>& other, std::size_t key_bits) {
  constexpr std::size_t kBuckets = std::size_t{1} << kBits;
  const auto digit_of = [](const Item& item, std::size_t digit) {
    return KeyOf(item) >> (digit * kBits) & (kBuckets - 1);
  };
  const std::size_t digits = (key_bits + kBits - 1) / kBits;
  std::array<std::array<std::uint32_t, kBuckets>, (64 + kBits - 1) / kBits> counts;
  for (std::size_t d = 0; d < digits; ++d) counts[d].fill(0);
  for (const Item& item : items) {
    for (std::size_t d = 0; d < digits; ++d) ++counts[d][digit_of(item, d)];
  }
  other.resize(items.size());
  for (std::size_t d = 0; d < digits; ++d) {
    auto& starts = counts[d];
    if (starts[digit_of(items[0], d)] == items.size()) continue;
    std::exclusive_scan(starts.begin(), starts.end(), starts.begin(), std::uint32_t{0});
    for (const Item& item : items) other[starts[digit_of(item, d)]++] = item;
    items.swap(other);
  }
}

template <typename Item>
void SortPositions(std::span<const std::int64_t> ids, std::int64_t lowest, std::size_t key_bits,
                   std::vector<Item>* scratch, std::vector<std::uint32_t>& positions) {
  std::vector<Item>& items = scratch[0];
  items.resize(ids.size());
  for (std::size_t p = 0; p < ids.size(); ++p) {
    Assign(items[p], static_cast<std::uint64_t>(ids[p]) - static_cast<std::uint64_t>(lowest), p);
  }
  if (ids.size() <= kComparisonSortMax) {
    std::sort(items.begin(), items.end());
  } else if (ids.size() <= kNarrowDigitsMax) {
    RadixSort<kNarrowDigitBits>(items, scratch[1], key_bits);
  } else {
    RadixSort<kDigitBits>(items, scratch[1], key_bits);
  }
  std::transform(items.begin(), items.end(), positions.begin(),
                 [](const Item& item) { return PositionOf(item); });
}

}  // namespace

void GroupIds(std::span<const std::int64_t> ids, Grouping& grouping) {
  grouping.positions.resize(ids.size());
  if (std::is_sorted(ids.begin(), ids.end())) {
    std::iota(grouping.positions.begin(), grouping.positions.end(), std::uint32_t{0});
  } else {
    const auto [lowest, highest] = std::minmax_element(ids.begin(), ids.end());
    const auto key_bits = static_cast<std::size_t>(
        std::bit_width(static_cast<std::uint64_t>(*highest) - static_cast<std::uint64_t>(*lowest)));
    if (key_bits <= 32) {
      SortPositions(ids, *lowest, key_bits, grouping.narrow, grouping.positions);
    } else {
      SortPositions(ids, *lowest, key_bits, grouping.wide, grouping.positions);
    }
  }
  // Every position is written as if it began a segment, and the next one replaces it where it did
  // not: a branch would be predicted wrong for many a duplicate.
  grouping.ids.resize(ids.size());
  grouping.offsets.resize(ids.size() + 1);
  std::size_t segments = 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = ids[grouping.positions[i]];
    const bool begins = i == 0 || id != last;
    grouping.ids[segments] = id;
    grouping.offsets[segments] = static_cast<std::uint32_t>(i);
    segments += begins ? 1 : 0;
    last = id;
  }
  grouping.ids.resize(segments);
  grouping.offsets.resize(segments + 1);
  grouping.offsets.back() = static_cast<std::uint32_t>(ids.size());
}

void ExpandBags(std::span<const std::uint32_t> lengths, std::span<std::uint32_t> bag_of,
                std::span<float> inverse_lengths) {
  std::size_t p = 0;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const std::size_t end = p + lengths[b];
    std::fill(bag_of.begin() + p, bag_of.begin() + end, static_cast<std::uint32_t>(b));
    if (!inverse_lengths.empty() && end > p) {
      const float inverse = 1.0f / static_cast<float>(lengths[b]);
      std::fill(inverse_lengths.begin() + p, inverse_lengths.begin() + end, inverse);
    }
    p = end;
  }
}

}  // namespace embla::kernels
