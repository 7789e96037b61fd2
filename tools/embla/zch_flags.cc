#include "tools/embla/zch_flags.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"

namespace embla::cli {
namespace {

// A word and its values: "count:3".
std::vector<std::string> Split(const std::string& text) { return absl::StrSplit(text, ':'); }

template <typename Number>
bool Read(const std::string& text, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

absl::Status Wrong(const char* flag, const std::string& text, const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is \"", text.substr(0, 40), "\", allowed are ", allowed));
}

absl::Status ReadPolicy(const std::string& text, ZchSpec* spec) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> words = Split(text);
  const absl::Status wrong =
      Wrong("--policy", text, "lru, lfu, distance_lfu, distance_lfu:2, ttl:STEPS, ttl:STEPS:evict");
  const absl::StatusOr<zch::Policy> policy = FromName<zch::Policy>(words[0]);
  if (!policy.ok()) return wrong;
  spec->policy = *policy;
  const bool ttl = spec->policy == zch::Policy::kTtl;
  if (words.size() == 1) return ttl ? wrong : absl::OkStatus();
  std::uint32_t value = 0;
  if (!Read(words[1], &value)) return wrong;
  if (spec->policy == zch::Policy::kDistanceLfu && words.size() == 2) {
    spec->distance_exponent = value;
    return absl::OkStatus();
  }
  if (!ttl || words.size() > 3 || (words.size() == 3 && words[2] != "evict")) return wrong;
  spec->ttl_steps = value;
  spec->evict_unexpired = words.size() == 3;
  return absl::OkStatus();
}

absl::Status ReadAdmission(const std::string& text, ZchSpec* spec) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> words = Split(text);
  const absl::Status wrong = Wrong("--admission", text, "all, count:N, probability:P");
  const absl::StatusOr<zch::Admission> admission = FromName<zch::Admission>(words[0]);
  if (!admission.ok() || words.size() > 2) return wrong;
  spec->admission = *admission;
  if (spec->admission == zch::Admission::kAll) {
    return words.size() == 1 ? absl::OkStatus() : wrong;
  }
  if (words.size() != 2) return wrong;
  const bool read = spec->admission == zch::Admission::kCount
                        ? Read(words[1], &spec->admission_count)
                        : Read(words[1], &spec->admission_probability);
  return read ? absl::OkStatus() : wrong;
}

}  // namespace

absl::StatusOr<std::optional<ZchSpec>> ZchFromFlags(const ZchFlags& flags) {
  if (!flags.zch) {
    const bool any = flags.capacity != 0 || flags.buckets != 0 || !flags.policy.empty() ||
                     !flags.admission.empty() || !flags.unseen.empty() ||
                     flags.reserved_lanes != 0 || flags.eviction_buffer_bytes != 0;
    if (!any) return std::optional<ZchSpec>();
    return absl::InvalidArgumentError(
        "--capacity, --buckets, --policy, --admission, --unseen, --reserved-lanes and "
        "--eviction-buffer are of ZCH tables: add --zch");
  }
  ZchSpec spec;
  if (flags.buckets != 0) spec.buckets = flags.buckets;
  spec.reserved_lanes = flags.reserved_lanes;
  spec.eviction_buffer_bytes = flags.eviction_buffer_bytes;
  EMBLA_RETURN_IF_ERROR(ReadPolicy(flags.policy, &spec));
  EMBLA_RETURN_IF_ERROR(ReadAdmission(flags.admission, &spec));
  if (!flags.unseen.empty()) {
    EMBLA_ASSIGN_OR_RETURN(spec.unseen, FromName<zch::Unseen>(flags.unseen));
  }
  return std::optional<ZchSpec>(spec);
}

}  // namespace embla::cli
