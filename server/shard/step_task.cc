#include "server/shard/step_task.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/shard/contribution_task.h"

namespace embla {

absl::StatusOr<std::unique_ptr<StepTask>> StepTask::Make(const NodeContext& node,
                                                         NodeTablesPtr tables,
                                                         TableSteps::StepPtr step) {
  std::unique_ptr<StepTask> task(new StepTask(node, std::move(tables), std::move(step)));
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

absl::StatusOr<const NodeTable*> StepTask::FindTable(const UpdatePart& part) const {
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table, tables_->Find(part.table, batch().plan_version));
  EMBLA_RETURN_IF_ERROR(CheckLeads(*table));
  return table;
}

absl::Status StepTask::Decide(TableWork& work) {
  TableSteps::Send(steps_->LookAt(work.shard, *tables_));
  const absl::Status changed =
      absl::AbortedError("units, or the ranks of the step, have changed meanwhile");
  if (!steps_->IsStill(*step_)) return changed;
  UpdateUnits& units = work.units.emplace();
  EMBLA_RETURN_IF_ERROR(units.Decide(*work.shard, work.parts, batch(), work.bounds));
  work.expected = units.present();
  if (units.leaves_something()) {
    return absl::UnavailableError(absl::StrCat("table ", work.shard->name(), ": step ",
                                               batch().step, " cannot be made now, send again"));
  }
  if (!units.has_rest()) return absl::OkStatus();
  for (const UpdateName& name : batch().contributors) {
    EMBLA_RETURN_IF_ERROR(
        work.shard->rest().IsApplied(name.session, name.seq, name.first_incomplete).status());
  }
  return absl::OkStatus();
}

void StepTask::Record(TableWork& work, std::uint32_t) {
  if (work.units.has_value()) work.units->Record(batch());
  if (!work.units.has_value() || work.units->applies_rest()) RecordRest(*work.shard);
  steps_->NoteMade(batch().step);
  answered_ = steps_->Commit(*step_, *tables_);
}

// The next step does not wait for this one's record, nor for those who are told.
void StepTask::Finish() {
  const absl::Status status = Outcome();
  const TableId table = batch().claim->table;
  if (!status.ok()) {
    // Rows may have changed devices since the task was made: that is nothing that senders know of.
    const absl::Status told =
        absl::IsFailedPrecondition(status) ? absl::UnavailableError(status.message()) : status;
    TableSteps::Send(steps_->NotMade(*step_, told, *tables_));
    return SubmitNextStep(node_, table);
  }
  steps_->Made();
  SubmitNextStep(node_, table);
  if (ticket() == nullptr) return TableSteps::Send(std::move(answered_));
  ticket()->WhenReached([answered = std::make_shared<TableSteps::Replies>(std::move(answered_))](
                            const absl::Status& written) {
    for (TableSteps::Reply& reply : *answered) {
      if (!written.ok()) reply.result = written;
    }
    TableSteps::Send(std::move(*answered));
  });
}

}  // namespace embla
