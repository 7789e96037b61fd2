// Tables: creation as a change that nodes must confirm, dropping, setting values.
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

absl::Status Coordinator::CheckNewTable(const TableSpec& spec) const {
  if (spec.id != TableId{}) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, " states the id ",
                                                   ToInt(spec.id), "; the coordinator gives it"));
  }
  EMBLA_RETURN_IF_ERROR(spec.Validate());
  const bool queued = std::any_of(queue_.begin(), queue_.end(), [&](const QueuedCreate& create) {
    return create.spec.name == spec.name;
  });
  if (!queued && plan_->FindTable(spec.name) == nullptr) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("there is already a table ", spec.name));
}

absl::StatusOr<ChangeId> Coordinator::StartCreateTable(const TableSpec& spec,
                                                       const PlacementRequest& request,
                                                       absl::Duration wait, absl::Time now) {
  QueuedCreate create{.id = {}, .spec = spec, .request = request, .deadline = {}};
  create.spec.SetDefaults();
  EMBLA_RETURN_IF_ERROR(CheckNewTable(create.spec));
  if (wait < absl::ZeroDuration()) return absl::InvalidArgumentError("the wait is negative");
  if (wait == absl::ZeroDuration()) wait = options_.create_wait_default;
  create.deadline =
      absl::FromUnixMillis(absl::ToUnixMillis(now + std::min(wait, options_.create_wait_max)));
  create.id = ChangeId{last_change_ + 1};
  if (!records_.pending() && MayGiveNumbers(now).ok()) {
    EMBLA_RETURN_IF_ERROR(BeginCreate(create, now));
  } else if (queue_.size() < options_.changes_queued_max) {
    queue_.push_back(create);
  } else {
    return absl::ResourceExhaustedError(
        absl::StrCat(queue_.size(), " tables are waiting to be created; try again later"));
  }
  last_change_ = ToInt(create.id);
  return create.id;
}

// As free as they are when the job that runs is over.
absl::StatusOr<std::vector<NodeSpec>> Coordinator::NodesForPlacement(
    const PlacementRequest& request) const {
  for (const std::string& name : request.nodes) {
    const NodeSpec* const node = plan_->FindNode(name);
    if (node == nullptr) continue;  // The planner says so.
    if (!IsLive(node->id)) {
      return absl::UnavailableError(
          absl::StrCat("node ", name, " at ", node->address, " is down; start it and try again"));
    }
    if (drained_.contains(node->id)) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", name, " is drained; undrain it first"));
    }
    if (const std::string stopped = membership_.Find(node->id)->stopped(); !stopped.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", name, " serves no new slices: ", stopped, "; restart it first"));
    }
  }
  std::vector<NodeSpec> live;
  std::string without;
  for (const NodeSpec& node : plan_->nodes()) {
    if (!IsLive(node.id) || drained_.contains(node.id)) continue;
    const std::string stopped = membership_.Find(node.id)->stopped();
    if (stopped.empty()) {
      live.push_back(node);
    } else {
      absl::StrAppend(&without, "; restart node ", node.name, ": ", stopped);
    }
  }
  if (live.empty()) {
    return absl::UnavailableError(absl::StrCat("no node is live",
                                               drained_.empty() ? "" : " and not drained",
                                               without.empty() ? "" : " with all its devices",
                                               ", of ", plan_->nodes().size(), " known", without));
  }
  for (const auto& [device, bytes] : jobs_->Incoming()) {
    for (NodeSpec& node : live) {
      if (node.id == device.node) node.devices[device.index].memory_bytes -= bytes;
    }
  }
  return live;
}

std::vector<std::string> Coordinator::LeftOut(const PlacementRequest& request) const {
  std::vector<std::string> left_out;
  for (const NodeSpec& node : plan_->nodes()) {
    const bool is_allowed =
        request.nodes.empty() || std::ranges::count(request.nodes, node.name) > 0;
    if (!is_allowed || drained_.contains(node.id)) continue;
    const std::string why = IsLive(node.id) ? membership_.Find(node.id)->stopped() : "down";
    if (!why.empty()) left_out.push_back(absl::StrCat("node ", node.name, ": ", why));
  }
  return left_out;
}

absl::StatusOr<TablePlan> Coordinator::Place(const TableSpec& spec,
                                             const PlacementRequest& request) const {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<NodeSpec> nodes, NodesForPlacement(request));
  return planner::PlaceOrChoose(spec, request, nodes, plan_->tables());
}

absl::Status Coordinator::BeginCreate(const QueuedCreate& create, absl::Time now) {
  PlanEdit edit{.cause = absl::StrCat("table ", create.spec.name, " created"), .at = now};
  EMBLA_ASSIGN_OR_RETURN(edit.table, Place(create.spec, create.request));
  edit.pending_until = create.deadline;
  EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  pending_change_ = create.id;
  pending_left_out_ = LeftOut(create.request);
  LogInfo("coordinator", "creating table name=", create.spec.name,
          " sharding=", ToAbsl(NameOf(plan_->FindTable(create.spec.name)->sharding)),
          " plan_version=", ToInt(plan_->version()));
  return absl::OkStatus();
}

std::optional<absl::Status> Coordinator::JudgePending(absl::Time now) const {
  const PendingCreate& pending = *records_.pending();
  const TablePlan& table = *plan_->FindTable(pending.table);
  std::vector<std::string> waiting_for;
  for (const NodeId id : HoldersOf(table)) {
    const NodeView& node = *membership_.Find(id);
    if (node.plan_version >= pending.version) continue;
    if (node.failed_plan_version >= pending.version) {
      const absl::StatusCode code =
          node.failure.ok() ? absl::StatusCode::kUnavailable : node.failure.code();
      return absl::Status(code, absl::StrCat("node ", node.spec.name, " could not install table ",
                                             table.spec.name, ": ", node.failure.message()));
    }
    if (node.state == NodeState::kDead) {
      return absl::UnavailableError(absl::StrCat("node ", node.spec.name, " at ", node.spec.address,
                                                 " went down before it had ", "installed table ",
                                                 table.spec.name));
    }
    waiting_for.push_back(node.spec.name);
  }
  if (waiting_for.empty()) return absl::OkStatus();
  const bool is_old = pending.version <= opened_at_;
  if (now < (is_old ? std::max(pending.deadline, pending_grace_) : pending.deadline)) {
    return std::nullopt;
  }
  return absl::DeadlineExceededError(absl::StrCat("node ", absl::StrJoin(waiting_for, ", node "),
                                                  " did not install table ", table.spec.name,
                                                  " in time; nothing was created"));
}

void Coordinator::SettlePending(absl::Time now) {
  if (records_.pending() || !queue_.empty()) {
    if (!MayGiveNumbers(now).ok()) return;
  }
  if (records_.pending()) {
    const std::optional<absl::Status> verdict = JudgePending(now);
    if (!verdict) return;
    const TablePlan table = *plan_->FindTable(records_.pending()->table);
    absl::Status recorded;
    if (verdict->ok()) {
      recorded = records_.ClearPending(store_);
    } else {
      PlanEdit edit{.cause = absl::StrCat("creation of table ", table.spec.name, " given up"),
                    .at = now};
      edit.drop_table = table.spec.id;
      edit.pending_done = true;
      recorded = CommitPlan(std::move(edit));
    }
    LogInfo("coordinator", "creation of table ended name=", table.spec.name,
            " outcome=", verdict->ToString());
    Complete(std::exchange(pending_change_, ChangeId{}), recorded.ok() ? *verdict : recorded,
             table);
    if (!recorded.ok()) {  // The store cannot write: tried again at the next event.
      LogError("coordinator", "cannot record the creation's end: ", recorded.message());
      return;
    }
  }
  StartQueued(now);
}

void Coordinator::StartQueued(absl::Time now) {
  while (!queue_.empty() && !records_.pending()) {
    const QueuedCreate create = std::move(queue_.front());
    queue_.pop_front();
    absl::Status status = absl::DeadlineExceededError(absl::StrCat(
        "table ", create.spec.name, " waited too long for others; nothing was created"));
    if (now < create.deadline) status = BeginCreate(create, now);
    if (!status.ok()) Complete(create.id, status, {});
  }
}

absl::StatusOr<ChangeProgress> Coordinator::ChangeState(ChangeId change) const {
  ChangeProgress progress;
  if (change != ChangeId{} && change == pending_change_ && records_.pending()) {
    const PendingCreate& pending = *records_.pending();
    progress.plan_version = pending.version;
    for (const NodeId id : HoldersOf(*plan_->FindTable(pending.table))) {
      const NodeView& node = *membership_.Find(id);
      if (node.plan_version < pending.version) progress.waiting_for.push_back(node.spec.name);
    }
    return progress;
  }
  progress.queued = std::any_of(queue_.begin(), queue_.end(),
                                [&](const QueuedCreate& create) { return create.id == change; });
  if (progress.queued) return progress;
  return absl::NotFoundError(absl::StrCat("change ", ToInt(change), " is not running"));
}

bool Coordinator::IsPending(const TablePlan& table) const {
  return records_.pending() && records_.pending()->table == table.spec.id;
}

absl::StatusOr<PlanVersion> Coordinator::DropTable(std::string_view name, absl::Time now) {
  EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
  const TablePlan* const table = plan_->FindTable(name);
  if (table == nullptr) return NoSuchTable(name);
  if (IsPending(*table)) return BeingCreated(*table);
  EMBLA_RETURN_IF_ERROR(CheckNotMoving(*table));
  PlanEdit edit{.cause = absl::StrCat("table ", table->spec.name, " dropped"), .at = now};
  edit.drop_table = table->spec.id;
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
    edit.table = changed;
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
    EMBLA_ASSIGN_OR_RETURN(question.nodes, NodesForPlacement(request));
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
