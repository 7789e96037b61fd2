// Tables that are there: dropping them, setting values; where a new one would lie.
#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/plan/table_options.h"
#include "core/planner/cluster/auto_placement.h"
#include "server/coordinator/move_jobs.h"

namespace embla {
namespace {

constexpr std::uint32_t kStatedNodesMax = 4096;
constexpr std::uint32_t kStatedDevicesMax = 65536;

absl::Status BeingCreated(const TablePlan& table) {
  return absl::FailedPreconditionError(
      absl::StrCat("table ", table.spec.name, " is still being created; try again"));
}

absl::StatusOr<std::vector<NodeSpec>> StatedNodes(const StatedTopology& topology) {
  const std::uint64_t devices = std::uint64_t{topology.nodes} * topology.devices_per_node;
  if (topology.nodes > kStatedNodesMax || devices == 0 || devices > kStatedDevicesMax ||
      topology.device_memory_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stated topology of ", topology.nodes, " nodes x ", topology.devices_per_node,
        " devices of ", topology.device_memory_bytes, " bytes; allowed are up to ", kStatedNodesMax,
        " nodes and 1 to ", kStatedDevicesMax, " devices with memory"));
  }
  std::vector<NodeSpec> nodes;
  for (std::uint32_t i = 0; i < topology.nodes; ++i) {
    nodes.push_back({.id = NodeId{i + 1},
                     .name = absl::StrCat("n", i),
                     .address = "stated:1",
                     .devices = std::vector<DeviceSpec>(
                         topology.devices_per_node,
                         DeviceSpec{DeviceKind::kCpu, topology.device_memory_bytes})});
  }
  return nodes;
}

}  // namespace

absl::StatusOr<PlanVersion> Coordinator::DropTable(std::string_view name, absl::Time now) {
  EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
  const TablePlan* const table = plan_->FindTable(name);
  if (table == nullptr) return NoSuchTable(name);
  if (IsPending(*table)) return BeingCreated(*table);
  EMBLA_RETURN_IF_ERROR(CheckNotMoving(*table));
  PlanEdit edit{.cause = absl::StrCat("table ", table->spec.name, " dropped"), .at = now};
  edit.drop_tables = {table->spec.id};
  EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  has_dropped_units_ = true;
  LogInfo("coordinator", "table dropped name=", ToAbsl(name),
          " plan_version=", ToInt(plan_->version()));
  return plan_->version();
}

absl::StatusOr<TableChange> Coordinator::SetTable(std::string_view name,
                                                  const std::map<std::string, std::string>& values,
                                                  absl::Time now) {
  EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
  const TablePlan* const table = plan_->FindTable(name);
  if (table == nullptr) return NoSuchTable(name);
  if (IsPending(*table)) return BeingCreated(*table);
  TablePlan changed = *table;
  EMBLA_RETURN_IF_ERROR(SetTableOptions(values, &changed.spec));
  EMBLA_RETURN_IF_ERROR(changed.Validate());
  if (changed != *table) {
    PlanEdit edit{.cause = absl::StrCat("table ", changed.spec.name, " set"), .at = now};
    edit.tables = {changed};
    EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
    LogInfo("coordinator", "table changed name=", ToAbsl(name),
            " plan_version=", ToInt(plan_->version()));
  }
  return TableChange{std::move(changed), plan_->version()};
}

absl::StatusOr<PlacementQuestion> Coordinator::AskPlacement(const TableSpec& spec,
                                                            const PlacementRequest& request,
                                                            const StatedTopology& topology) const {
  PlacementQuestion question{.spec = spec, .request = request, .nodes = {}, .plan = nullptr};
  if (topology.nodes == 0) {
    EMBLA_RETURN_IF_ERROR(CheckNamedNodes(request));
    EMBLA_ASSIGN_OR_RETURN(question.nodes, NodesForPlacement());
    question.plan = plan_;
  } else {
    EMBLA_ASSIGN_OR_RETURN(question.nodes, StatedNodes(topology));
  }
  return question;
}

absl::StatusOr<TablePlan> PlanTable(const PlacementQuestion& question, const GivenUp& given_up) {
  const TableList none;
  return planner::PlaceOrChoose(question.spec, question.request, question.nodes,
                                question.plan == nullptr ? none : question.plan->tables(),
                                given_up);
}

}  // namespace embla
