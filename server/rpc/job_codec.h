// Jobs of AdminService <-> the coordinator's values.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "embla/v1/admin.pb.h"
#include "server/coordinator/move_job.h"

namespace embla {

// InvalidArgument: no goal, or a name that is too long.
absl::StatusOr<JobRequest> FromMessage(const v1::StartJobRequest& message);
absl::StatusOr<JobControl> FromMessage(v1::ControlJobRequest::Action action);

// Names and rows are those of `plan`; runs of tables that it does not have are left out.
v1::Job ToMessage(const JobView& view, const Plan& plan);
// The same without runs and devices.
v1::Job ToSummary(const JobView& view);

}  // namespace embla
