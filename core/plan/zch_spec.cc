#include "core/plan/zch_spec.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"

namespace embla {
namespace {

template <typename Value>
absl::Status CheckZchRange(const char* field, Value value, Value least, Value most) {
  if (value >= least && value <= most) return absl::OkStatus();  // False for NaN.
  return absl::InvalidArgumentError(
      absl::StrCat("zch ", field, " is ", value, ", allowed is ", least, " to ", most));
}

template <typename Enum>
absl::Status CheckKnownInZch(const char* field, Enum value) {
  if (!NameOf(value).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("zch ", field, " has the unknown value ", static_cast<int>(value)));
}

absl::Status CheckPolicy(const ZchSpec& spec) {
  EMBLA_RETURN_IF_ERROR(CheckKnownInZch("policy", spec.policy));
  EMBLA_RETURN_IF_ERROR(CheckZchRange("distance_exponent", spec.distance_exponent, 1u, 2u));
  const bool ttl = spec.policy == zch::Policy::kTtl;
  if (ttl == (spec.ttl_steps > 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "zch ttl_steps is ", spec.ttl_steps,
      ttl ? ", policy ttl needs at least 1" : ", only policy ttl has one: leave it 0"));
}

absl::Status CheckAdmission(const ZchSpec& spec) {
  EMBLA_RETURN_IF_ERROR(CheckKnownInZch("admission", spec.admission));
  EMBLA_RETURN_IF_ERROR(CheckZchRange("admission_count", spec.admission_count, 1u, UINT32_MAX));
  return CheckZchRange("admission_probability", spec.admission_probability, 0.0f, 1.0f);
}

absl::Status CheckUnseen(const ZchSpec& spec) {
  EMBLA_RETURN_IF_ERROR(CheckKnownInZch("unseen", spec.unseen));
  EMBLA_RETURN_IF_ERROR(CheckZchRange("reserved_lanes", spec.reserved_lanes, 0u, zch::kLanes - 1));
  if (spec.reserved_lanes == 0 || spec.unseen == zch::Unseen::kDefault) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "zch reserved_lanes is ", spec.reserved_lanes,
      ", so ids without a row share those rows: unseen must be default then, or lanes be 0"));
}

}  // namespace

absl::Status ZchSpec::Validate(std::int64_t rows) const {
  EMBLA_RETURN_IF_ERROR(CheckZchRange("buckets", buckets, 1u, zch::kBucketsMax));
  if (rows != RoundUp(rows)) {
    return absl::InvalidArgumentError(absl::StrCat("rows of a zch table is ", rows,
                                                   ", allowed are multiples of 64 x buckets (",
                                                   buckets, "): ", RoundUp(rows)));
  }
  const std::int64_t groups = rows / (std::int64_t{buckets} * zch::kLanes);
  if (groups > zch::kGroupsPerBucketMax) {
    return absl::InvalidArgumentError(absl::StrCat("rows of a zch table is ", rows, ", at most ",
                                                   zch::kGroupsPerBucketMax * zch::kLanes * buckets,
                                                   " fit ", buckets, " buckets: use more buckets"));
  }
  EMBLA_RETURN_IF_ERROR(CheckPolicy(*this));
  EMBLA_RETURN_IF_ERROR(CheckAdmission(*this));
  EMBLA_RETURN_IF_ERROR(CheckZchRange("eviction_buffer_bytes", eviction_buffer_bytes,
                                      std::uint64_t{0}, zch::kEvictionBufferBytesMax));
  return CheckUnseen(*this);
}

std::int64_t ZchSpec::RoundUp(std::int64_t capacity) const {
  const std::int64_t unit = std::int64_t{buckets} * zch::kLanes;
  return (capacity + unit - 1) / unit * unit;
}

}  // namespace embla
