// Finds the distinct ids of a batch, so that each travels once, and whether that is worth the work.
//
// Open addressing over positions in the batch: one pass, no sorting, first occurrences in arrival
// order. Whether it is worth it says a bit per hash, which costs a fifth. Model test:
// distinct_ids_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace embla::client {

struct DistinctIds {
  bool has_duplicates = false;
  // Empty without duplicates: then entry i is id i.
  std::vector<std::int64_t> ids;        // In order of first occurrence.
  std::vector<std::uint32_t> entry_of;  // Per position: which of `ids` it is.
};

// Requires: ids.size() < 2^32 - 1.
DistinctIds FindDistinct(std::span<const std::int64_t> ids);

// Whether it pays to send each of `ids` ids once when `duplicates` of them repeat another one. To
// combine costs a second pass over all rows at the client; a row more costs its bytes on the way
// and its turn at the node. docs/benchmarks.md has the measurements.
constexpr bool IsWorthCombining(std::size_t ids, std::size_t duplicates) {
  return duplicates > 0 && duplicates * 32 >= ids;
}

// IsWorthCombining of the ids of all `batches` together. Their duplicates are estimated, within a
// percent of the ids but for a vanishing chance.
bool HasManyDuplicates(std::span<const std::span<const std::int64_t>> batches);

}  // namespace embla::client
