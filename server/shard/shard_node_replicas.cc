#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/rows/row_block.h"
#include "server/shard/copied_update.h"
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

void ShardNodeImpl::WriteGone(const CopyGone& gone, const std::function<void(absl::Status)>& done) {
  if (journal_ == nullptr) return done(absl::OkStatus());
  const absl::Status accepted = journal_->Append(gone, done);
  if (!accepted.ok()) done(accepted);
}

void ShardNodeImpl::ApplyReplicated(ReplicaMessage message, Buffer keep_alive, absl::Time deadline,
                                    ReplicaDone done) {
  if (message.term == PlanVersion{}) {
    return done(absl::InvalidArgumentError("a message to a copy does not say whose it is: term 0"));
  }
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> found = tables->Find(message.table, PlanVersion{});
  if (!found.ok()) {
    if (ToInt(message.plan_version) <= ToInt(tables->plan->version())) {
      return done(ReplicaAck{.gone = true});
    }
    return done(Explain(absl::UnavailableError(
        absl::StrCat("plan ", ToInt(message.plan_version), " is not installed"))));
  }
  const NodeTable& table = **found;
  if (table.copy == nullptr) {
    return done(Explain(absl::FailedPreconditionError(
        absl::StrCat("table ", table.spec.name, " has no copies that are kept equal"))));
  }
  Follow(tables, table, std::move(message), std::move(keep_alive), deadline, std::move(done));
}

// On a device thread, once the message has had its effect.
void ShardNodeImpl::Heard(const NodeTable& table, bool serves, std::uint64_t life,
                          const ReplicaAck& ack) {
  if (table.copy->role() == CopyRole::kFollows) replicator_.End(table.spec.id);
  const bool is_news = serves && life == ack.life && !table.copy->serves();
  if (is_news && !ack.need_snapshot) Confirm(table, life);
}

void ShardNodeImpl::Follow(const NodeTablesPtr& tables, const NodeTable& table,
                           ReplicaMessage message, Buffer keep_alive, absl::Time deadline,
                           ReplicaDone done) {
  const auto heard = [this, tables, &table, serves = message.serves, life = message.life](
                         const ReplicaAck& ack) { Heard(table, serves, life, ack); };
  if (message.kind == ReplicaMessage::Kind::kUpdate) {
    const absl::Status checked = CheckReplicated(*tables, table, message);
    if (!checked.ok()) return done(Explain(checked));
    CopiedUpdate update{message.table, message.reign, message.order, std::move(message.update)};
    return ApplyCopied(tables, table, std::move(update), std::move(keep_alive), message.term,
                       deadline, heard, std::move(done));
  }
  const auto explained = [this, done = std::move(done)](absl::StatusOr<ReplicaAck> ack) {
    if (!ack.ok()) return done(Explain(ack.status()));
    done(std::move(ack));
  };
  if (message.kind == ReplicaMessage::Kind::kSnapshot) {
    const CopiedRows piece{.table = message.table,
                           .reign = message.reign,
                           .order = message.order,
                           .row_block = message.row_block.bytes(),
                           .first = message.first,
                           .last = message.last,
                           .windows = std::move(message.windows)};
    return ApplyCopied(table, piece, std::move(message.row_block),
                       InstallSnapshotTask::Sender{message.term, message.life}, heard, explained);
  }
  const auto after = [heard, explained](absl::StatusOr<ReplicaAck> ack) {
    if (ack.ok()) heard(*ack);
    explained(std::move(ack));
  };
  Submit(std::make_unique<ProbeTask>(table, message, after),
         DeviceSet::Of(table.shard()->lead_device()), 0,
         [](ProbeTask& task) { return task.TakeDone(); });
}

void ShardNodeImpl::Confirm(const NodeTable& table, std::optional<std::uint64_t> life) {
  executors_->SubmitFollowUp(
      std::make_unique<ConfirmTask>(
          table, life, [this, id = table.spec.id, copy = table.copy] { Confirmed(id, copy); }),
      DeviceSet::Of(table.shard()->lead_device()));
}

// A process that does not find it in its journal waits for its primary: so it must be there before
// this copy leads, and the old primary hears of that.
void ShardNodeImpl::Confirmed(TableId id, const std::shared_ptr<CopyState>& copy) {
  const std::uint64_t life = copy->life();
  const CopyConfirmed confirmed{id};
  if (journal_ == nullptr) {
    copy->NoteWritten(life);
    return replicator_.SayWritten(confirmed);
  }
  const absl::Status accepted = journal_->Append(
      confirmed,
      [copy, life, written = replicator_.WhenWritten(confirmed)](const absl::Status& status) {
        if (status.ok()) copy->NoteWritten(life);
        written(status);
      });
  if (!accepted.ok()) {
    LogWarning("shard", "a confirmed copy is not written down: ", Message(accepted));
  }
}

void ShardNodeImpl::LeadCopy(TableId id) {
  const NodeTablesPtr tables = this->tables();
  const auto it = tables->tables.find(ToInt(id));
  if (it == tables->tables.end() || it->second->copy == nullptr) return;
  executors_->SubmitFollowUp(
      std::make_unique<BeginTask>(*it->second, replicator_, [this, id] { TakeSpecs(id); }),
      DeviceSet::Of(it->second->shard()->lead_device()));
}

void ShardNodeImpl::TakeSpecs(TableId id) {
  const NodeTablesPtr tables = this->tables();
  const auto it = tables->tables.find(ToInt(id));
  if (it == tables->tables.end() || !it->second->is_primary) return;
  executors_->SubmitFollowUp(std::make_unique<LeadTask>(*it->second, tables->plan->version()),
                             it->second->shard()->devices());
}

// Confirms the copy as its primary would, and writes that down.
void ShardNodeImpl::LeadAsItIs(TableId id) {
  const NodeTablesPtr tables = this->tables();
  const auto it = tables->tables.find(ToInt(id));
  if (it == tables->tables.end() || it->second->copy == nullptr) return;
  if (it->second->copy->role() != CopyRole::kIncoming) return;
  LogWarning("shard",
             "this node leads a table that may lack updates table=", it->second->spec.name);
  Confirm(*it->second, std::nullopt);
  Confirmed(id, it->second->copy);
}

ShardNode::CopyView ShardNodeImpl::ViewCopy(TableId id) const {
  const NodeTablesPtr tables = this->tables();
  CopyView view{.plan_version = tables->plan->version()};
  const auto it = tables->tables.find(ToInt(id));
  if (it == tables->tables.end() || it->second->copy == nullptr) return view;
  view.is_here = true;
  view.serves = it->second->copy->serves();
  view.has_all = it->second->copy->has_all();
  view.leads = it->second->copy->leads() && !replicator_.HasLeaving(id);
  return view;
}

absl::Status ShardNodeImpl::CheckReplicated(const NodeTables& tables, const NodeTable& table,
                                            const ReplicaMessage& message) {
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
  if (ToInt(version) > ToInt(tables.plan->version())) {
    return absl::UnavailableError(
        absl::StrCat("plan ", ToInt(version), " of the update is not installed"));
  }
  const PlanVersion known_since =
      table.spec_history.empty() ? PlanVersion{} : table.spec_history.front().first;
  if (version >= known_since || message.plan_version >= known_since) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the primary does not have plan ", ToInt(known_since),
                                             ", the first that is known here"));
}

void ShardNodeImpl::ApplyCopied(const NodeTablesPtr& tables, const NodeTable& table,
                                CopiedUpdate update, Buffer keep_alive,
                                std::optional<PlanVersion> term, absl::Time deadline,
                                const CopyApplied& applied, ReplicaDone done) {
  CopiedUpdateTask::Origin from{update.reign, update.order, term, table.spec};
  // The oldest known spec was in force for everything before it.
  if (!table.spec_history.empty()) from.spec = table.spec_history.front().second;
  for (const auto& [since, spec] : table.spec_history) {
    if (ToInt(since) <= ToInt(update.batch.plan_version)) from.spec = spec;
  }
  const auto shared = std::make_shared<const SharedUpdate>(
      SharedUpdate{std::move(update.batch), std::move(keep_alive)});
  absl::StatusOr<std::unique_ptr<CopiedUpdateTask>> task =
      CopiedUpdateTask::Make(Context(), tables, shared, std::move(from), deadline);
  if (!task.ok()) return done(Explain(task.status()));
  (*task)->SetCaller(std::move(done), applied);
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(*std::move(task), devices, bytes, [](CopiedUpdateTask& task) { return task.TakeDone(); });
}

void ShardNodeImpl::ApplyCopied(const NodeTable& table, CopiedRows piece, Buffer keep_alive,
                                std::optional<InstallSnapshotTask::Sender> sender,
                                const CopyApplied& applied, ReplicaDone done) {
  const absl::StatusOr<RowBlock> block = DecodeRowBlock(piece.row_block);
  if (!block.ok()) return done(block.status());
  if (piece.reign == 0) {
    return done(absl::InvalidArgumentError("a snapshot without the primary's reign"));
  }
  const std::size_t bytes = piece.row_block.size();
  auto task = std::make_unique<InstallSnapshotTask>(Context(), table, std::move(piece), *block,
                                                    std::move(keep_alive), sender, applied,
                                                    std::move(done));
  const DeviceSet devices = task->devices();
  Submit(std::move(task), devices, bytes,
         [](InstallSnapshotTask& task) { return task.TakeDone(); });
}

}  // namespace embla
