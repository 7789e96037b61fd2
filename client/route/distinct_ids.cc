#include "client/route/distinct_ids.h"

#include <bit>

namespace embla::client {
namespace {

constexpr std::uint32_t kFree = 0xffffffff;

// Fibonacci hashing: the upper bits of a product depend on all bits of the id.
std::uint64_t Hash(std::int64_t id) {
  return (static_cast<std::uint64_t>(id) ^ (static_cast<std::uint64_t>(id) >> 32)) *
         0x9e3779b97f4a7c15u;
}

}  // namespace

DistinctIds FindDistinct(std::span<const std::int64_t> ids) {
  DistinctIds distinct;
  if (ids.size() < 2) return distinct;
  const int bits = std::bit_width(ids.size() * 2 - 1);
  const std::size_t mask = (std::size_t{1} << bits) - 1;
  std::vector<std::uint32_t> cells(mask + 1, kFree);  // Entries, at the hash of their id.
  distinct.ids.reserve(ids.size());
  distinct.entry_of.resize(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::size_t cell = Hash(ids[i]) >> (64 - bits);
    while (cells[cell] != kFree && distinct.ids[cells[cell]] != ids[i]) cell = (cell + 1) & mask;
    if (cells[cell] == kFree) {
      cells[cell] = static_cast<std::uint32_t>(distinct.ids.size());
      distinct.ids.push_back(ids[i]);
    }
    distinct.entry_of[i] = cells[cell];
  }
  distinct.has_duplicates = distinct.ids.size() != ids.size();
  if (!distinct.has_duplicates) {
    distinct.ids.clear();
    distinct.entry_of.clear();
  }
  return distinct;
}

}  // namespace embla::client
