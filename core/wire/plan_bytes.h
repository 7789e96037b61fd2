// The step from one plan to another as bytes: the message PlanDelta, for records.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/plan/plan_delta.h"

namespace embla::wire {

std::string ToBytes(const PlanDelta& delta);

// Errors: InvalidArgument (not such a message, or one that wire::FromMessage refuses).
absl::StatusOr<PlanDelta> PlanDeltaFromBytes(std::span<const char> bytes);

}  // namespace embla::wire
