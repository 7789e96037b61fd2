#include "absl/strings/str_cat.h"
#include "core/rows/row_block.h"
#include "server/shard/replica_tasks.h"
#include "server/shard/shard_node_impl.h"

namespace embla {

void ShardNodeImpl::TakeSnapshot(TableId table_id, SnapshotDone done) {
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> table = tables->Find(table_id, PlanVersion{});
  if (!table.ok()) return done(table.status());
  const std::shared_ptr<TableShard>& shard = (*table)->shard();
  executors_->SubmitControl(
      std::make_unique<TakeSnapshotTask>(shard, devices_.size(), std::move(done)),
      shard->devices());
}

void ShardNodeImpl::ApplyReplicated(ReplicaMessage message, Buffer keep_alive, absl::Time deadline,
                                    ReplicaDone done) {
  NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> found = tables->Find(message.table, PlanVersion{});
  if (!found.ok()) return done(Explain(found.status()));
  const NodeTable& table = **found;
  if (table.is_primary) {
    return done(Explain(absl::FailedPreconditionError(
        absl::StrCat("table ", table.spec.name, " has its primary copy here"))));
  }
  switch (message.kind) {
    case ReplicaMessage::Kind::kProbe: {
      const DeviceSet lead = DeviceSet::Of(table.shard()->lead_device());
      return Submit(
          std::make_unique<ProbeTask>(table.shard(), message.incarnation, std::move(done)), lead, 0,
          [](ProbeTask& task) { return task.TakeDone(); });
    }
    case ReplicaMessage::Kind::kSnapshot:
      return InstallPiece(table, std::move(message), std::move(done));
    case ReplicaMessage::Kind::kUpdate:
      break;
  }
  absl::StatusOr<std::unique_ptr<UpdateTask>> task = MakeReplicaUpdate(
      std::move(tables), table, std::move(message), std::move(keep_alive), deadline);
  if (!task.ok()) return done(Explain(task.status()));
  (*task)->SetCaller(std::move(done));
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(*std::move(task), devices, bytes, [](UpdateTask& task) { return task.TakeReplicaDone(); });
}

absl::StatusOr<std::unique_ptr<UpdateTask>> ShardNodeImpl::MakeReplicaUpdate(NodeTablesPtr tables,
                                                                             const NodeTable& table,
                                                                             ReplicaMessage message,
                                                                             Buffer keep_alive,
                                                                             absl::Time deadline) {
  const PlanVersion version = message.update.plan_version;
  if (message.update.parts.empty()) {
    return absl::InvalidArgumentError("a replicated update has no parts");
  }
  for (const UpdatePart& part : message.update.parts) {
    if (part.table == message.table) continue;
    return absl::InvalidArgumentError(absl::StrCat("a replicated update of table ",
                                                   ToInt(message.table), " has a part of table ",
                                                   ToInt(part.table)));
  }
  if (ToInt(version) > ToInt(tables->plan->version())) {
    return absl::UnavailableError(
        absl::StrCat("plan ", ToInt(version), " of the update is not installed"));
  }
  UpdateTask::FromPrimary from{message.incarnation, message.order, table.spec};
  for (const auto& [since, spec] : table.spec_history) {
    if (ToInt(since) <= ToInt(version)) from.spec = spec;
  }
  const auto update = std::make_shared<const SharedUpdate>(
      SharedUpdate{std::move(message.update), std::move(keep_alive)});
  return UpdateTask::Make(Context(), std::move(tables), update, std::move(from), deadline);
}

void ShardNodeImpl::InstallPiece(const NodeTable& table, ReplicaMessage message, ReplicaDone done) {
  const absl::StatusOr<RowBlock> block = DecodeRowBlock(message.row_block.bytes());
  if (!block.ok()) return done(block.status());
  if (message.incarnation == 0) {
    return done(absl::InvalidArgumentError("a snapshot without the primary's incarnation"));
  }
  const std::size_t bytes = message.row_block.size();
  auto task = std::make_unique<InstallSnapshotTask>(Context(), table.shard(), std::move(message),
                                                    *block, std::move(done));
  const DeviceSet devices = task->devices();
  Submit(std::move(task), devices, bytes,
         [](InstallSnapshotTask& task) { return task.TakeDone(); });
}

}  // namespace embla
