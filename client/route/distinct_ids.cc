#include "client/route/distinct_ids.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace embla::client {
namespace {

constexpr std::uint32_t kFree = 0xffffffff;

// Fibonacci hashing: the upper bits of a product depend on all bits of the id.
std::uint64_t Hash(std::int64_t id) {
  return (static_cast<std::uint64_t>(id) ^ (static_cast<std::uint64_t>(id) >> 32)) *
         0x9e3779b97f4a7c15u;
}

// Numbers ids in order of first occurrence.
class IdNumbers {
 public:
  // Requires: 0 < ids_max < 2^32 - 1, and at most that many ids come.
  explicit IdNumbers(std::size_t ids_max)
      : bits_(std::bit_width(ids_max * 2 - 1)), cells_(std::size_t{1} << bits_, kFree) {
    ids_.reserve(ids_max);
  }

  std::uint32_t Add(std::int64_t id) {
    const std::size_t mask = cells_.size() - 1;
    std::size_t cell = Hash(id) >> (64 - bits_);
    while (cells_[cell] != kFree && ids_[cells_[cell]] != id) cell = (cell + 1) & mask;
    if (cells_[cell] == kFree) {
      cells_[cell] = static_cast<std::uint32_t>(ids_.size());
      ids_.push_back(id);
    }
    return cells_[cell];
  }

  std::size_t count() const { return ids_.size(); }
  std::vector<std::int64_t> TakeIds() { return std::move(ids_); }

 private:
  const int bits_;
  std::vector<std::uint32_t> cells_;  // Numbers, at the hash of their id.
  std::vector<std::int64_t> ids_;     // By number.
};

// Chance repeats one id in 128 so, a quarter of what is worth combining.
constexpr std::size_t kBitsPerId = 64;
constexpr int kHashWidthMin = 15;

// Batches of so many ids are compared each with each: quicker than memory for their numbers.
constexpr std::size_t kComparedIdsMax = 16;

bool AreDistinct(std::span<const std::int64_t> ids) {
  for (std::size_t i = 1; i < ids.size(); ++i) {
    if (std::ranges::find(ids.first(i), ids[i]) != ids.begin() + i) return false;
  }
  return true;
}

}  // namespace

DistinctIds FindDistinct(std::span<const std::int64_t> ids) {
  DistinctIds distinct;
  if (ids.size() < 2) return distinct;
  if (ids.size() <= kComparedIdsMax && AreDistinct(ids)) return distinct;
  IdNumbers numbers(ids.size());
  distinct.entry_of.resize(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) distinct.entry_of[i] = numbers.Add(ids[i]);
  distinct.has_duplicates = numbers.count() != ids.size();
  if (distinct.has_duplicates) {
    distinct.ids = numbers.TakeIds();
  } else {
    distinct.entry_of.clear();
  }
  return distinct;
}

// A bit for each of many hashes, as in linear counting (Whang et al., 1990): an id whose bit is set
// repeats one before it, or an id of the same hash, of which as many are expected as are taken off.
bool HasManyDuplicates(std::span<const std::span<const std::int64_t>> batches) {
  std::size_t ids = 0;
  for (const std::span<const std::int64_t> batch : batches) ids += batch.size();
  if (ids < 2) return false;
  if (batches.size() == 1 && ids <= kComparedIdsMax && AreDistinct(batches.front())) return false;
  const int width = std::max(static_cast<int>(std::bit_width(ids * kBitsPerId - 1)), kHashWidthMin);
  absl::InlinedVector<std::uint64_t, (std::size_t{1} << kHashWidthMin) / 64> bits(
      (std::size_t{1} << width) / 64);
  const std::size_t by_chance = static_cast<std::size_t>(
      static_cast<double>(ids) * static_cast<double>(ids) / std::ldexp(2.0, width));
  std::size_t repeated = 0;
  for (const std::span<const std::int64_t> batch : batches) {
    for (const std::int64_t id : batch) {
      const std::uint64_t hash = Hash(id) >> (64 - width);
      std::uint64_t& word = bits[hash / 64];
      repeated += word >> (hash % 64) & 1;
      word |= std::uint64_t{1} << (hash % 64);
      if (repeated > by_chance && IsWorthCombining(ids, repeated - by_chance)) return true;
    }
  }
  return false;
}

}  // namespace embla::client
