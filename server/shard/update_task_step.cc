// An update that is a synchronous step: what it does otherwise (docs/synchronous_steps.md).
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/shard/contribution_task.h"
#include "server/shard/update_task.h"

namespace embla {

absl::StatusOr<std::unique_ptr<UpdateTask>> UpdateTask::MakeStep(const NodeContext& node,
                                                                 NodeTablesPtr tables,
                                                                 TableSteps::StepPtr step) {
  std::unique_ptr<UpdateTask> task(
      new UpdateTask(node, std::move(tables), step->update, std::nullopt, absl::InfiniteFuture()));
  task->step_ = std::move(step);
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

// Also without a row the units step.
absl::Status UpdateTask::PlanStep() {
  const TableId id = update_->batch.claim->table;
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table, tables_->Find(id, PlanVersion{}));
  const auto steps = tables_->steps.find(ToInt(id));
  if (steps == tables_->steps.end()) {
    return absl::DataLossError(
        absl::StrCat("table ", table->spec.name, " has no synchronous steps"));
  }
  steps_ = steps->second.get();
  WorkOf(*table, 0);
  return absl::OkStatus();
}

absl::Status UpdateTask::LeadStep(TableWork& work) {
  const UpdateBatch& batch = update_->batch;
  TableSteps::Send(steps_->LookAt(&work.shard(), *tables_));
  const absl::Status changed =
      absl::AbortedError("units, or the ranks of the step, have changed meanwhile");
  if (!steps_->IsStill(*step_)) return changed;
  UpdateUnits& units = work.units.emplace();
  EMBLA_RETURN_IF_ERROR(units.Decide(work.shard(), work.parts, batch, work.bounds));
  work.expected = units.present();
  if (units.leaves_something()) {
    return absl::UnavailableError(absl::StrCat("table ", work.shard().name(), ": step ", batch.step,
                                               " cannot be made now, send again"));
  }
  if (!units.has_rest()) return absl::OkStatus();
  for (const UpdateName& name : batch.contributors) {
    EMBLA_RETURN_IF_ERROR(work.shard()
                              .replay_windows()
                              .IsApplied(name.session, name.seq, name.first_incomplete, now_)
                              .status());
  }
  return absl::OkStatus();
}

void UpdateTask::RecordRest(TableShard& shard) const {
  const UpdateBatch& batch = update_->batch;
  if (!batch.is_step) return shard.replay_windows().Record(batch.session, batch.seq);
  std::vector<UpdateName> names = batch.contributors;
  names.push_back({batch.session, batch.seq, batch.first_incomplete});
  for (const UpdateName& name : names) {
    const absl::StatusOr<bool> applied =
        shard.replay_windows().IsApplied(name.session, name.seq, name.first_incomplete, now_);
    // A sender may have given the number to another update meanwhile.
    if (applied.ok() && !*applied) shard.replay_windows().Record(name.session, name.seq);
  }
}

// The next step does not wait for this one's record, nor for those who are told.
void UpdateTask::AnswerContributors(const absl::Status& status) {
  const TableId table = update_->batch.claim->table;
  if (!status.ok()) {
    // Rows may have changed devices since the task was made: that is nothing that senders know of.
    const absl::Status told =
        absl::IsFailedPrecondition(status) ? absl::UnavailableError(status.message()) : status;
    TableSteps::Send(steps_->NotMade(*step_, told, *tables_));
    return SubmitNextStep(node_, table);
  }
  steps_->Made();
  SubmitNextStep(node_, table);
  if (ticket_ == nullptr) return TableSteps::Send(std::move(answered_));
  ticket_->WhenReached([answered = std::make_shared<TableSteps::Replies>(std::move(answered_))](
                           const absl::Status& written) {
    for (TableSteps::Reply& reply : *answered) {
      if (!written.ok()) reply.result = written;
    }
    TableSteps::Send(std::move(*answered));
  });
}

}  // namespace embla
