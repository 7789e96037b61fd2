#include "server/shard/trainer_update.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/shard/refused_units.h"
#include "server/shard/session_gate.h"
#include "server/shard/sync_task.h"

namespace embla {
namespace {

// A hand-over takes a few round trips and a sync of the log.
constexpr std::uint32_t kRetryAfterMs = 5;

RefusedUnit::Reason ReasonOf(PartStatus status) {
  switch (status) {
    case PartStatus::kMoved:
      return RefusedUnit::Reason::kMoved;
    case PartStatus::kEpochAhead:
      return RefusedUnit::Reason::kEpochAhead;
    case PartStatus::kSeqTooNew:
      return RefusedUnit::Reason::kSeqTooNew;
    case PartStatus::kFrozen:
    case PartStatus::kApplied:
    case PartStatus::kDuplicate:
      break;
  }
  return RefusedUnit::Reason::kFrozen;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainerUpdate>> TrainerUpdate::Make(const NodeContext& node,
                                                                   NodeTablesPtr tables,
                                                                   UpdateBatch batch,
                                                                   absl::Time deadline) {
  std::unique_ptr<TrainerUpdate> task(new TrainerUpdate(node, std::move(tables), std::move(batch),
                                                        deadline, node.options.clock->Now()));
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

bool TrainerUpdate::replicates() const {
  return std::any_of(work_.begin(), work_.end(),
                     [](const TableWork& work) { return !work.table->replicas.empty(); });
}

absl::StatusOr<const NodeTable*> TrainerUpdate::FindTable(const UpdatePart& part) const {
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table,
                         tables_->FindServed(part.table, batch().plan_version));
  EMBLA_RETURN_IF_ERROR(CheckLeads(*table));
  EMBLA_RETURN_IF_ERROR(CheckDurability(table->spec, node_.journal));
  if (!table->spec.sync.has_value() || part.is_images()) return table;
  return absl::InvalidArgumentError(
      absl::StrCat("table ", table->spec.name,
                   " has synchronous steps: an update of it is a rank's contribution to one, "
                   "with a claim"));
}

// On every device: none shall make a record of a session that is closed.
absl::Status TrainerUpdate::Admit() const { return node_.sessions->Check(batch().session); }

// The role is asked again, in the order of the table's updates.
absl::Status TrainerUpdate::Decide(TableWork& work) {
  EMBLA_RETURN_IF_ERROR(CheckLeads(*work.table));
  if (work.shard->id_rows().hashed()) {
    EMBLA_RETURN_IF_ERROR(Annotate(work.shard->step_bound().Check(batch().step, now_),
                                   absl::StrCat("table ", work.shard->name())));
  }
  if (work.shard->units().any_gates()) {
    EMBLA_RETURN_IF_ERROR(CheckFolds(work));
    return DecideUnits(work);
  }
  EMBLA_ASSIGN_OR_RETURN(work.applied_before, IsApplied(work));
  if (!work.applied_before) EMBLA_RETURN_IF_ERROR(CheckFolds(work));
  work.order = work.shard->replica_position().order;
  // The update was applied to what was here then. Rows that a newer plan sends here may be on
  // their way yet: only for those that are here it is a repetition.
  const bool may_move = work.table->copy == nullptr;
  return work.applied_before && may_move ? DecideUnits(work) : absl::OkStatus();
}

absl::Status TrainerUpdate::DecideUnits(TableWork& work) {
  UpdateUnits& units = work.units.emplace();
  const absl::Status status = units.Decide(*work.shard, work.parts, batch(), work.bounds);
  work.shard->metrics().ids_out_of_range.Add(static_cast<double>(units.out_of_range()));
  EMBLA_RETURN_IF_ERROR(status);
  work.expected = units.present();
  if (units.has_rest()) {
    EMBLA_ASSIGN_OR_RETURN(const bool applied, IsApplied(work));
    if (applied) units.SkipRest();
  }
  work.applied_before = units.applies_nothing();
  return absl::OkStatus();
}

absl::Status TrainerUpdate::CheckFolds(const TableWork& work) const {
  if (work.shard->units().Admit(batch().routed_since, tables_->plan->version())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "table ", work.shard->name(), ": the update was first routed by plan ",
      ToInt(batch().routed_since), ", but units that have moved since came to rest here, ",
      "and are taken apart before it is applied: send it again"));
}

void TrainerUpdate::Record(TableWork& work, std::uint32_t device) {
  if (work.units.has_value()) work.units->Record(batch());
  if (!work.units.has_value() || work.units->applies_rest()) RecordRest(*work.shard);
  GiveOrder(work, device, *replicator_);
}

void TrainerUpdate::AverageWhatIsDue() const {
  for (const NodeTable* const table : DueForAveraging()) {
    auto task = SyncTask::MakeFollowUp(node_, tables_, *table);
    const DeviceSet devices = task->devices();
    node_.executors->SubmitFollowUp(std::move(task), devices);
  }
}

void TrainerUpdate::AddRefused(const TableWork& work, UpdateResult& result) const {
  if (!work.units.has_value()) return;
  for (const UpdateUnits::Touched& unit : work.units->touched()) {
    if (!unit.refused()) continue;
    RefusedUnit refused = RefusedMoved(*tables_, work.shard->id(),
                                       {.rows = {unit.shape.row_begin, unit.shape.row_end},
                                        .columns = {unit.shape.column_begin, unit.shape.column_end},
                                        .owner = unit.answer.owner,
                                        .epoch = unit.answer.epoch});
    refused.reason = ReasonOf(unit.answer.status);
    refused.retry_after_ms = kRetryAfterMs;
    for (const std::size_t part : unit.parts) {
      refused.part = work.part_indices[part];
      result.refused.push_back(refused);
    }
  }
  JoinNeighbours(result.refused);
}

void TrainerUpdate::Finish() {
  const absl::Status status = Outcome();
  if (!status.ok()) return done_(status);
  AverageWhatIsDue();
  UpdateResult result;
  result.plan_version = tables_->plan->version();
  result.duplicate = true;
  std::vector<Replicator::TableOrder> orders;
  for (const TableWork& work : work_) {
    AddRefused(work, result);
    result.duplicate = result.duplicate && work.applied_before && result.refused.empty();
    if (work.table->copy != nullptr) orders.emplace_back(work.shard->id(), work.order);
  }
  if (orders.empty()) return AnswerWhenWritten(std::move(done_), std::move(result));
  replicator_->Wait(
      std::move(orders), deadline_,
      [result, ticket = ticket(), done = std::move(done_)](const absl::Status& replicated) {
        if (!replicated.ok()) return done(replicated);
        AnswerWhenWritten(ticket, done, result);
      });
}

}  // namespace embla
