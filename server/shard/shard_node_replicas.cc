#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/rows/row_block.h"
#include "server/shard/copied_update.h"
#include "server/shard/replica_tasks.h"
#include "server/shard/shard_node_impl.h"

namespace embla {
namespace {

// Notes what this node's journal has, as it is told to the primary. Needs no node any more.
ReplicaDone NotingWritten(std::shared_ptr<CopyInbox> inbox, std::uint64_t reign, ReplicaDone done) {
  return [inbox = std::move(inbox), reign,
          done = std::move(done)](const absl::StatusOr<ReplicaAck>& ack) {
    if (ack.ok() && !ack->need_snapshot) inbox->NoteWritten(reign, ack->order);
    done(ack);
  };
}

}  // namespace

void ShardNodeImpl::ReadCopy(TableId table_id, std::size_t number, WindowDone done) {
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> table = tables->Find(table_id, PlanVersion{});
  if (!table.ok()) return done(table.status());
  const std::shared_ptr<TableShard>& shard = (*table)->shard();
  absl::StatusOr<std::unique_ptr<ReadCopyTask>> task = ReadCopyTask::Make(
      shard, (*table)->spec, {number, options_.replica_window_rows_max}, metrics_.copy_hold, done);
  if (!task.ok()) return done(task.status());
  executors_->SubmitRead(*std::move(task), shard->devices());
}

void ShardNodeImpl::WriteGone(const CopyGone& gone, const std::function<void(absl::Status)>& done) {
  if (journal_ == nullptr) return done(absl::OkStatus());
  // A copy that a plan takes away is gone for as long as the plan lasts.
  const absl::Status accepted = journal_->Append(gone, Durability::kSynced, done);
  if (!accepted.ok()) done(accepted);
}

void ShardNodeImpl::ApplyReplicated(ReplicaMessage message, absl::Time deadline, ReplicaDone done) {
  if (message.term == PlanVersion{}) {
    return done(absl::InvalidArgumentError("a message to a copy does not say whose it is: term 0"));
  }
  const NodeTablesPtr tables = this->tables();
  const NodeTable* const table = FindCopy(*tables, message, done);
  if (table == nullptr) return;
  if (message.kind() != ReplicaMessage::Kind::kUpdate) {
    return Follow(tables, *table, std::move(message), std::move(done));
  }
  table->inbox->Take({std::move(message), deadline, std::move(done)}, queue_update_);
}

const NodeTable* ShardNodeImpl::FindCopy(const NodeTables& tables, const ReplicaMessage& message,
                                         const ReplicaDone& done) const {
  const absl::StatusOr<const NodeTable*> found = tables.Find(message.table(), PlanVersion{});
  if (found.ok() && (*found)->copy != nullptr) return *found;
  if (found.ok()) {
    done(Explain(absl::FailedPreconditionError(
        absl::StrCat("table ", (*found)->spec.name, " has no copies that are kept equal"))));
  } else if (ToInt(message.plan_version) <= ToInt(tables.plan->version())) {
    done(ReplicaAck{.gone = true});
  } else {
    done(Explain(absl::UnavailableError(
        absl::StrCat("plan ", ToInt(message.plan_version), " is not installed"))));
  }
  return nullptr;
}

// On a device thread, once the message has had its effect.
void ShardNodeImpl::Heard(const NodeTable& table, bool serves, std::uint64_t life,
                          const ReplicaAck& ack) {
  if (table.copy->role() == CopyRole::kFollows) replicator_.End(table.spec.id);
  const bool is_news = serves && life == ack.life && !table.copy->serves();
  if (is_news && !ack.need_snapshot) Confirm(table, life);
}

void ShardNodeImpl::QueueUpdate(CopyInbox::Update update) {
  const ReplicaMessage& message = update.message;
  const NodeTablesPtr tables = this->tables();
  const NodeTable* const table = FindCopy(*tables, message, update.done);
  if (table == nullptr) return;
  const absl::Status checked = CheckReplicated(*tables, *table, message);
  if (!checked.ok()) return update.done(Explain(checked));
  const auto heard = [this, tables, table, reign = message.reign(), serves = message.serves,
                      life = message.life](const ReplicaAck& ack) {
    if (!ack.need_snapshot) table->inbox->Reach(reign, ack.order, queue_update_);
    Heard(*table, serves, life, ack);
  };
  ReplicaDone done = NotingWritten(table->inbox, message.reign(), std::move(update.done));
  ApplyCopied(tables, *table, std::get<CopiedUpdate>(std::move(update.message.content)),
              message.term, update.deadline, heard, std::move(done));
}

// A probe, or a piece of a snapshot.
void ShardNodeImpl::Follow(const NodeTablesPtr& tables, const NodeTable& table,
                           ReplicaMessage message, ReplicaDone done) {
  auto* const piece = std::get_if<CopiedRows>(&message.content);
  const std::uint64_t reign = message.reign();
  const auto heard = [this, tables, &table, is_probe = piece == nullptr,
                      first = piece != nullptr && piece->first, reign, order = message.order(),
                      serves = message.serves, life = message.life](const ReplicaAck& ack) {
    const bool follows = !ack.need_snapshot || ack.order > 0;  // Perhaps with half a copy.
    const auto at = follows ? std::optional(ack.order) : std::nullopt;
    if (is_probe || (first && at.has_value())) table.inbox->Begin(reign, at);
    Heard(table, serves && ack.order >= order, life, ack);
  };
  if (piece == nullptr || piece->last) done = NotingWritten(table.inbox, reign, std::move(done));
  const auto explained = [this, done = std::move(done)](absl::StatusOr<ReplicaAck> ack) {
    if (!ack.ok()) return done(Explain(ack.status()));
    done(std::move(ack));
  };
  if (piece != nullptr) {
    return ApplyCopied(table, std::move(*piece),
                       InstallSnapshotTask::Sender{message.term, message.life}, heard, explained);
  }
  Submit(std::make_unique<ProbeTask>(Context(), table, reign, message.term, heard, explained),
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
  const NodeTablesPtr tables = this->tables();
  const auto table = tables->tables.find(ToInt(id));
  const bool is_here = table != tables->tables.end();
  const Durability level =
      journal_->LevelOf(is_here ? table->second->spec.durability : TableDurability::kNode);
  const absl::Status accepted = journal_->Append(
      confirmed, level,
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
  const UpdateBatch& batch = std::get<CopiedUpdate>(message.content).batch;
  const PlanVersion version = batch.plan_version;
  if (batch.parts.empty()) {
    return absl::InvalidArgumentError("a replicated update has no parts");
  }
  for (const UpdatePart& part : batch.parts) {
    if (part.table == message.table()) continue;
    return absl::InvalidArgumentError(absl::StrCat("a replicated update of table ",
                                                   ToInt(message.table()), " has a part of table ",
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
                                CopiedUpdate update, std::optional<PlanVersion> term,
                                absl::Time deadline, const CopyApplied& applied, ReplicaDone done) {
  CopiedUpdateTask::Origin from{update.reign, update.order, term, table.spec};
  // The oldest known spec was in force for everything before it.
  if (!table.spec_history.empty()) from.spec = table.spec_history.front().second;
  for (const auto& [since, spec] : table.spec_history) {
    if (ToInt(since) <= ToInt(update.batch.plan_version)) from.spec = spec;
  }
  absl::StatusOr<std::unique_ptr<CopiedUpdateTask>> task =
      CopiedUpdateTask::Make(Context(), tables, std::move(update.batch), std::move(from), deadline);
  if (!task.ok()) return done(Explain(task.status()));
  (*task)->SetCaller(std::move(done), applied);
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(*std::move(task), devices, bytes, [](CopiedUpdateTask& task) { return task.TakeDone(); });
}

void ShardNodeImpl::ApplyCopied(const NodeTable& table, CopiedRows piece,
                                std::optional<InstallSnapshotTask::Sender> sender,
                                const CopyApplied& applied, ReplicaDone done) {
  const absl::StatusOr<RowBlock> block = DecodeRowBlock(piece.row_block.bytes());
  if (!block.ok()) return done(block.status());
  if (piece.reign == 0) {
    return done(absl::InvalidArgumentError("a snapshot without the primary's reign"));
  }
  const std::size_t bytes = piece.row_block.size();
  auto task = std::make_unique<InstallSnapshotTask>(Context(), table, std::move(piece), *block,
                                                    sender, applied, std::move(done));
  const DeviceSet devices = task->devices();
  Submit(std::move(task), devices, bytes,
         [](InstallSnapshotTask& task) { return task.TakeDone(); });
}

}  // namespace embla
