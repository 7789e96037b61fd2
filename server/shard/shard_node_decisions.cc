// Decisions of an earlier process of this node, applied again: no gate, session or role is asked,
// and nothing is sent or written down.
#include <memory>
#include <utility>
#include <variant>

#include "server/shard/decided_update.h"
#include "server/shard/shard_node_impl.h"
#include "server/shard/sweep_task.h"
#include "server/shard/sync_task.h"

namespace embla {
namespace {

// Tells `done` of a result of which only its status counts.
auto AnswerOnly(AppliedDone done) {
  return [done = std::move(done)](const auto& result) {
    if (!result.ok()) return done(result.status());
    done(Applied());
  };
}

}  // namespace

void ShardNodeImpl::Apply(Decision decision, AppliedDone done) {
  std::visit([&](auto& decided) { ApplyAgain(std::move(decided), std::move(done)); }, decision);
}

void ShardNodeImpl::ApplyAgain(DecidedUpdate update, AppliedDone done) {
  NodeTablesPtr tables = this->tables();
  // Requests that began under a plan with a table may be behind the plan without it.
  const auto is_dropped = [&](const auto& named) {
    return !tables->tables.contains(ToInt(named.table));
  };
  std::erase_if(update.batch.parts, is_dropped);
  std::erase_if(update.tables, is_dropped);
  const bool is_step = update.batch.is_step;
  if (is_step ? is_dropped(*update.batch.claim) : update.batch.parts.empty()) {
    return done(Applied());
  }
  if (!is_step) sessions_.Recall(update.batch.session, update.batch.seq, update.time);
  for (const UpdateName& name : update.batch.contributors) {
    sessions_.Recall(name.session, name.seq, update.time);
  }
  absl::StatusOr<std::unique_ptr<DecidedUpdateTask>> task = DecidedUpdateTask::Make(
      Context(), std::move(tables), std::move(update.batch), std::move(update.tables), update.time);
  if (!task.ok()) return done(task.status());
  (*task)->SetCaller(replicator_, std::move(done));
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(*std::move(task), devices, bytes, [](DecidedUpdateTask& task) { return task.TakeDone(); });
}

const NodeTable* ShardNodeImpl::FindCopy(const NodeTables& tables, TableId id) {
  const auto table = tables.tables.find(ToInt(id));
  const bool is_here = table != tables.tables.end() && table->second->copy != nullptr;
  return is_here ? table->second.get() : nullptr;
}

void ShardNodeImpl::ApplyAgain(CopiedUpdate update, AppliedDone done) {
  const NodeTablesPtr tables = this->tables();
  const NodeTable* const table = FindCopy(*tables, update.table);
  if (table == nullptr) return done(Applied());
  const auto heard = [this, tables, table](const ReplicaAck& ack) { Heard(*table, false, 0, ack); };
  ApplyCopied(tables, *table, std::move(update), std::nullopt, absl::InfiniteFuture(), heard,
              AnswerOnly(std::move(done)));
}

void ShardNodeImpl::ApplyAgain(CopiedRows piece, AppliedDone done) {
  const NodeTablesPtr tables = this->tables();
  const NodeTable* const table = FindCopy(*tables, piece.table);
  if (table == nullptr) return done(Applied());
  const auto heard = [this, tables, table](const ReplicaAck& ack) { Heard(*table, false, 0, ack); };
  ApplyCopied(*table, std::move(piece), std::nullopt, heard, AnswerOnly(std::move(done)));
}

void ShardNodeImpl::ApplyAgain(const CopyConfirmed& confirmed, AppliedDone done) {
  const NodeTablesPtr tables = this->tables();
  if (const NodeTable* const table = FindCopy(*tables, confirmed.table); table != nullptr) {
    Confirm(*table, std::nullopt);
  }
  done(Applied());
}

void ShardNodeImpl::ApplyAgain(const CopyGone& gone, AppliedDone done) {
  if (FindCopy(*tables(), gone.table) != nullptr) replicator_.Forget(gone.table, gone.node);
  done(Applied());
}

void ShardNodeImpl::ApplyAgain(DecidedSync sync, AppliedDone done) {
  auto task = SyncTask::MakeDecided(Context(), tables(), std::move(sync));
  task->SetCaller(AnswerOnly(std::move(done)));
  const DeviceSet devices = task->devices();
  if (devices.empty()) return task->Finish();  // No table has groups.
  Submit(std::move(task), devices, 0, [](SyncTask& task) { return task.TakeDone(); });
}

void ShardNodeImpl::ApplyAgain(const DecidedSweep& sweep, AppliedDone done) {
  if (!tables()->tables.contains(ToInt(sweep.table))) return done(Applied());
  SweepTable({sweep.table, sweep.sweep, sweep.rows}, absl::InfiniteFuture(),
             AnswerOnly(std::move(done)));
}

// Devices come to it behind the updates before it.
void ShardNodeImpl::ApplyAgain(const ClosedSessions& closed, AppliedDone done) {
  const absl::Status status = CloseSessions(closed);
  status.ok() ? done(Applied()) : done(status);
}

void ShardNodeImpl::ApplyAgain(const DecidedBefore&, AppliedDone done) { done(Applied()); }

void ShardNodeImpl::ApplyAgain(InstalledPlan installed, AppliedDone done) {
  const absl::Status status = InstallPlan(std::move(installed.plan), installed.self);
  status.ok() ? done(Applied()) : done(status);
}

}  // namespace embla
