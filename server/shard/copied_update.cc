#include "server/shard/copied_update.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {

CopiedUpdateTask::CopiedUpdateTask(const NodeContext& node, NodeTablesPtr tables, UpdateBatch batch,
                                   Origin origin, absl::Time deadline)
    : UpdateTask(node, std::move(tables), std::move(batch), deadline, node.options.clock->Now()),
      origin_(std::move(origin)) {}

absl::StatusOr<std::unique_ptr<CopiedUpdateTask>> CopiedUpdateTask::Make(const NodeContext& node,
                                                                         NodeTablesPtr tables,
                                                                         UpdateBatch batch,
                                                                         Origin origin,
                                                                         absl::Time deadline) {
  std::unique_ptr<CopiedUpdateTask> task(
      new CopiedUpdateTask(node, std::move(tables), std::move(batch), std::move(origin), deadline));
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

absl::StatusOr<const NodeTable*> CopiedUpdateTask::FindTable(const UpdatePart& part) const {
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table, tables_->Find(part.table, batch().plan_version));
  if (table->copy != nullptr && !table->copy->leads()) return table;
  return absl::FailedPreconditionError(absl::StrCat("updates of table ", table->spec.name,
                                                    " go to node ", table->primary.name,
                                                    ", which has the primary copy"));
}

absl::Status CopiedUpdateTask::TakeSpec(TableShard& shard, std::uint32_t device) {
  return shard.SetSpec(device, origin_.spec, batch().plan_version);
}

absl::Status CopiedUpdateTask::Decide(TableWork& work) {
  CopyState& copy = *work.table->copy;
  if (origin_.term.has_value()) EMBLA_RETURN_IF_ERROR(copy.Follow(*origin_.term));
  life_ = copy.life();
  ReplicaPosition& position = work.shard->replica_position();
  work.order = position.order;
  // Reign 0: no primary has touched the copy so far. An update to a copy that is coming in counts
  // for rows that have come, and does no harm to the others.
  need_snapshot_ = position.reign != origin_.reign && position.reign != 0;
  if (need_snapshot_) return absl::AbortedError("the replica needs a snapshot");
  if (origin_.order > position.order + 1) {
    return absl::UnavailableError(absl::StrCat("the copy is at update ", position.order,
                                               ", so it cannot take update ", origin_.order));
  }
  position.reign = origin_.reign;
  work.applied_before = origin_.order <= position.order;
  return absl::OkStatus();
}

absl::Status CopiedUpdateTask::Append() {
  if (work_.front().applied_before) return AppendToJournal(DecidedBefore(), Level());
  return AppendToJournal(
      CopiedUpdate{work_.front().shard->id(), origin_.reign, origin_.order, batch()}, Level());
}

void CopiedUpdateTask::Record(TableWork& work, std::uint32_t) {
  TableShard& shard = *work.shard;
  shard.replica_position().order = work.order = origin_.order;
  const absl::StatusOr<bool> applied = IsApplied(work);
  if (applied.ok() && !*applied) RecordRest(shard);
}

void CopiedUpdateTask::Finish() {
  const absl::Status status = Outcome();
  if (!status.ok() && !need_snapshot_) return done_(status);
  const ReplicaAck ack{
      .order = work_.front().order, .need_snapshot = need_snapshot_, .life = life_};
  applied_(ack);
  need_snapshot_ ? done_(ack) : AnswerWhenWritten(std::move(done_), ack);
}

}  // namespace embla
