#include "server/shard/update_task.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/planted_damage.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/table/finite_check.h"
#include "server/table/part_check.h"

namespace embla {
namespace {

// Positions of a table's ids and gradients are 32-bit numbers in the kernels.
constexpr std::size_t kIdsOfTableMax = std::size_t{1} << 31;

absl::Status CheckTtl(const TableSpec& spec, const UpdatePart& part) {
  if (part.ttl_steps == 0) return absl::OkStatus();
  if (spec.zch.has_value() && spec.zch->policy == zch::Policy::kTtl) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name, ": an update states ttl_steps ", part.ttl_steps,
                   ", but only zch tables with policy ttl have TTLs: leave it 0"));
}

}  // namespace

UpdateTask::UpdateTask(const NodeContext& node, NodeTablesPtr tables, UpdateBatch batch,
                       absl::Time deadline, absl::Time now)
    : DecisionTask(node, deadline),
      tables_(std::move(tables)),
      now_(now),
      batch_(std::move(batch)),
      table_work_(batch_.parts.size() + 1) {
  MeasureInto(batch_.device_times);
}

absl::Status UpdateTask::Plan() {
  EMBLA_RETURN_IF_ERROR(CheckUpdateId(batch()));
  if (batch().is_step) EMBLA_RETURN_IF_ERROR(PlanStep());
  work_of_.reserve(batch().parts.size());
  // Loops of their own: what one part waits for in memory, the next ones wait for meanwhile.
  absl::InlinedVector<PartPlace, 32> places;
  for (const UpdatePart& part : batch().parts) {
    EMBLA_ASSIGN_OR_RETURN(places.emplace_back().table, FindTable(part));
  }
  for (std::size_t p = 0; p < places.size(); ++p) {
    EMBLA_ASSIGN_OR_RETURN(places[p].shard,
                           places[p].table->ShardOf(batch().parts[p].replica_group));
    places[p].shard->Prefetch();
  }
  for (std::uint32_t p = 0; p < places.size(); ++p) EMBLA_RETURN_IF_ERROR(PlanPart(p, places[p]));
  for (const TableWork& work : work_) {
    EMBLA_RETURN_IF_ERROR(CheckPartsFit(*work.shard, work.table->spec.optimizer, work.parts));
    devices_ |= work.shard->devices();
  }
  // The agreement is a collective of all devices.
  if (devices_.size() > 1) {
    devices_ = DeviceSet::First(static_cast<std::uint32_t>(node_.devices.size()));
  }
  return absl::OkStatus();
}

// Also without a row the units step.
absl::Status UpdateTask::PlanStep() {
  const TableId id = batch().claim->table;
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table, tables_->Find(id, PlanVersion{}));
  const auto steps = tables_->steps.find(ToInt(id));
  if (steps == tables_->steps.end()) {
    return absl::DataLossError(
        absl::StrCat("table ", table->spec.name, " has no synchronous steps"));
  }
  steps_ = steps->second.get();
  WorkOf({table, table->shard().get()}, 0);
  return absl::OkStatus();
}

absl::Status UpdateTask::PlanPart(std::uint32_t index, const PartPlace& place) {
  const UpdatePart& part = batch().parts[index];
  EMBLA_RETURN_IF_ERROR(CheckPart(part, batch().wire_dtype));
  // An update that was decided may have left out rows of columns whose units had all left: this
  // process need not know of them any more.
  if (!is_repeated()) {
    EMBLA_RETURN_IF_ERROR(place.shard->CheckColumns({part.column_begin, part.column_end}));
  }
  EMBLA_RETURN_IF_ERROR(CheckTtl(place.table->spec, part));
  TableWork& work = WorkOf(place, part.replica_group);
  work.parts.push_back(&part);
  work.part_indices.push_back(index);
  work.ids += part.ids.size();
  work.expected += part.ids.size() * part.columns();
  numbers_ += part.ids.size() * part.columns();
  if (work.ids <= kIdsOfTableMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", place.table->spec.name, ": more than ",
                                                 kIdsOfTableMax, " ids in one update"));
}

absl::Status UpdateTask::CheckLeads(const NodeTable& table) {
  if (table.copy == nullptr || table.copy->leads()) return absl::OkStatus();
  if (table.is_primary) {
    return absl::FailedPreconditionError(absl::StrCat("node ", table.primary.name,
                                                      " does not lead table ", table.spec.name,
                                                      " yet: its copy is on its way"));
  }
  return absl::FailedPreconditionError(absl::StrCat("updates of table ", table.spec.name,
                                                    " go to node ", table.primary.name,
                                                    ", which has the primary copy"));
}

UpdateTask::TableWork& UpdateTask::WorkOf(const PartPlace& place, std::uint32_t group) {
  TableWork*& work = work_of_[place.shard];
  if (work != nullptr) return *work;
  work_ = std::span(table_work_).first(work_.size() + 1);
  work = &work_.back();
  work->table = place.table;
  work->group = group;
  work->shard = place.shard;
  work->first_share = shares_;
  shares_ += place.shard->device_slices_max();
  return *work;
}

void UpdateTask::Run(std::uint32_t device) {
  if (!Begin()) return;
  ThreadPool& pool = this->device(device).pool;
  pool.KeepOut(ReceivingThreads(device));
  const auto all_again = absl::MakeCleanup([&pool] { pool.KeepOut(0); });
  // By one thread, before the tables use theirs side by side.
  std::vector<UpdateShare>& shares = this->device(device).update_shares;
  if (shares.size() < shares_) shares.resize(shares_);
  if (!AgreeToApply(device, Prepare(device)) || !WriteDown(device)) return;
  SetError(device, Apply(device));
}

// How many of the device's threads would take their cores from those that receive. While other
// requests wait for the device, more of their kind arrive: to receive such an update, a byte or
// more per number, takes about as long as to step it.
std::size_t UpdateTask::ReceivingThreads(std::uint32_t device) const {
  // A node receives by one thread for four cores (server/rpc/data_sockets.cc).
  constexpr std::size_t kCoresPerReceiver = 4;
  if (is_repeated() || numbers_ == 0 || bytes() < numbers_) return 0;
  const std::size_t receivers =
      (node_.options.threads_per_device + kCoresPerReceiver - 1) / kCoresPerReceiver;
  return std::min(node_.executors->waiting(device), receivers);
}

absl::Status UpdateTask::Prepare(std::uint32_t device) {
  EMBLA_RETURN_IF_ERROR(Admit());
  return RunTables(device, [&](TableWork& work) { return PrepareTable(work, device); });
}

absl::Status UpdateTask::RunTables(std::uint32_t device,
                                   absl::FunctionRef<absl::Status(TableWork& work)> run) {
  Device& own = this->device(device);
  std::vector<TableWork*> here;
  JobSizes ids;
  for (TableWork& work : work_) {
    if (!work.shard->devices().Has(device)) continue;
    here.push_back(&work);
    ids.push_back(work.ids);
  }
  // A GPU's queue is one thread's.
  if (own.lanes != nullptr) {
    for (TableWork* const work : here) EMBLA_RETURN_IF_ERROR(run(*work));
    return absl::OkStatus();
  }
  return RunSideBySide(own.pool, ids, [&](std::size_t table) { return run(*here[table]); });
}

UpdateShare* UpdateTask::SharesOf(const TableWork& work, std::uint32_t device) {
  return this->device(device).update_shares.data() + work.first_share;
}

absl::Status UpdateTask::PrepareTable(TableWork& work, std::uint32_t device) {
  TableShard& shard = *work.shard;
  EMBLA_RETURN_IF_ERROR(TakeSpec(shard, device));
  if (shard.lead_device() == device) {
    work.bounds = shard.spec(device).bounds;
    EMBLA_RETURN_IF_ERROR(Decide(work));
    if (work.applied_before && devices_.size() == 1) return this->device(device).health();
  }
  if (checks_finite()) EMBLA_RETURN_IF_ERROR(CheckFinite(work, device));
  std::size_t found = 0;
  UpdateShare* share = SharesOf(work, device);
  for (const OwnSlice& own : shard.slices(device)) {
    const absl::Status prepared =
        share->Prepare(shard.spec(device), own, work.parts, batch().wire_dtype);
    if (!prepared.ok()) return Annotate(prepared, absl::StrCat("table ", shard.name()));
    found += share++->found();
  }
  // A repetition's, too: a device that has stopped may not have applied it.
  if (found > 0) EMBLA_RETURN_IF_ERROR(this->device(device).health());
  work.found.fetch_add(found, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status UpdateTask::CheckFinite(const TableWork& work, std::uint32_t device) const {
  const TableShard& shard = *work.shard;
  if (work.shard->spec(device).nan_policy == NanPolicy::kAllow) return absl::OkStatus();
  // Each of the table's devices looks at a part of the gradients.
  const std::size_t share = shard.devices().RankOf(device);
  const std::size_t shares = shard.devices().size();
  for (const UpdatePart* part : work.parts) {
    const GradientRows rows{part->gradient_rows() * share / shares,
                            part->gradient_rows() * (share + 1) / shares};
    const absl::Status finite = embla::CheckFinite(batch(), *part, rows, this->device(device).pool);
    if (!finite.ok()) return Annotate(finite, absl::StrCat("table ", shard.name()));
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
  if (node_.journal == nullptr || is_repeated()) return true;
  const bool appends = device == devices_.lowest();
  return Agree(device, appends ? Append() : absl::OkStatus());
}

absl::Status UpdateTask::AppendDecided() {
  DecidedUpdate decided{.batch = batch(), .tables = {}, .time = now_};
  decided.batch.parts.clear();
  bool repeats = false;
  for (const TableWork& work : work_) {
    repeats = repeats || (work.units ? work.units->repeats_something() : work.applied_before);
    if (work.applied_before) continue;
    DecidedTable& table = decided.tables.emplace_back();
    table.table = work.shard->id();
    table.replica_group = work.group;
    if (work.units) table.applies_rest = work.units->applies_rest();
    if (work.units) table.units = work.units->Decisions();
    for (const UpdatePart* const part : work.parts) decided.batch.parts.push_back(*part);
  }
  if (decided.tables.empty() && !repeats) return absl::OkStatus();
  return decided.tables.empty() ? AppendToJournal(DecidedBefore(), Level())
                                : AppendToJournal(std::move(decided), Level());
}

Durability UpdateTask::Level() const {
  Durability level = Durability::kNone;
  for (const TableWork& work : work_) {
    level = std::max(level, node_.journal->LevelOf(work.table->spec.durability));
  }
  return level;
}

absl::StatusOr<bool> UpdateTask::IsApplied(const TableWork& work) const {
  return work.shard->rest().IsApplied(batch().session, batch().seq, batch().first_incomplete);
}

absl::Status UpdateTask::CheckFound(std::uint32_t device) {
  for (const TableWork& work : work_) {
    if (work.applied_before) continue;
    const std::size_t found = work.found.load(std::memory_order_relaxed);
    if (found == work.expected) continue;
    if (work.units.has_value()) return work.shard->RowsAreMoving();
    std::size_t in_table = work.expected;
    for (const UpdatePart* part : work.parts) {
      const TableShard::IdReport report =
          work.shard->Examine(part->ids, {part->column_begin, part->column_end}, work.bounds);
      if (device == work.shard->lead_device()) {
        work.shard->metrics().ids_out_of_range.Add(static_cast<double>(report.out_of_range));
      }
      EMBLA_RETURN_IF_ERROR(report.status);
      in_table -= report.out_of_range * part->columns();
    }
    if (found != in_table) return work.shard->RowsAreMoving();
  }
  return absl::OkStatus();
}

absl::Status UpdateTask::Apply(std::uint32_t device) {
  const bool is_lost = PlantedDamage("update.lose");
  const bool is_doubled = PlantedDamage("update.double");
  return RunTables(device, [&](TableWork& work) {
    if (work.applied_before) return absl::OkStatus();
    if (work.shard->lead_device() == device) RecordTable(work, device);
    CrashPoint("update.recorded");
    if (is_lost) return absl::OkStatus();
    EMBLA_RETURN_IF_ERROR(StepRows(work, device));
    return is_doubled ? StepRows(work, device) : absl::OkStatus();
  });
}

void UpdateTask::RecordTable(TableWork& work, std::uint32_t device) {
  TableShard& shard = *work.shard;
  if (!is_repeated()) shard.metrics().gradient_rows.Add(static_cast<double>(work.ids));
  if (shard.id_rows().hashed()) shard.step_bound().Note(batch().step, now_);
  Record(work, device);
}

absl::Status UpdateTask::StepRows(TableWork& work, std::uint32_t device) {
  // A row once, however many slices its columns are in.
  std::size_t rows = 0;
  UpdateShare* share = SharesOf(work, device);
  for (OwnSlice& own : work.shard->slices(device)) {
    EMBLA_ASSIGN_OR_RETURN(const std::size_t stepped,
                           share++->Apply(own, work.Skipped(own.columns()),
                                          {batch().step, this->device(device).pool}));
    const bool counts =
        !work.parts.empty() && own.slice.column_begin == work.parts.front()->column_begin;
    if (counts) rows += stepped;
  }
  if (rows > 0 && !is_repeated()) {
    work.shard->metrics().rows_updated.Add(static_cast<double>(rows));
  }
  return absl::OkStatus();
}

void UpdateTask::RecordRest(TableShard& shard) const {
  UnitWindows& rest = shard.rest();
  rest.Record(batch().session, batch().seq, batch().first_incomplete);
  for (const UpdateName& name : batch().contributors) {
    // A sender may have given the number to another update meanwhile.
    const bool is_new =
        rest.Classify(name.session, name.seq, name.first_incomplete) == UnitWindows::Verdict::kNew;
    if (is_new) rest.Record(name.session, name.seq, name.first_incomplete);
  }
}

void UpdateTask::GiveOrder(TableWork& work, std::uint32_t device, Replicator& replicator) const {
  if (work.table->copy == nullptr) return;
  TableShard& shard = *work.shard;
  work.order = ++shard.replica_position().order;
  UpdateBatch copied = batch();
  copied.plan_version = shard.spec_version(device);
  copied.parts.clear();
  for (const UpdatePart* const part : work.parts) copied.parts.push_back(*part);
  replicator.Append(shard.id(), work.order, std::move(copied));
}

std::vector<const NodeTable*> UpdateTask::DueForAveraging() const {
  std::vector<const NodeTable*> due;
  for (const TableWork& work : work_) {
    GroupCopies* const copies = work.table->group_copies.get();
    if (copies == nullptr || work.applied_before) continue;
    if (copies->CountUpdate(work.group, batch(), work.table->spec.sync_every_steps)) {
      due.push_back(work.table);
    }
  }
  return due;
}

}  // namespace embla
