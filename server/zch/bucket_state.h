// A bucket's state besides its groups; it moves with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/zch/admission.h"
#include "server/zch/batch.h"

namespace embla::zch {

// The latest evictions, oldest first.
class EvictionHistory {
 public:
  explicit EvictionHistory(std::size_t most) : most_(most) {}

  void Add(const Eviction& eviction);
  // The latest of `id`, or null.
  const Eviction* LatestOf(RowId id) const;
  // The step since which all evictions are known; 0: none was forgotten.
  std::uint64_t KnownSince() const;
  std::vector<Eviction> InOrder() const;

 private:
  std::size_t most_;
  std::size_t oldest_ = 0;  // Index in ring_.
  std::vector<Eviction> ring_;
};

struct BucketState {
  explicit BucketState(std::size_t history) : history(history) {}

  std::uint64_t residents = 0;
  CandidateCounts candidates;
  EvictionHistory history;
};

}  // namespace embla::zch
