// Finds the distinct ids of a batch, so that each travels once.
//
// Open addressing over positions in the batch: one pass, no sorting, first occurrences in arrival
// order. Model test: distinct_ids_test.cc.
#pragma once

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

}  // namespace embla::client
