// Plans as messages: the JSON of docs/plan_format.md inside embla.v1.Plan.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "embla/v1/types.pb.h"

namespace embla::wire {

v1::Plan ToMessage(const Plan& plan);

// Errors: InvalidArgument (not a plan, not valid, or another version or cluster than stated).
absl::StatusOr<PlanPtr> FromMessage(const v1::Plan& message);

}  // namespace embla::wire
