// How a ZCH table maps ids to slots: size, eviction, admission. Fixed when the table is made.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/plan/zch_spec.h"

namespace embla::zch {

inline constexpr std::int64_t kCapacityMax = std::int64_t{1} << 40;
inline constexpr std::uint32_t kEvictionHistoryMax = 4096;

struct SlotMapOptions {
  std::uint32_t buckets = kBucketsDefault;  // 1..kBucketsMax.
  // Slots wanted, 1..kCapacityMax; rounded up to a multiple of 64 * buckets. At a load of 0.8 about
  // one id in 400 meets a full group.
  std::int64_t capacity = 0;
  // Number of each group's 64 slots, the last ones, that no id owns: ids without a slot share them.
  // 0..63.
  std::uint32_t reserved_lanes = 0;

  Policy policy = Policy::kLru;
  std::uint32_t distance_exponent = 1;  // kDistanceLfu: 1 or 2.
  std::uint32_t ttl_ticks = 0;          // kTtl: at least 1. Ticks are the caller's.
  // kTtl: in a group where nothing has expired, evict what expires first; else refuse the new id.
  bool evict_unexpired = false;

  Admission admission = Admission::kAll;
  std::uint32_t admission_count = 1;   // kCount: at least 1.
  std::uint32_t candidates_max = 0;    // kCount, per bucket; 0: as many as the bucket has slots.
  double admission_probability = 1.0;  // kProbability: 0..1.
  std::uint64_t seed = 0;              // kProbability.

  std::uint32_t eviction_history = 16;  // Evictions a bucket remembers; up to kEvictionHistoryMax.
  bool huge_pages = true;

  // InvalidArgument names the field, its value and the allowed range.
  absl::Status Validate() const;

  // Requires of all below: Validate() is ok.
  std::uint32_t groups_per_bucket() const;
  std::uint32_t slots_per_bucket() const { return groups_per_bucket() * kLanes; }
  std::int64_t slots() const { return std::int64_t{buckets} * slots_per_bucket(); }
  std::uint32_t lanes_for_ids() const { return kLanes - reserved_lanes; }
  std::uint32_t candidates_per_bucket() const {
    return candidates_max == 0 ? slots_per_bucket() : candidates_max;
  }
  // kTtl: what a touch at `now` promises, with a TTL of its own unless that is 0; saturates at
  // "never".
  std::uint32_t ExpiryOf(std::uint32_t ttl, std::uint32_t now) const;
};

}  // namespace embla::zch
