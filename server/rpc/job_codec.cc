#include "server/rpc/job_codec.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {
namespace {

std::string NameOf(const Plan& plan, NodeId id) {
  const NodeSpec* const node = plan.FindNode(id);
  return node == nullptr ? absl::StrCat("node ", ToInt(id)) : node->name;
}

absl::StatusOr<JobGoal> GoalOf(const v1::StartJobRequest& message) {
  switch (message.goal_case()) {
    case v1::StartJobRequest::kReshard:
      return ReshardGoal{message.reshard().table(), message.reshard().shards()};
    case v1::StartJobRequest::kMove: {
      const v1::MoveUnits& move = message.move();
      return MoveGoal{.table = move.table(),
                      .granule_begin = move.granule_begin(),
                      .granule_end = move.granule_end(),
                      .node = move.node(),
                      .device = move.device()};
    }
    case v1::StartJobRequest::kDrain:
      return DrainGoal{message.drain().node()};
    case v1::StartJobRequest::kRebalance:
      return RebalanceGoal{};
    case v1::StartJobRequest::kUndrainNode:
      return UndrainGoal{message.undrain_node()};
    case v1::StartJobRequest::GOAL_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the job has no goal: set reshard, move, drain, rebalance or undrain_node");
}

// False: the plan does not have the run's units any more.
bool Describe(const MoveRun& run, const Plan& plan, v1::PlannedMove* message) {
  const TablePlan* const table = plan.FindTable(run.table);
  if (table == nullptr || HasCopies(*table)) return false;
  const std::uint32_t column = table->spec.ColumnGranuleBegin(run.column_granule);
  for (const Slice& slice : table->primary()) {
    if (slice.column_begin != column) continue;
    message->set_table(table->spec.name);
    message->set_row_begin(table->spec.RowGranuleBegin(run.granule_begin));
    message->set_row_end(table->spec.RowGranuleBegin(run.granule_end));
    message->set_column_begin(column);
    message->set_column_end(slice.column_end);
    message->set_from_node(NameOf(plan, run.from.node));
    message->set_from_device(run.from.index);
    message->set_to_node(NameOf(plan, run.to.node));
    message->set_to_device(run.to.index);
    message->set_bytes(run.bytes);
    return true;
  }
  return false;
}

// A copy that comes is one from the primary, one that goes has no target, and one that leads takes
// over from the primary.
bool Describe(const CopyChange& change, const Plan& plan, v1::PlannedMove* message) {
  const TablePlan* const table = plan.FindTable(change.table);
  if (table == nullptr) return false;
  const DeviceId primary = table->primary().front().device;
  const bool goes = change.kind == CopyChange::Kind::kRemove;
  const DeviceId from = goes ? change.device : primary;
  message->set_table(table->spec.name);
  message->set_row_end(table->spec.rows);
  message->set_column_end(table->spec.dim);
  message->set_from_node(NameOf(plan, from.node));
  message->set_from_device(from.index);
  message->set_to_node(goes ? std::string("-") : NameOf(plan, change.device.node));
  message->set_to_device(goes ? 0 : change.device.index);
  message->set_bytes(change.bytes);
  return true;
}

double Millis(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

}  // namespace

absl::StatusOr<JobRequest> FromMessage(const v1::StartJobRequest& message) {
  absl::StatusOr<JobGoal> goal = GoalOf(message);
  if (!goal.ok()) return goal.status();
  return JobRequest{.goal = *std::move(goal),
                    .bytes_per_second = message.bytes_per_second(),
                    .units_in_flight = message.units_in_flight(),
                    .dry_run = message.dry_run()};
}

absl::StatusOr<JobControl> FromMessage(v1::ControlJobRequest::Action action) {
  switch (action) {
    case v1::ControlJobRequest::ACTION_PAUSE:
      return JobControl::kPause;
    case v1::ControlJobRequest::ACTION_RESUME:
      return JobControl::kResume;
    case v1::ControlJobRequest::ACTION_CANCEL:
      return JobControl::kCancel;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("action ", static_cast<int>(action), " is not pause, resume or cancel"));
  }
}

v1::Job ToSummary(const JobView& view) {
  const MoveJob& job = view.job;
  v1::Job message;
  message.set_id(job.id);
  message.set_description(job.description);
  message.set_state(static_cast<v1::JobState>(job.state));
  message.set_error(job.error);
  message.set_waits_for(view.wait.what);
  message.set_awaited_node(view.wait.node);
  message.set_units_total(view.units_total);
  message.set_units_moved(job.units_moved);
  message.set_units_open(view.units_open);
  message.set_units_handed_over(view.units_handed_over);
  message.set_bytes_total(static_cast<std::uint64_t>(view.bytes_total));
  message.set_bytes_moved(job.bytes_moved);
  message.set_started_unix_ms(absl::ToUnixMillis(job.started));
  message.set_ended_unix_ms(absl::ToUnixMillis(job.ended));
  message.set_pause_p50_ms(Millis(job.pauses.p50));
  message.set_pause_p99_ms(Millis(job.pauses.p99));
  message.set_pause_max_ms(Millis(job.pauses.max));
  message.set_seconds_left(view.seconds_left);
  return message;
}

v1::Job ToMessage(const JobView& view, const Plan& plan) {
  v1::Job message = ToSummary(view);
  for (const CopyChange& change : view.job.copies) {
    v1::PlannedMove move;
    if (Describe(change, plan, &move)) message.mutable_moves()->Add(std::move(move));
  }
  for (const MoveRun& run : view.job.runs) {
    v1::PlannedMove move;
    if (Describe(run, plan, &move)) message.mutable_moves()->Add(std::move(move));
  }
  for (const DeviceRoom& room : view.rooms) {
    v1::DeviceRoom& described = *message.add_rooms();
    described.set_node(NameOf(plan, room.device.node));
    described.set_device(room.device.index);
    described.set_memory_bytes(room.memory_bytes);
    described.set_used_bytes(room.used_bytes);
    described.set_peak_bytes(room.peak_bytes);
  }
  return message;
}

}  // namespace embla
