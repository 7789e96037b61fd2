#include "server/zch/slot_map_options.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "server/zch/saturating.h"

namespace embla::zch {
namespace {

template <typename T, typename U>
absl::Status CheckRange(const char* field, T value, U least, U most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", allowed are ", least, " to ", most));
}

std::int64_t GroupsFor(std::int64_t capacity, std::uint32_t buckets) {
  const std::int64_t slots_of_a_row = std::int64_t{buckets} * kLanes;
  return (capacity + slots_of_a_row - 1) / slots_of_a_row;
}

absl::Status ValidatePolicy(const SlotMapOptions& options) {
  if (options.policy < Policy::kLru || options.policy > Policy::kTtl) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy is ", static_cast<int>(options.policy), ", allowed are 1 to 4"));
  }
  if (options.policy == Policy::kDistanceLfu) {
    return CheckRange("distance_exponent", options.distance_exponent, 1u, 2u);
  }
  if (options.policy == Policy::kTtl) {
    return CheckRange("ttl_ticks", options.ttl_ticks, 1u,
                      std::numeric_limits<std::uint32_t>::max());
  }
  return absl::OkStatus();
}

absl::Status ValidateAdmission(const SlotMapOptions& options) {
  switch (options.admission) {
    case Admission::kAll:
      return absl::OkStatus();
    case Admission::kCount:
      return CheckRange("admission_count", options.admission_count, 1u,
                        std::numeric_limits<std::uint32_t>::max());
    case Admission::kProbability:
      return CheckRange("admission_probability", options.admission_probability, 0.0, 1.0);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("admission is ", static_cast<int>(options.admission), ", allowed are 0 to 2"));
}

}  // namespace

absl::Status SlotMapOptions::Validate() const {
  if (auto s = CheckRange("buckets", buckets, 1u, kBucketsMax); !s.ok()) return s;
  if (auto s = CheckRange("capacity", capacity, std::int64_t{1}, kCapacityMax); !s.ok()) return s;
  if (GroupsFor(capacity, buckets) > kGroupsPerBucketMax) {
    return absl::InvalidArgumentError(absl::StrCat("capacity ", capacity, " is too large for ",
                                                   buckets, " buckets: at most ",
                                                   kGroupsPerBucketMax * kLanes, " slots each"));
  }
  if (auto s = CheckRange("reserved_lanes", reserved_lanes, 0u, kLanes - 1); !s.ok()) return s;
  if (auto s = CheckRange("eviction_history", eviction_history, 0u, kEvictionHistoryMax); !s.ok()) {
    return s;
  }
  if (auto s = ValidatePolicy(*this); !s.ok()) return s;
  return ValidateAdmission(*this);
}

std::uint32_t SlotMapOptions::groups_per_bucket() const {
  return static_cast<std::uint32_t>(GroupsFor(capacity, buckets));
}

std::uint32_t SlotMapOptions::ExpiryOf(std::uint32_t ttl, std::uint32_t now) const {
  return AddSaturating(now, ttl == 0 ? ttl_ticks : ttl);
}

}  // namespace embla::zch
