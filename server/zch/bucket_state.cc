#include "server/zch/bucket_state.h"

#include <limits>

namespace embla::zch {

void EvictionHistory::Add(const Eviction& eviction) {
  if (most_ == 0) return;
  if (ring_.size() < most_) {
    ring_.push_back(eviction);
    return;
  }
  ring_[oldest_] = eviction;
  oldest_ = (oldest_ + 1) % most_;
}

const Eviction* EvictionHistory::LatestOf(RowId id) const {
  for (std::size_t i = ring_.size(); i-- > 0;) {
    const Eviction& eviction = ring_[(oldest_ + i) % ring_.size()];
    if (eviction.id == id) return &eviction;
  }
  return nullptr;
}

std::uint64_t EvictionHistory::KnownSince() const {
  if (ring_.size() < most_) return 0;
  return most_ == 0 ? std::numeric_limits<std::uint64_t>::max() : ring_[oldest_].step;
}

std::vector<Eviction> EvictionHistory::InOrder() const {
  std::vector<Eviction> ordered;
  ordered.reserve(ring_.size());
  for (std::size_t i = 0; i < ring_.size(); ++i) {
    ordered.push_back(ring_[(oldest_ + i) % ring_.size()]);
  }
  return ordered;
}

}  // namespace embla::zch
