// Latencies in logarithmic buckets of 1.6 % width: constant memory, any number of samples, as in
// HdrHistogram.
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace embla::load {

// Thread safety: one thread at a time.
class LatencyHistogram {
 public:
  // Durations below 0 count as 0, those above an hour as an hour.
  void Add(absl::Duration latency);
  void Merge(const LatencyHistogram& other);

  std::uint64_t count() const { return count_; }
  absl::Duration max() const { return absl::Nanoseconds(max_ns_); }
  // The smallest value that at least `quantile` (0..1) of the samples do not exceed, at most 1.6 %
  // too large; exact at 1. Zero without samples.
  absl::Duration Quantile(double quantile) const;

 private:
  // 64 buckets per power of two; values below 128 ns are exact.
  static constexpr int kSubBits = 6;
  static constexpr std::uint64_t kNanosecondsMax = 3600ull * 1000 * 1000 * 1000;
  static constexpr std::size_t kBuckets = (42 - kSubBits + 1) << kSubBits;
  static std::size_t BucketOf(std::uint64_t ns);
  static std::uint64_t LargestIn(std::size_t bucket);

  std::array<std::uint64_t, kBuckets> counts_ = {};
  std::uint64_t count_ = 0;
  std::uint64_t max_ns_ = 0;
};

}  // namespace embla::load
