#include "server/shard/update_task.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/failpoint.h"
#include "core/base/planted_damage.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/shard/replica_tasks.h"
#include "server/shard/session_gate.h"
#include "server/shard/sync_task.h"
#include "server/table/finite_check.h"
#include "server/table/part_check.h"

namespace embla {
namespace {

// Positions of a table's ids and gradients are 32-bit numbers in the kernels.
constexpr std::size_t kIdsOfTableMax = std::size_t{1} << 31;

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

absl::Status CheckTtl(const TableSpec& spec, const UpdatePart& part) {
  if (part.ttl_steps == 0) return absl::OkStatus();
  if (spec.zch.has_value() && spec.zch->policy == zch::Policy::kTtl) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name, ": an update states ttl_steps ", part.ttl_steps,
                   ", but only zch tables with policy ttl have TTLs: leave it 0"));
}

// Lowest plan version that can name the new owner of a unit that has left this node: the installed
// plan, or the next one while the installed plan still places the unit here.
PlanVersion PlanThatMoved(const NodeTables& tables, TableId id, const UnitShape& shape) {
  const TablePlan* const table = tables.plan->FindTable(id);
  if (table == nullptr) return tables.plan->version();
  const bool here =
      std::any_of(table->primary().begin(), table->primary().end(), [&](const Slice& slice) {
        return slice.device.node == tables.self && slice.column_begin <= shape.column_begin &&
               shape.column_begin < slice.column_end && slice.row_begin <= shape.row_begin &&
               shape.row_begin < slice.row_end;
      });
  return here ? Next(tables.plan->version()) : tables.plan->version();
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateTask>> UpdateTask::Make(
    const NodeContext& node, NodeTablesPtr tables, SharedUpdatePtr update,
    std::optional<FromPrimary> from_primary, absl::Time deadline) {
  std::unique_ptr<UpdateTask> task(new UpdateTask(node, std::move(tables), std::move(update),
                                                  std::move(from_primary), deadline));
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

absl::StatusOr<std::unique_ptr<UpdateTask>> UpdateTask::MakeDecided(
    const NodeContext& node, NodeTablesPtr tables, SharedUpdatePtr update,
    std::vector<DecidedTable> decided, absl::Time time) {
  std::unique_ptr<UpdateTask> task(new UpdateTask(node, std::move(tables), std::move(update),
                                                  std::nullopt, absl::InfiniteFuture()));
  task->decided_ = std::move(decided);
  task->now_ = time;
  EMBLA_RETURN_IF_ERROR(task->Plan());
  return task;
}

UpdateTask::UpdateTask(const NodeContext& node, NodeTablesPtr tables, SharedUpdatePtr update,
                       std::optional<FromPrimary> from_primary, absl::Time deadline)
    : RequestTask(node, deadline),
      tables_(std::move(tables)),
      update_(std::move(update)),
      from_primary_(std::move(from_primary)),
      now_(node_.options.clock->Now()) {}

void UpdateTask::SetCaller(Replicator& replicator, UpdateDone done) {
  replicator_ = &replicator;
  done_ = std::move(done);
}

void UpdateTask::SetCaller(Replicator& replicator, AppliedDone done) {
  replicator_ = &replicator;
  applied_done_ = std::move(done);
}

bool UpdateTask::replicates() const {
  return std::any_of(work_.begin(), work_.end(),
                     [](const auto& work) { return !work->table->replicas.empty(); });
}

absl::Status UpdateTask::Plan() {
  EMBLA_RETURN_IF_ERROR(CheckUpdateId(update_->batch));
  if (update_->batch.is_step) EMBLA_RETURN_IF_ERROR(PlanStep());
  for (std::uint32_t i = 0; i < update_->batch.parts.size(); ++i) {
    EMBLA_RETURN_IF_ERROR(PlanPart(i));
  }
  for (const std::unique_ptr<TableWork>& work : work_) {
    EMBLA_RETURN_IF_ERROR(CheckPartsFit(work->shard(), work->table->spec.optimizer, work->parts));
    devices_ |= work->shard().devices();
  }
  // The agreement is a collective of all devices.
  if (devices_.size() > 1) {
    devices_ = DeviceSet::First(static_cast<std::uint32_t>(node_.devices.size()));
  }
  return absl::OkStatus();
}

absl::Status UpdateTask::PlanPart(std::uint32_t index) {
  const UpdatePart& part = update_->batch.parts[index];
  EMBLA_RETURN_IF_ERROR(CheckPart(part, update_->batch.wire_dtype));
  // A decision of a primary or of an earlier process is applied.
  const bool is_decided =
      from_primary_.has_value() || decided_.has_value() || update_->batch.is_step;
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table,
                         is_decided ? tables_->Find(part.table, update_->batch.plan_version)
                                    : tables_->FindServed(part.table, update_->batch.plan_version));
  EMBLA_RETURN_IF_ERROR(CheckRole(*table));
  if (!is_decided && table->spec.sync.has_value() && !part.is_images()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table->spec.name,
                     " has synchronous steps: an update of it is a rank's contribution to one, "
                     "with a claim"));
  }
  EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<TableShard> shard,
                         table->ShardOf(part.replica_group));
  EMBLA_RETURN_IF_ERROR(shard->CheckColumns({part.column_begin, part.column_end}));
  EMBLA_RETURN_IF_ERROR(CheckTtl(table->spec, part));
  TableWork& work = WorkOf(*table, part.replica_group);
  work.parts.push_back(&part);
  work.part_indices.push_back(index);
  work.ids += part.ids.size();
  work.expected += part.ids.size() * part.columns();
  if (work.ids <= kIdsOfTableMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", table->spec.name, ": more than ",
                                                 kIdsOfTableMax, " ids in one update"));
}

// Asked when the request comes, and again in the order of the table's updates.
absl::Status UpdateTask::CheckRole(const NodeTable& table) const {
  const bool leads = table.copy == nullptr || table.copy->leads();
  if (decided_.has_value() || leads != from_primary_.has_value()) return absl::OkStatus();
  if (table.is_primary && !leads) {
    return absl::FailedPreconditionError(absl::StrCat("node ", table.primary.name,
                                                      " does not lead table ", table.spec.name,
                                                      " yet: its copy is on its way"));
  }
  return absl::FailedPreconditionError(absl::StrCat("updates of table ", table.spec.name,
                                                    " go to node ", table.primary.name,
                                                    ", which has the primary copy"));
}

UpdateTask::TableWork& UpdateTask::WorkOf(const NodeTable& table, std::uint32_t group) {
  for (const std::unique_ptr<TableWork>& work : work_) {
    if (work->table == &table && work->group == group) return *work;
  }
  work_.push_back(std::make_unique<TableWork>());
  work_.back()->table = &table;
  work_.back()->group = group;
  return *work_.back();
}

void UpdateTask::Run(std::uint32_t device) {
  if (!Begin()) return;
  std::vector<SliceWork> slices;
  if (!AgreeToApply(device, Prepare(device, slices)) || !WriteDown(device)) return;
  SetError(device, Apply(device, slices));
}

absl::Status UpdateTask::Prepare(std::uint32_t device, std::vector<SliceWork>& slices) {
  // Contributions of sessions that close are dropped while they wait.
  const bool is_of_trainer =
      !decided_.has_value() && !from_primary_.has_value() && !update_->batch.is_step;
  // On every device: none shall make a record of a session that is closed.
  if (is_of_trainer) EMBLA_RETURN_IF_ERROR(node_.sessions->Check(update_->batch.session));
  for (const std::unique_ptr<TableWork>& work : work_) {
    if (!work->shard().devices().Has(device)) continue;
    EMBLA_RETURN_IF_ERROR(PrepareTable(*work, device, slices));
  }
  return absl::OkStatus();
}

absl::Status UpdateTask::PrepareTable(TableWork& work, std::uint32_t device,
                                      std::vector<SliceWork>& slices) {
  TableShard& shard = work.shard();
  if (from_primary_.has_value()) {
    EMBLA_RETURN_IF_ERROR(shard.SetSpec(device, from_primary_->spec, update_->batch.plan_version));
  }
  if (shard.lead_device() == device) {
    EMBLA_RETURN_IF_ERROR(Lead(work, device));
    if (work.applied_before && devices_.size() == 1) return this->device(device).health();
  }
  // Contributions were looked at when they came.
  if (step_ == nullptr) EMBLA_RETURN_IF_ERROR(CheckFinite(work, device));
  std::vector<std::unique_ptr<UpdateShare>>& shares = this->device(device).update_shares;
  for (OwnSlice& own : shard.slices(device)) {
    if (shares.size() == slices.size()) shares.push_back(std::make_unique<UpdateShare>());
    UpdateShare& share = *shares[slices.size()];
    EMBLA_RETURN_IF_ERROR(
        Annotate(share.Prepare(shard.spec(device), own, work.parts, update_->batch.wire_dtype),
                 absl::StrCat("table ", shard.name())));
    // A repetition's, too: a device that has stopped may not have applied it.
    if (share.found() > 0) EMBLA_RETURN_IF_ERROR(this->device(device).health());
    work.found.fetch_add(share.found(), std::memory_order_relaxed);
    slices.push_back({&work, &own, &share});
  }
  return absl::OkStatus();
}

absl::Status UpdateTask::Lead(TableWork& work, std::uint32_t device) {
  work.bounds = work.shard().spec(device).bounds;
  if (from_primary_.has_value()) return LeadReplica(work);
  if (decided_.has_value()) return LeadDecided(work);
  if (step_ != nullptr) return LeadStep(work);
  EMBLA_RETURN_IF_ERROR(CheckRole(*work.table));
  if (work.shard().id_rows().hashed()) {
    EMBLA_RETURN_IF_ERROR(Annotate(work.shard().step_bound().Check(update_->batch.step, now_),
                                   absl::StrCat("table ", work.shard().name())));
  }
  if (work.shard().units().any_gates()) {
    EMBLA_RETURN_IF_ERROR(CheckFolds(work));
    return LeadUnits(work);
  }
  EMBLA_ASSIGN_OR_RETURN(work.applied_before, IsApplied(work));
  if (!work.applied_before) EMBLA_RETURN_IF_ERROR(CheckFolds(work));
  work.order = work.shard().replica_position().order;
  // The update was applied to what was here then. Rows that a newer plan sends here may be on
  // their way yet: only for those that are here it is a repetition.
  const bool may_move = work.table->copy == nullptr;
  return work.applied_before && may_move ? LeadUnits(work) : absl::OkStatus();
}

absl::Status UpdateTask::LeadUnits(TableWork& work) {
  UpdateUnits& units = work.units.emplace();
  const absl::Status status = units.Decide(work.shard(), work.parts, update_->batch, work.bounds);
  work.shard().metrics().ids_out_of_range.Add(static_cast<double>(units.out_of_range()));
  EMBLA_RETURN_IF_ERROR(status);
  work.expected = units.present();
  if (units.has_rest()) {
    EMBLA_ASSIGN_OR_RETURN(const bool applied, IsApplied(work));
    if (applied) units.SkipRest();
  }
  work.applied_before = units.applies_nothing();
  return absl::OkStatus();
}

absl::Status UpdateTask::CheckFolds(TableWork& work) const {
  if (work.shard().units().Admit(update_->batch.routed_since, tables_->plan->version())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "table ", work.shard().name(), ": the update was first routed by plan ",
      ToInt(update_->batch.routed_since), ", but units that have moved since came to rest here, ",
      "and are taken apart before it is applied: send it again"));
}

absl::StatusOr<bool> UpdateTask::IsApplied(TableWork& work) const {
  const UpdateBatch& batch = update_->batch;
  return work.shard().replay_windows().IsApplied(batch.session, batch.seq, batch.first_incomplete,
                                                 now_);
}

absl::Status UpdateTask::LeadDecided(TableWork& work) {
  // The process before this one led when it took the update.
  if (work.table->copy != nullptr) LeadIfItMay(*work.table, *replicator_);
  const auto decided = std::find_if(decided_->begin(), decided_->end(), [&](const auto& table) {
    return table.table == work.shard().id() && table.replica_group == work.group;
  });
  if (decided == decided_->end()) {
    return absl::DataLossError(
        absl::StrCat("nothing was decided about the update of table ", work.shard().name()));
  }
  work.order = work.shard().replica_position().order;
  if (decided->applies_rest) {
    EMBLA_ASSIGN_OR_RETURN(const bool applied, IsApplied(work));
    if (applied) {
      return absl::DataLossError(absl::StrCat("table ", work.shard().name(), ": update ",
                                              ToInt(update_->batch.seq), " of session ",
                                              ToInt(update_->batch.session), " was applied twice"));
    }
    if (decided->units.empty()) return absl::OkStatus();
  }
  UpdateUnits& units = work.units.emplace();
  EMBLA_RETURN_IF_ERROR(
      units.Repeat(work.shard(), work.parts, decided->units, decided->applies_rest));
  work.expected = units.present();
  return absl::OkStatus();
}

absl::Status UpdateTask::LeadReplica(TableWork& work) {
  CopyState& copy = *work.table->copy;
  if (from_primary_->term.has_value()) EMBLA_RETURN_IF_ERROR(copy.Follow(*from_primary_->term));
  work.life = copy.life();
  ReplicaPosition& position = work.shard().replica_position();
  const bool untouched = position.reign == 0 && position.complete;
  if (untouched) position.reign = from_primary_->reign;
  work.order = position.order;
  work.need_snapshot = !position.complete || position.reign != from_primary_->reign ||
                       from_primary_->order > position.order + 1;
  if (work.need_snapshot) return absl::AbortedError("the replica needs a snapshot");
  work.applied_before = from_primary_->order <= position.order;
  return absl::OkStatus();
}

absl::Status UpdateTask::CheckFinite(const TableWork& work, std::uint32_t device) const {
  const TableShard& shard = work.shard();
  if (work.shard().spec(device).nan_policy == NanPolicy::kAllow) return absl::OkStatus();
  // Each of the table's devices looks at a part of the gradients.
  const std::size_t share = shard.devices().RankOf(device);
  const std::size_t shares = shard.devices().size();
  for (const UpdatePart* part : work.parts) {
    const GradientRows rows{part->gradient_rows() * share / shares,
                            part->gradient_rows() * (share + 1) / shares};
    EMBLA_RETURN_IF_ERROR(Annotate(
        embla::CheckFinite(*part, update_->batch.wire_dtype, rows, this->device(device).pool),
        "table " + shard.name()));
  }
  return absl::OkStatus();
}

bool UpdateTask::AgreeToApply(std::uint32_t device, const absl::Status& status) {
  if (!Agree(device, status)) return false;
  // The same on every device: all counts are in.
  const absl::Status found = CheckFound(device);
  SetError(device, found);
  return found.ok();
}

// One record for all tables: the update is there or it is not. While one device appends it, the
// others wait, so no other update of these tables can come between the decision and the record.
bool UpdateTask::WriteDown(std::uint32_t device) {
  if (node_.journal == nullptr || decided_.has_value()) return true;
  const bool appends = device == devices_.lowest();
  if (!appends) return Agree(device, absl::OkStatus());
  return Agree(device, from_primary_.has_value() ? AppendCopied() : AppendToJournal());
}

absl::Status UpdateTask::AppendCopied() {
  ticket_ = std::make_shared<LogTicket>();
  const auto reached = [ticket = ticket_](const absl::Status& status) { ticket->Reached(status); };
  // The record of the first one may still be on its way when a repetition comes.
  if (work_.front()->applied_before) return node_.journal->AppendMarker(reached);
  return node_.journal->Append(CopiedUpdate{work_.front()->shard().id(), from_primary_->reign,
                                            from_primary_->order, update_->batch},
                               reached);
}

absl::Status UpdateTask::AppendToJournal() {
  DecidedUpdate decided{.batch = update_->batch, .tables = {}, .time = now_};
  decided.batch.parts.clear();
  bool repeats = false;
  for (const std::unique_ptr<TableWork>& work : work_) {
    repeats = repeats || (work->units ? work->units->repeats_something() : work->applied_before);
    if (work->applied_before) continue;
    DecidedTable& table = decided.tables.emplace_back();
    table.table = work->shard().id();
    table.replica_group = work->group;
    if (work->units) table.applies_rest = work->units->applies_rest();
    if (work->units) table.units = work->units->Decisions();
    for (const UpdatePart* const part : work->parts) decided.batch.parts.push_back(*part);
  }
  if (decided.tables.empty() && !repeats) return absl::OkStatus();
  ticket_ = std::make_shared<LogTicket>();
  const auto reached = [ticket = ticket_](const absl::Status& status) { ticket->Reached(status); };
  // A repeated update waits for a marker: the record of the first one may not be durable yet.
  return decided.tables.empty() ? node_.journal->AppendMarker(reached)
                                : node_.journal->Append(std::move(decided), reached);
}

absl::Status UpdateTask::CheckFound(std::uint32_t device) {
  for (const std::unique_ptr<TableWork>& work : work_) {
    if (work->applied_before) continue;
    const std::size_t found = work->found.load(std::memory_order_relaxed);
    if (found == work->expected) continue;
    if (work->units.has_value()) return work->shard().RowsAreMoving();
    std::size_t in_table = work->expected;
    for (const UpdatePart* part : work->parts) {
      const TableShard::IdReport report =
          work->shard().Examine(part->ids, {part->column_begin, part->column_end}, work->bounds);
      if (device == work->shard().lead_device()) {
        work->shard().metrics().ids_out_of_range.Add(static_cast<double>(report.out_of_range));
      }
      EMBLA_RETURN_IF_ERROR(report.status);
      in_table -= report.out_of_range * part->columns();
    }
    if (found != in_table) return work->shard().RowsAreMoving();
  }
  return absl::OkStatus();
}

absl::Status UpdateTask::Apply(std::uint32_t device, const std::vector<SliceWork>& slices) {
  for (const std::unique_ptr<TableWork>& work : work_) {
    if (work->shard().lead_device() == device && !work->applied_before) Record(*work, device);
  }
  CrashPoint("update.recorded");
  if (PlantedDamage("update.lose")) return absl::OkStatus();
  const bool is_doubled = PlantedDamage("update.double");
  for (const SliceWork& slice : slices) {
    if (slice.work->applied_before) continue;
    EMBLA_RETURN_IF_ERROR(StepRows(slice, device));
    if (is_doubled) EMBLA_RETURN_IF_ERROR(StepRows(slice, device));
  }
  return absl::OkStatus();
}

absl::Status UpdateTask::StepRows(const SliceWork& slice, std::uint32_t device) {
  Device& own_device = this->device(device);
  EMBLA_ASSIGN_OR_RETURN(
      const std::size_t rows,
      slice.share->Apply(*slice.own, slice.work->Skipped(slice.own->columns()),
                         {update_->batch.step, own_device.pool, own_device.sum_scratch}));
  // A row once, however many slices its columns are in.
  const auto& parts = slice.work->parts;
  const bool counts =
      !parts.empty() && slice.own->slice.column_begin == parts.front()->column_begin;
  if (counts && !decided_.has_value()) {
    slice.work->shard().metrics().rows_updated.Add(static_cast<double>(rows));
  }
  return absl::OkStatus();
}

void UpdateTask::Record(TableWork& work, std::uint32_t device) {
  const UpdateBatch& batch = update_->batch;
  TableShard& shard = work.shard();
  // Repeated updates were counted by the process that received them.
  if (!decided_.has_value()) shard.metrics().gradient_rows.Add(static_cast<double>(work.ids));
  if (shard.id_rows().hashed()) shard.step_bound().Note(batch.step, now_);
  ReplicaPosition& position = shard.replica_position();
  if (from_primary_.has_value()) {
    position.order = work.order = from_primary_->order;
    const absl::StatusOr<bool> applied = IsApplied(work);
    if (applied.ok() && !*applied) shard.replay_windows().Record(batch.session, batch.seq);
    return;
  }
  if (work.units.has_value() && !decided_.has_value()) work.units->Record(batch);
  if (!work.units.has_value() || work.units->applies_rest()) RecordRest(shard);
  if (steps_ != nullptr) steps_->NoteMade(batch.step);
  if (step_ != nullptr) answered_ = steps_->Commit(*step_, *tables_);
  if (work.table->copy == nullptr) return;
  work.order = ++position.order;
  replicator_->Append(shard.id(), work.order, update_, work.part_indices,
                      shard.spec_version(device));
}

void UpdateTask::Finish() {
  const absl::Status status = Outcome();
  if (step_ != nullptr) return AnswerContributors(status);
  if (from_primary_.has_value()) return AnswerPrimary(status);
  decided_.has_value() ? AnswerPlayer(status) : AnswerTrainer(status);
}

void UpdateTask::AnswerPrimary(const absl::Status& status) {
  const TableWork& work = *work_.front();
  if (!status.ok() && !work.need_snapshot) return replica_done_(status);
  const ReplicaAck ack{.order = work.order, .need_snapshot = work.need_snapshot, .life = work.life};
  applied_(ack);
  if (ticket_ == nullptr || work.need_snapshot) return replica_done_(ack);
  ticket_->WhenReached([done = std::move(replica_done_), ack](const absl::Status& written) {
    if (!written.ok()) return done(written);
    done(ack);
  });
}

std::vector<const NodeTable*> UpdateTask::DueForAveraging() const {
  std::vector<const NodeTable*> due;
  for (const std::unique_ptr<TableWork>& work : work_) {
    GroupCopies* const copies = work->table->group_copies.get();
    if (copies == nullptr || work->applied_before) continue;
    if (copies->CountUpdate(work->group, update_->batch, work->table->spec.sync_every_steps)) {
      due.push_back(work->table);
    }
  }
  return due;
}

void UpdateTask::AnswerPlayer(const absl::Status& status) {
  if (!status.ok()) return applied_done_(status);
  Applied applied;
  for (const NodeTable* const table : DueForAveraging()) {
    applied.sync_due.push_back(table->spec.id);
  }
  applied_done_(std::move(applied));
}

void UpdateTask::AddRefused(const TableWork& work, UpdateResult& result) const {
  if (!work.units.has_value()) return;
  for (const UpdateUnits::Touched& unit : work.units->touched()) {
    if (!unit.refused()) continue;
    RefusedUnit refused;
    refused.row_begin = unit.shape.row_begin;
    refused.row_end = unit.shape.row_end;
    refused.reason = ReasonOf(unit.answer.status);
    refused.retry_after_ms = kRetryAfterMs;
    refused.plan_version = PlanThatMoved(*tables_, work.shard().id(), unit.shape);
    for (const std::size_t part : unit.parts) {
      refused.part = work.part_indices[part];
      result.refused.push_back(refused);
    }
  }
}

void UpdateTask::AnswerTrainer(const absl::Status& status) {
  if (!status.ok()) return done_(status);
  // Before any answer.
  for (const NodeTable* const table : DueForAveraging()) {
    auto task = SyncTask::MakeFollowUp(node_, tables_, *table);
    const DeviceSet devices = task->devices();
    node_.executors->SubmitFollowUp(std::move(task), devices);
  }
  UpdateResult result;
  result.plan_version = tables_->plan->version();
  result.duplicate = true;
  std::vector<Replicator::TableOrder> orders;
  for (const std::unique_ptr<TableWork>& work : work_) {
    AddRefused(*work, result);
    result.duplicate = result.duplicate && work->applied_before && result.refused.empty();
    if (work->table->copy != nullptr) orders.emplace_back(work->shard().id(), work->order);
  }
  if (orders.empty()) return AnswerWhenWritten(ticket_.get(), done_, result);
  replicator_->Wait(
      std::move(orders), deadline_,
      [result, ticket = ticket_, done = std::move(done_)](const absl::Status& replicated) {
        if (!replicated.ok()) return done(replicated);
        AnswerWhenWritten(ticket.get(), done, result);
      });
}

void UpdateTask::AnswerWhenWritten(LogTicket* ticket, const UpdateDone& done,
                                   const UpdateResult& result) {
  if (ticket == nullptr) return done(result);
  ticket->WhenReached([done, result](const absl::Status& written) {
    if (!written.ok()) return done(written);
    done(result);
  });
}

}  // namespace embla
