// How a node says that its FAILED_PRECONDITION is about the plan, by which the request came to the
// wrong node, and not about the step that a contribution is for: that is no better under a newer
// plan (docs/synchronous_steps.md).
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace embla {

// The end of the message.
inline constexpr std::string_view kRefreshThePlan = "; refresh the plan";

inline bool AsksForNewerPlan(const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  return absl::IsFailedPrecondition(status) && message.ends_with(kRefreshThePlan);
}

}  // namespace embla
