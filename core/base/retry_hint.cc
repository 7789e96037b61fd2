#include "core/base/retry_hint.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace embla {
namespace {

constexpr char kRetryAfterMs[] = "embla/retry_after_ms";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration wait) {
  const absl::Duration rounded = absl::Ceil(wait, absl::Milliseconds(1));
  const absl::Duration hint = std::clamp(rounded, absl::Milliseconds(1), absl::Hours(24));
  status.SetPayload(kRetryAfterMs, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(hint))));
  return status;
}

absl::Duration RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterMs);
  std::int64_t milliseconds = 0;
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &milliseconds)) {
    return absl::Milliseconds(milliseconds);
  }
  return absl::ZeroDuration();
}

}  // namespace embla
