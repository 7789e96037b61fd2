#include "tools/load/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace embla::load {

void LatencyHistogram::Add(absl::Duration latency) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, std::min(absl::ToInt64Nanoseconds(latency), static_cast<std::int64_t>(kNanosecondsMax))));
  ++counts_[BucketOf(ns)];
  ++count_;
  max_ns_ = std::max(max_ns_, ns);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

absl::Duration LatencyHistogram::Quantile(double quantile) const {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(quantile * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (counts_[i] > 0 && seen >= wanted) {
      return absl::Nanoseconds(std::min(LargestIn(i), max_ns_));
    }
  }
  return absl::ZeroDuration();
}

// Values of b bits share a bucket when their first kSubBits + 1 bits are equal.
std::size_t LatencyHistogram::BucketOf(std::uint64_t ns) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(ns)) - kSubBits - 1);
  return (static_cast<std::size_t>(shift) << kSubBits) + (ns >> shift);
}

std::uint64_t LatencyHistogram::LargestIn(std::size_t bucket) {
  if (bucket < (2u << kSubBits)) return bucket;
  const std::size_t shift = (bucket >> kSubBits) - 1;
  const std::uint64_t first = (bucket & ((1u << kSubBits) - 1)) + (1u << kSubBits);
  return ((first + 1) << shift) - 1;
}

}  // namespace embla::load
