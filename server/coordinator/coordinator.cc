#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/build_version.h"
#include "core/base/cluster_key.h"
#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/drained_nodes.h"
#include "server/coordinator/move_jobs.h"

namespace embla {
namespace {

CoordinatorOptions WithKey(CoordinatorOptions options) {
  if (options.key == nullptr) {
    options.key = std::make_shared<const ClusterKey>(ClusterKey::Generate());
  }
  return options;
}

// The first table with a slice on `node`, if any.
const TablePlan* FirstTableOn(const Plan& plan, NodeId node) {
  for (const TablePlan& table : plan.tables()) {
    if (HoldersOf(table).contains(node)) return &table;
  }
  return nullptr;
}

// Whether slices that were planned for `known` fit `reported`; bandwidths may differ.
bool HaveSameRoom(const std::vector<DeviceSpec>& known, const std::vector<DeviceSpec>& reported) {
  return std::ranges::equal(known, reported, [](const DeviceSpec& a, const DeviceSpec& b) {
    return a.kind == b.kind && a.memory_bytes == b.memory_bytes;
  });
}

absl::Status CheckProtocol(const NodeRegistration& node) {
  const NodeBuild& build = node.build;
  if (build.protocol_version == kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", node.name, " has protocol version ", build.protocol_version, " (build ",
                   build.version.empty() ? "unknown" : build.version.substr(0, 64),
                   "), this coordinator ", kProtocolVersion, " (build ", ToAbsl(BuildVersion()),
                   "): run both from one release; docs/runbook.md, Upgrades, has the order"));
}

}  // namespace

absl::Status CoordinatorOptions::Validate() const {
  if (new_cluster_id.empty()) return absl::InvalidArgumentError("new_cluster_id is empty");
  if (heartbeat_interval <= absl::ZeroDuration() || dead_after < 2 * heartbeat_interval) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heartbeat interval ", absl::FormatDuration(heartbeat_interval),
        " must be positive and at most half of dead_after ", absl::FormatDuration(dead_after)));
  }
  if (create_wait_default <= absl::ZeroDuration() || create_wait_max < create_wait_default) {
    return absl::InvalidArgumentError(
        "create_wait_default must be positive, create_wait_max not less");
  }
  if (session_lease <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("session_lease ", absl::FormatDuration(session_lease), " must be positive"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Open(StateStore& store,
                                                               const CoordinatorOptions& options,
                                                               absl::Time now) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  EMBLA_ASSIGN_OR_RETURN(LoadedState state, StateRecords::Load(store, options.new_cluster_id));
  EMBLA_ASSIGN_OR_RETURN(std::set<NodeId> drained, LoadDrained(store));
  EMBLA_ASSIGN_OR_RETURN(auto forgotten, LoadForgotten(store));
  EMBLA_ASSIGN_OR_RETURN(DirectoryRecords directories, DirectoryRecords::Load(store));
  CoordinatorOptions complete = options;
  if (complete.boot == 0) complete.boot = static_cast<std::uint32_t>(RandomId64() >> 32 | 1);
  EMBLA_ASSIGN_OR_RETURN(SessionRegistry sessions, SessionRegistry::Load(store, complete.boot));
  std::unique_ptr<Coordinator> coordinator(
      new Coordinator(store, complete, std::move(state), std::move(sessions), now));
  coordinator->drained_ = std::move(drained);
  coordinator->directories_ = std::move(directories);
  coordinator->forgotten_ = std::move(forgotten);
  EMBLA_ASSIGN_OR_RETURN(coordinator->ranks_, SessionRanks::Load(store));
  EMBLA_RETURN_IF_ERROR(coordinator->jobs_->Load(now));
  coordinator->FindPendingHolders();
  return coordinator;
}

Coordinator::Coordinator(StateStore& store, const CoordinatorOptions& options, LoadedState state,
                         SessionRegistry sessions, absl::Time now)
    : store_(store),
      options_(WithKey(options)),
      started_(now),
      records_(state.records),
      membership_(state.plan->nodes(), options.dead_after, now),
      plan_(std::move(state.plan)),
      jobs_(std::make_unique<MoveJobs>(store, static_cast<MoveCluster&>(*this))),
      sessions_(std::move(sessions)),
      leases_(options.session_lease, now),
      settler_(store, static_cast<MoveCluster&>(*this)),
      opened_generation_(records_.head().generation),
      opened_revision_(store.revision()),
      wait_for_nodes_until_(now + options.dead_after),
      opened_at_(plan_->version()) {
  CountAside();
}

Coordinator::~Coordinator() = default;

absl::StatusOr<NodeId> Coordinator::RegisterNode(const NodeRegistration& registration,
                                                 absl::Time now) {
  EMBLA_RETURN_IF_ERROR(registration.Validate());
  EMBLA_RETURN_IF_ERROR(CheckProtocol(registration));
  if (!registration.cluster_id.empty() && registration.cluster_id != plan_->cluster_id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", registration.name, " belongs to cluster ", registration.cluster_id.substr(0, 64),
        ", this is cluster ", plan_->cluster_id()));
  }
  EMBLA_RETURN_IF_ERROR(CheckNotForgotten(registration));
  Tick(now);  // A process that is dead by now must not keep its name from its successor.
  NodeSpec reported{.id = {},
                    .name = registration.name,
                    .address = registration.address,
                    .devices = registration.devices};
  EMBLA_RETURN_IF_ERROR(HearTestimony(registration));
  EMBLA_RETURN_IF_ERROR(AwaitTestimonies(registration, now));
  EMBLA_RETURN_IF_ERROR(CheckDirectory(registration));
  const bool was_known = plan_->FindNode(registration.name) != nullptr;
  if (const NodeSpec* const known = plan_->FindNode(registration.name)) {
    EMBLA_RETURN_IF_ERROR(
        membership_.CheckProcess(known->id, registration.boot_id, registration.address));
  }
  EMBLA_RETURN_IF_ERROR(HearOf(registration, now));
  if (const NodeSpec* const known = plan_->FindNode(registration.name)) {
    heard_.insert(known->id);
    EMBLA_RETURN_IF_ERROR(UpdateNode(*known, std::move(reported), now));
  } else {
    EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
    PlanEdit edit{.cause = absl::StrCat("node ", registration.name, " joined"), .at = now};
    edit.node = std::move(reported);
    EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  }
  const NodeSpec node = *plan_->FindNode(registration.name);
  heard_.insert(node.id);
  EMBLA_RETURN_IF_ERROR(TakeDirectory(node, registration, was_known));
  // This store may be older than what the node knows.
  EMBLA_RETURN_IF_ERROR(sessions_.Unite(registration.sessions_refused));
  EMBLA_RETURN_IF_ERROR(HearUnits(node.id, registration, now));
  membership_.Link(node, registration, now);
  held_.insert(node.id);
  CrashPoint("coordinator.registered");
  LogInfo("coordinator", "node registered name=", node.name, " id=", ToInt(node.id),
          " address=", node.address, " devices=", node.devices.size(),
          " version=", registration.build.version);
  const std::int64_t promised = membership_.PromisedBytes(registration.host_memory);
  if (promised > registration.host_memory.bytes) {
    LogWarning("coordinator", "nodes on one machine promise more memory than it has: state ",
               "--memory-per-device node=", node.name, " promised_bytes=", promised,
               " machine_bytes=", registration.host_memory.bytes);
  }
  return node.id;
}

absl::Status Coordinator::UpdateNode(const NodeSpec& known, NodeSpec reported, absl::Time now) {
  reported.id = known.id;
  if (reported == known) return absl::OkStatus();
  if (const TablePlan* const table = FirstTableOn(*plan_, known.id);
      table != nullptr && !HaveSameRoom(known.devices, reported.devices)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", known.name, " comes back with other devices (", reported.devices.size(),
        ", or of other kind or memory) than the ", known.devices.size(),
        " its slices were planned for, for instance those of table ", table->spec.name));
  }
  EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
  PlanEdit edit{.cause = absl::StrCat("node ", known.name, " changed"), .at = now};
  edit.node = std::move(reported);
  return CommitPlan(std::move(edit));
}

absl::Status Coordinator::Heartbeat(NodeId node, std::uint64_t boot_id, const HeartbeatInfo& info,
                                    absl::Time now) {
  if (forgotten_.contains(node)) {
    return absl::NotFoundError(absl::StrCat("node ", ToInt(node), " was forgotten"));
  }
  const NodeView* const before = membership_.Find(node);
  const bool was_live = before != nullptr && before->live();
  EMBLA_RETURN_IF_ERROR(membership_.Heartbeat(node, boot_id, info, now));
  directories_.Hear(node, info.plan_version, info.log_position);
  if (!was_live) LogInfo("coordinator", "node is live again name=", before->spec.name);
  SettlePending(now);
  SettleSessions();
  AdvanceStepsBy(info.steps, now);
  return LetServeIfItMay(node);
}

void Coordinator::NodeDisconnected(NodeId node, std::uint64_t boot_id, absl::Time now) {
  membership_.Unlink(node, boot_id);
  directories_.Write(store_, node);
  Tick(now);
}

void Coordinator::Tick(absl::Time now) {
  for (const NodeId node : membership_.Tick(now)) {
    ++nodes_died_;
    LogWarning("coordinator", "node is dead name=", membership_.Find(node)->spec.name,
               " silent_for=", absl::FormatDuration(options_.dead_after));
  }
  SettlePending(now);
  EndLeases(now);
  SettleSessions();
  PublishSessionNews();
  AdvanceAllSteps(now);
  settler_.Tick(now);
  if (jobs_->running() != nullptr && MayGiveNumbers(now).ok()) jobs_->Tick(now);
  directories_.WriteAtTimes(store_, now);
  SendTestimonies(now);
  BeginQueuedJob(now);
  SettleForgotten();
  ForgetDroppedUnits();
}

// One call may make several plans, for instance of what a node has and the store does not: a node
// that got one from the middle would free the tables that the next one brings. So the last counts.
std::vector<Effect> Coordinator::TakeEffects() {
  std::erase_if(effects_, [this](const Effect& effect) {
    const auto* const publish = std::get_if<PublishPlan>(&effect);
    return publish != nullptr && publish->plan != plan_;
  });
  for (SendOrders& orders : jobs_->TakeOrders()) effects_.emplace_back(std::move(orders));
  for (auto& [node, orders] : settler_.TakeOrders()) {
    effects_.emplace_back(SendOrders{node, std::move(orders)});
  }
  return std::exchange(effects_, {});
}

std::vector<NodeView> Coordinator::Nodes() const {
  std::vector<NodeView> views = membership_.Views();
  for (NodeView& view : views) {
    view.drained = drained_.contains(view.spec.id);
    view.keeps_rows = directories_.HasDirectory(view.spec.id);
  }
  return views;
}

ClusterView Coordinator::Status() const {
  return {.cluster_id = plan_->cluster_id(),
          .plan_version = plan_->version(),
          .nodes_live = membership_.live_count(),
          .nodes_total = static_cast<std::uint32_t>(plan_->nodes().size()),
          .nodes_died = nodes_died_,
          .tables = static_cast<std::uint32_t>(plan_->tables().size()) - tables_aside_,
          .sessions_opened = sessions_opened_,
          .sessions_closed = sessions_closed_,
          .sessions_expired = sessions_expired_,
          .sessions_open = leases_.size(),
          .rows_lost = rows_lost_,
          .started = started_,
          .generation = records_.head().generation,
          .tables_aside = tables_aside_};
}

void Coordinator::CountAside() {
  tables_aside_ =
      static_cast<std::uint32_t>(std::ranges::count(plan_->tables(), true, &TablePlan::aside));
}

absl::Status Coordinator::CommitPlan(PlanEdit edit) {
  const std::optional<NodeId> dropped = edit.drop_node;
  if (dropped) {
    edit.writes.push_back(DrainedWrite(*dropped, false));
    edit.writes.push_back(DirectoryRecords::ForgetWrite(*dropped));
  }
  EMBLA_ASSIGN_OR_RETURN(plan_, records_.Commit(store_, *plan_, std::move(edit)));
  CountAside();
  effects_.emplace_back(PublishPlan{plan_});
  if (dropped) {
    membership_.Forget(*dropped);
    directories_.Forget(*dropped);
    told_.erase(*dropped);
    drained_.erase(*dropped);
  }
  return absl::OkStatus();
}

}  // namespace embla
