// Jobs: what an operator asks for becomes moves, and moves become plans.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/drained_nodes.h"
#include "server/coordinator/move_jobs.h"
#include "server/coordinator/move_plan.h"
#include "server/coordinator/unit_records.h"

namespace embla {
namespace {

constexpr std::size_t kForgottenPerTick = 100;  // Records of units, one commit.

absl::StatusOr<NodeId> FindNode(const Plan& plan, const std::string& name) {
  if (const NodeSpec* const node = plan.FindNode(name)) return node->id;
  return absl::NotFoundError(absl::StrCat("there is no node \"", name.substr(0, 128), "\""));
}

struct GoalPlanner {
  const MoveScope& scope;

  absl::StatusOr<MovePlan> operator()(const ReshardGoal& goal) const {
    return PlanReshard(scope, goal.table, goal.shards);
  }
  absl::StatusOr<MovePlan> operator()(const MoveGoal& goal) const {
    EMBLA_ASSIGN_OR_RETURN(const NodeId node, FindNode(scope.plan, goal.node));
    return PlanMove(scope, goal.table, goal.granule_begin, goal.granule_end, {node, goal.device});
  }
  absl::StatusOr<MovePlan> operator()(const DrainGoal& goal) const {
    EMBLA_ASSIGN_OR_RETURN(const NodeId node, FindNode(scope.plan, goal.node));
    return PlanDrain(scope, node);
  }
  absl::StatusOr<MovePlan> operator()(const UndrainGoal&) const { return MovePlan(); }
  absl::StatusOr<MovePlan> operator()(const RebalanceGoal&) const { return PlanRebalance(scope); }
  absl::StatusOr<MovePlan> operator()(const ForgetGoal& goal) const {
    return PlanForget(scope, NodeId{goal.id}, goal.lose_rows);
  }
};

// Whether a goal that cannot be planned now may be planned later.
bool MayPassLater(const absl::Status& status) {
  return !absl::IsNotFound(status) && !absl::IsInvalidArgument(status);
}

absl::Status CheckRequest(const JobRequest& request) {
  if (request.units_in_flight <= kUnitsInFlightMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("units_in_flight is ", request.units_in_flight,
                                                 ", at most ", kUnitsInFlightMax));
}

}  // namespace

absl::StatusOr<JobView> Coordinator::StartJob(const JobRequest& request, absl::Time now) {
  EMBLA_RETURN_IF_ERROR(CheckRequest(request));
  if (const auto* const undrain = std::get_if<UndrainGoal>(&request.goal)) {
    return Undrain(undrain->node, request.dry_run);
  }
  if (!request.dry_run) EMBLA_RETURN_IF_ERROR(MayGiveNumbers(now));
  const MoveScope scope = Scope();
  absl::StatusOr<MovePlan> moves = std::visit(GoalPlanner{scope}, request.goal);
  const bool is_queued = !request.dry_run && (records_.pending() || !jobs_->is_idle());
  if (!moves.ok() && !(is_queued && MayPassLater(moves.status()))) return moves.status();
  MoveJob job{.description = DescriptionOf(request.goal),
              .error = "",
              .bytes_per_second = request.bytes_per_second,
              .units_in_flight = request.units_in_flight,
              .runs = {},
              .pauses = {}};
  if (!is_queued) {
    job.runs = std::move(moves->runs);
    job.copies = std::move(moves->copies);
  }
  if (request.dry_run) {
    const MovePlan planned{.runs = job.runs, .rooms = {}, .copies = job.copies};
    return JobView{.job = std::move(job),
                   .units_total = planned.units(),
                   .bytes_total = planned.bytes(),
                   .rooms = std::move(moves->rooms)};
  }
  std::vector<StateWrite> writes;
  const auto* const drain = std::get_if<DrainGoal>(&request.goal);
  const NodeId drained = drain == nullptr ? NodeId{} : plan_->FindNode(drain->node)->id;
  if (drain != nullptr) writes.push_back(DrainedWrite(drained, true));
  if (is_queued) job.goal = request.goal;
  absl::StatusOr<JobView> view = is_queued ? jobs_->Enqueue(std::move(job), std::move(writes), now)
                                           : jobs_->Start(std::move(job), std::move(writes), now);
  if (view.ok() && drain != nullptr) drained_.insert(drained);
  return view;
}

void Coordinator::BeginQueuedJob(absl::Time now) {
  const MoveJob* const next = jobs_->NextQueued();
  if (next == nullptr || records_.pending() || !MayGiveNumbers(now).ok()) return;
  const MoveScope scope = Scope();
  const JobGoal goal = *next->goal;
  const absl::StatusOr<MovePlan> moves = std::visit(GoalPlanner{scope}, goal);
  const auto* const forget = std::get_if<ForgetGoal>(&goal);
  std::vector<LostRows> lost;
  if (forget != nullptr && moves.ok()) lost = LostWith(*plan_, NodeId{forget->id});
  const absl::Status begun = jobs_->BeginQueued(next->id, moves, now);
  if (!begun.ok()) {
    LogWarning("coordinator", "cannot begin a queued job, tried again: ", Message(begun));
    return;
  }
  for (const LostRows& rows : lost) {
    LogError("coordinator", "rows are lost and begin at initial values table=", rows.table,
             " node=", forget->node, " rows=", rows.rows, " units=", rows.units);
    rows_lost_ += rows.rows;
  }
}

absl::StatusOr<JobView> Coordinator::Undrain(const std::string& name, bool dry_run) {
  EMBLA_ASSIGN_OR_RETURN(const NodeId node, FindNode(*plan_, name));
  if (!dry_run && drained_.contains(node)) {
    const StateWrite writes[] = {DrainedWrite(node, false)};
    EMBLA_RETURN_IF_ERROR(store_.Commit({}, writes).status());
    drained_.erase(node);
    LogInfo("coordinator", "node is not drained any more name=", name);
  }
  JobView view;
  view.job.description = absl::StrCat("undrain node ", name);
  view.job.state = JobState::kDone;
  view.seconds_left = 0;
  return view;
}

absl::StatusOr<JobView> Coordinator::ControlJob(std::uint64_t id, JobControl control,
                                                absl::Time now) {
  return jobs_->Control(id, control, now);
}

absl::StatusOr<JobView> Coordinator::GetJob(std::uint64_t id, absl::Time now) const {
  return jobs_->Get(id, now);
}

JobCounts Coordinator::CountJobs(absl::Time now) const { return jobs_->Counts(now); }
std::vector<JobView> Coordinator::ListJobs(absl::Time now) const { return jobs_->List(now); }

std::vector<JobView> Coordinator::NewestJobs(std::size_t count, absl::Time now) const {
  return jobs_->Newest(count, now);
}

bool Coordinator::wants_tick() const { return jobs_->wants_tick() || sessions_.has_news(); }

void Coordinator::OnMoveReports(NodeId node, std::span<const UnitReport> reports, absl::Time now) {
  if (IsForgotten(node)) return;
  for (const UnitReport& report : reports) {
    const absl::Status taken = settler_.OnReport(node, report, now);
    if (!taken.ok()) LogWarning("coordinator", "cannot record a move: ", Message(taken));
  }
  if (has_skipped_ || HasHeardAll()) jobs_->OnReports(node, reports, now);
}

MoveScope Coordinator::Scope() const {
  MoveScope scope{.plan = *plan_, .live = {}, .drained = drained_};
  for (const auto& [id, name] : forgotten_) scope.drained.insert(id);
  for (const NodeSpec& node : plan_->nodes()) {
    if (IsLive(node.id)) scope.live.insert(node.id);
  }
  return scope;
}

bool Coordinator::IsLive(NodeId node) const {
  const NodeView* const view = membership_.Find(node);
  return view != nullptr && view->live();
}

absl::StatusOr<Revision> Coordinator::PutPlan(PlanEdit edit) {
  EMBLA_RETURN_IF_ERROR(CommitPlan(std::move(edit)));
  return records_.head_revision();
}

absl::Status Coordinator::CheckNotMoving(const TablePlan& table) const {
  const MoveJob* const job = jobs_->running();
  if (job == nullptr) return absl::OkStatus();
  const auto is_of_table = [&table](const auto& part) { return part.table == table.spec.id; };
  const bool moves =
      std::ranges::any_of(job->runs, is_of_table) || std::ranges::any_of(job->copies, is_of_table);
  if (!moves) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job->id, " moves table ", table.spec.name, "; cancel it first"));
}

absl::StatusOr<std::vector<std::pair<UnitId, UnitRecord>>> Coordinator::ListUnits(
    std::string_view table) const {
  if (const TablePlan* const plan = plan_->FindTable(table)) {
    return embla::ListUnits(store_, plan->spec.id);
  }
  return NoSuchTable(table);
}

void Coordinator::ForgetDroppedUnits() {
  if (!has_dropped_units_) return;
  const absl::StatusOr<std::vector<StateEntry>> entries = store_.List("units/");
  if (!entries.ok()) return;
  std::set<std::string> kept;
  for (const TablePlan& table : plan_->tables()) kept.insert(UnitPrefix(table.spec.id));
  const std::size_t prefix = UnitPrefix(TableId{}).size();
  std::vector<StateWrite> writes;
  for (const StateEntry& entry : *entries) {
    if (writes.size() == kForgottenPerTick) break;
    if (!kept.contains(entry.key.substr(0, prefix))) writes.push_back({entry.key, std::nullopt});
  }
  has_dropped_units_ = !writes.empty();
  if (writes.empty()) return;
  if (const auto done = store_.Commit({}, writes); !done.ok()) {
    LogWarning("coordinator",
               "cannot forget the units of dropped tables: ", Message(done.status()));
  }
}

}  // namespace embla
