#include "server/shard/contribution_task.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/shard/session_gate.h"
#include "server/shard/step_task.h"
#include "server/table/finite_check.h"
#include "server/table/part_check.h"
#include "server/table/update_share.h"

namespace embla {

absl::StatusOr<std::unique_ptr<ContributionTask>> ContributionTask::Make(const NodeContext& node,
                                                                         NodeTablesPtr tables,
                                                                         UpdateBatch batch,
                                                                         absl::Time deadline) {
  std::unique_ptr<ContributionTask> task(
      new ContributionTask(node, std::move(tables), std::move(batch), deadline));
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

absl::Status ContributionTask::Plan() {
  const UpdateBatch& batch = batch_;
  EMBLA_RETURN_IF_ERROR(CheckUpdateId(batch));
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table,
                         tables_->FindServed(batch.claim->table, batch.plan_version));
  const auto steps = tables_->steps.find(ToInt(batch.claim->table));
  if (steps == tables_->steps.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table->spec.name, " has no synchronous steps: send an update without a claim"));
  }
  EMBLA_RETURN_IF_ERROR(CheckDurability(table->spec, node_.journal));
  steps_ = steps->second;
  shard_ = table->shard();
  durability_ = table->spec.durability;
  std::vector<const UpdatePart*> parts;
  for (const UpdatePart& part : batch.parts) {
    EMBLA_RETURN_IF_ERROR(CheckPart(part, batch.wire_dtype));
    EMBLA_RETURN_IF_ERROR(shard_->CheckColumns({part.column_begin, part.column_end}));
    parts.push_back(&part);
  }
  EMBLA_RETURN_IF_ERROR(CheckPartsFit(*shard_, table->spec.optimizer, parts));
  devices_ = DeviceSet::Of(shard_->lead_device());
  return absl::OkStatus();
}

absl::Status ContributionTask::Check(std::uint32_t device) const {
  const UpdateBatch& batch = batch_;
  EMBLA_RETURN_IF_ERROR(node_.sessions->Check(batch.session));
  const TableSpec& spec = shard_->spec(device);
  for (const UpdatePart& part : batch.parts) {
    if (spec.nan_policy == NanPolicy::kReject) {
      EMBLA_RETURN_IF_ERROR(
          Annotate(CheckFinite(batch, part, {0, part.gradient_rows()}, this->device(device).pool),
                   "table " + spec.name));
    }
    if (spec.bounds != BoundsMode::kError) continue;
    for (const RowId id : part.ids) {
      if (!shard_->InTable(id)) return shard_->OutOfRange(id);
    }
  }
  if (!shard_->id_rows().hashed()) return absl::OkStatus();
  return Annotate(shard_->step_bound().Check(batch.step, node_.options.clock->Now()),
                  "table " + spec.name);
}

void ContributionTask::Run(std::uint32_t device) {
  if (!Begin()) return;
  const absl::Status checked = Check(device);
  if (!checked.ok()) return SetError(device, checked);
  replies_ = steps_->Take(*shard_, std::move(batch_), *tables_, std::move(done_));
  if (node_.journal == nullptr || std::ranges::none_of(replies_, IsRepeated)) return;
  const absl::Status appended =
      AppendToJournal(DecidedBefore(), node_.journal->LevelOf(durability_));
  for (TableSteps::Reply& reply : replies_) {
    if (IsRepeated(reply) && !appended.ok()) reply.result = appended;
  }
}

void ContributionTask::Finish() {
  const absl::Status status = Outcome();
  if (!status.ok()) return done_(status);
  if (ticket() == nullptr) {
    TableSteps::Send(std::move(replies_));
  } else {
    ticket()->WhenReached([replies = std::make_shared<TableSteps::Replies>(std::move(replies_))](
                              const absl::Status& written) {
      for (TableSteps::Reply& reply : *replies) {
        if (IsRepeated(reply) && !written.ok()) reply.result = written;
      }
      TableSteps::Send(std::move(*replies));
    });
  }
  SubmitNextStep(node_, shard_->id());
}

void SubmitNextStep(const NodeContext& node, TableId table) {
  const NodeTablesPtr tables = (*node.tables)();
  const auto steps = tables->steps.find(ToInt(table));
  if (steps == tables->steps.end()) return;
  while (TableSteps::StepPtr step = steps->second->Next()) {
    absl::StatusOr<std::unique_ptr<StepTask>> task = StepTask::Make(node, tables, step);
    if (task.ok()) {
      const DeviceSet devices = (*task)->devices();
      return node.executors->SubmitFollowUp(*std::move(task), devices);
    }
    TableSteps::Send(steps->second->NotMade(*step, task.status(), *tables));
    if (absl::IsAborted(task.status())) return;
  }
}

}  // namespace embla
