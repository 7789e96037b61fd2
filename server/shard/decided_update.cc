#include "server/shard/decided_update.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/shard/replica_tasks.h"

namespace embla {

absl::StatusOr<std::unique_ptr<DecidedUpdateTask>> DecidedUpdateTask::Make(
    const NodeContext& node, NodeTablesPtr tables, UpdateBatch batch,
    std::vector<DecidedTable> decided, absl::Time time) {
  std::unique_ptr<DecidedUpdateTask> task(
      new DecidedUpdateTask(node, std::move(tables), std::move(batch), std::move(decided), time));
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

absl::Status DecidedUpdateTask::Decide(TableWork& work) {
  // The process before this one led when it took the update.
  if (work.table->copy != nullptr) LeadIfItMay(*work.table, *replicator_);
  // Both are in the order of the batch.
  const auto index = static_cast<std::size_t>(&work - work_.data());
  const DecidedTable* const decided = index < decided_.size() ? &decided_[index] : nullptr;
  if (decided == nullptr || decided->table != work.shard->id() ||
      decided->replica_group != work.group) {
    return absl::DataLossError(
        absl::StrCat("nothing was decided about the update of table ", work.shard->name()));
  }
  work.order = work.shard->replica_position().order;
  if (decided->applies_rest) {
    EMBLA_ASSIGN_OR_RETURN(const bool applied, IsApplied(work));
    if (applied) {
      return absl::DataLossError(absl::StrCat("table ", work.shard->name(), ": update ",
                                              ToInt(batch().seq), " of session ",
                                              ToInt(batch().session), " was applied twice"));
    }
    if (decided->units.empty() && decided->awaited.empty()) return absl::OkStatus();
  }
  UpdateUnits& units = work.units.emplace();
  EMBLA_RETURN_IF_ERROR(
      units.Repeat(*work.shard, work.parts, decided->units, decided->applies_rest));
  units.LeaveAlone(decided->awaited);
  work.expected = units.present();
  return absl::OkStatus();
}

// Units have no gates yet: the mover gets their records when all is applied.
void DecidedUpdateTask::Record(TableWork& work, std::uint32_t device) {
  if (!work.units.has_value() || work.units->applies_rest()) RecordRest(*work.shard);
  if (steps_ != nullptr) steps_->NoteMade(batch().step);
  GiveOrder(work, device, *replicator_);
}

void DecidedUpdateTask::Finish() {
  const absl::Status status = Outcome();
  if (!status.ok()) return done_(status);
  Applied applied;
  for (const NodeTable* const table : DueForAveraging()) {
    applied.sync_due.push_back(table->spec.id);
  }
  done_(std::move(applied));
}

}  // namespace embla
