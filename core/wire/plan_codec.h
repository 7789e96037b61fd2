// Plans as messages (proto/embla/v1/plan.proto).
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/plan_delta.h"
#include "embla/v1/plan.pb.h"

namespace embla::wire {

v1::PlanDelta ToMessage(const PlanDelta& delta);
v1::PlanTable ToMessage(const TablePlan& table);

// Decodes a delta; whether it leads to a valid plan, Apply finds out. Errors: InvalidArgument (an
// enum's value that is unknown, a tiling that does not fit together).
absl::StatusOr<PlanDelta> FromMessage(const v1::PlanDelta& message);
absl::StatusOr<TablePlan> FromMessage(const v1::PlanTable& message);

// FromMessage, then Apply to `from`.
absl::StatusOr<PlanPtr> ApplyMessage(const v1::PlanDelta& message, const Plan& from);

}  // namespace embla::wire
