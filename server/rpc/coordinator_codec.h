// Messages of CoordinatorService and AdminService <-> the coordinator's values.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/log.h"
#include "embla/v1/admin.pb.h"
#include "embla/v1/coordinator.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/membership.h"

namespace embla {

v1::Registration ToMessage(const NodeRegistration& registration);
// Errors: InvalidArgument (an unknown kind of device). The coordinator checks the rest.
absl::StatusOr<NodeRegistration> FromMessage(const v1::Registration& message);

v1::Heartbeat ToMessage(const HeartbeatInfo& info);
HeartbeatInfo FromMessage(const v1::Heartbeat& message);

v1::LogLevel ToMessage(LogLevel level);
// Nothing: none is said, or one of another build.
std::optional<LogLevel> FromMessage(v1::LogLevel message);

v1::ClosedSessions ToMessage(const SessionNews& news);
// InvalidArgument: ranges that are none.
absl::StatusOr<SessionNews> FromMessage(const v1::ClosedSessions& message);

v1::NodeStatus ToMessage(const NodeView& node);
v1::ClusterStatus ToMessage(const ClusterView& view);
// A table that is asked for; an empty placement is the default one. InvalidArgument.
absl::StatusOr<planner::TableToPlace> TableFromJson(std::string_view table_json,
                                                    std::string_view placement_json);
// CreateTable and PlanTable name a table alike.
template <typename Request>
absl::StatusOr<planner::TableToPlace> TableFromMessage(const Request& request) {
  return TableFromJson(request.table_json(), request.placement_json());
}
v1::TableReply ToMessage(const TablePlan& table, PlanVersion plan_version);
v1::PlanChange ToMessage(const PlanChange& change);
planner::ProblemDigest FromMessage(const v1::PlanInputs& message);

}  // namespace embla
