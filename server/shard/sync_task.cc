#include "server/shard/sync_task.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {

absl::StatusOr<std::unique_ptr<SyncTask>> SyncTask::Make(const NodeContext& node,
                                                         NodeTablesPtr tables,
                                                         const ShardNode::SyncQuery& query,
                                                         absl::Time deadline) {
  std::unique_ptr<SyncTask> task(new SyncTask(node, std::move(tables), deadline));
  for (const TableId id : query.tables) {
    EMBLA_ASSIGN_OR_RETURN(const NodeTable* table,
                           task->tables_->FindServed(id, query.plan_version));
    task->Add(*table);
  }
  task->ResetCounts();
  return task;
}

std::unique_ptr<SyncTask> SyncTask::MakeDecided(const NodeContext& node, NodeTablesPtr tables,
                                                DecidedSync decided) {
  std::unique_ptr<SyncTask> task(new SyncTask(node, std::move(tables), absl::InfiniteFuture()));
  for (const DecidedSync::Table& decided_table : decided.tables) {
    const auto table = task->tables_->tables.find(ToInt(decided_table.table));
    if (table != task->tables_->tables.end()) task->Add(*table->second);
  }
  task->decided_ = std::move(decided);
  task->ResetCounts();
  return task;
}

std::unique_ptr<SyncTask> SyncTask::MakeFollowUp(const NodeContext& node, NodeTablesPtr tables,
                                                 const NodeTable& table) {
  std::unique_ptr<SyncTask> task(new SyncTask(node, std::move(tables), absl::InfiniteFuture()));
  task->Add(table);
  task->SetCaller([name = table.spec.name](const absl::StatusOr<SyncResult>& result) {
    if (result.ok()) return;
    LogError("shard", "averaging of replica groups failed table=", name,
             " reason=", result.status().ToString());
  });
  return task;
}

TableShard* SyncTask::TableWork::CopyOn(const NodeTable& table, std::uint32_t device) {
  if (table.group_copies == nullptr || !table.devices().Has(device)) return nullptr;
  return table.shards[table.group_copies->GroupOf(device)].get();
}

bool SyncTask::TableWork::IsLedBy(std::uint32_t device) const {
  return asked->group_copies != nullptr && asked->shard()->lead_device() == device;
}

void SyncTask::Add(const NodeTable& table) {
  TableWork& work = work_.emplace_back();
  work.asked = work.table = &table;
  work.by_device.resize(node_.devices.size());
  if (table.group_copies == nullptr) return;
  // The agreement is a collective of all devices.
  devices_ = DeviceSet::First(static_cast<std::uint32_t>(node_.devices.size()));
}

void SyncTask::ResetCounts() const {
  for (const TableWork& work : work_) {
    if (work.asked->group_copies != nullptr) work.asked->group_copies->ResetCounts();
  }
}

void SyncTask::Run(std::uint32_t device) {
  if (!Begin()) return;
  for (TableWork& work : work_) {
    if (work.IsLedBy(device)) Choose(work);
  }
  if (!Agree(device, CanAverage(device))) return;
  for (TableWork& work : work_) ListRows(work, device);
  if (!WriteDown(device)) return;
  for (const TableWork& work : work_) {
    if (work.IsLedBy(device)) work.asked->group_copies->NoteAveraged();
  }
  // After an error too: the devices with the other copies go on, and wait for this one.
  absl::Status status;
  for (TableWork& work : work_) status.Update(RunTable(work, device));
  const bool all = Agree(device, status);
  for (const TableWork& work : work_) {
    if (!work.IsLedBy(device)) continue;
    for (const std::shared_ptr<UnitGate>& gate : work.gates) gate->Averaged(all);
  }
}

// A record of what cannot be done would be done at the next start.
absl::Status SyncTask::CanAverage(std::uint32_t device) const {
  for (const TableWork& work : work_) {
    if (TableWork::CopyOn(*work.asked, device) == nullptr) continue;
    EMBLA_RETURN_IF_ERROR(this->device(device).health());
  }
  return absl::OkStatus();
}

// Gates are those of all copies.
void SyncTask::Choose(TableWork& work) const {
  work.tables = (*node_.tables)();
  const auto now = work.tables->tables.find(ToInt(work.asked->spec.id));
  if (now != work.tables->tables.end()) work.table = now->second.get();
  for (const TableUnits::Cut& cut : work.table->shard()->units().cuts()) {
    RowIntervals& rows = work.chosen.emplace_back(cut.columns, cut.present).second;
    if (decided_.has_value()) {
      rows = RowIntervals();
      for (const DecidedSync::Table& table : decided_->tables) {
        if (table.table != work.table->spec.id) continue;
        for (const AveragedRows& averaged : table.rows) {
          if (averaged.columns == cut.columns) rows.Insert(averaged.rows);
        }
      }
      continue;
    }
    for (const TableUnits::Cut::Gated& gated : cut.gates) {
      if (gated.gate->TakesAveraging()) {
        work.gates.push_back(gated.gate);
      } else {
        rows.Erase({gated.shape.row_begin, gated.shape.row_end});
      }
    }
  }
}

void SyncTask::ListRows(TableWork& work, std::uint32_t device) const {
  TableShard* const copy = work.CopyOn(device);
  if (copy == nullptr) return;
  for (const OwnSlice& own : copy->slices(device)) {
    RowIntervals& rows = work.by_device[device].rows.emplace_back();
    for (const auto& [columns, chosen] : work.chosen) {
      if (columns == own.columns()) rows = own.present.CommonWith(chosen);
    }
  }
}

std::vector<AveragedRows> SyncTask::RowsOf(const TableWork& work) {
  std::vector<AveragedRows> averaged;
  if (work.table->group_copies == nullptr) return averaged;
  TableShard& copy = *work.table->shard();
  for (const auto& [columns, chosen] : work.chosen) {
    RowIntervals all;
    for (std::uint32_t device = 0; device < work.by_device.size(); ++device) {
      const std::vector<RowIntervals>& rows = work.by_device[device].rows;
      if (!copy.devices().Has(device)) continue;
      for (std::size_t slice = 0; slice < rows.size(); ++slice) {
        if (copy.slices(device)[slice].columns() != columns) continue;
        for (const RowInterval& interval : rows[slice].intervals()) all.Insert(interval);
      }
    }
    for (const RowInterval& rows : all.intervals()) averaged.push_back({columns, rows});
  }
  return averaged;
}

// All devices have done what is before the averaging, and none begins what is behind it.
bool SyncTask::WriteDown(std::uint32_t device) {
  if (node_.journal == nullptr) return true;
  // The record names the rows of all devices.
  if (!Agree(device, absl::OkStatus())) return false;
  return Agree(device, device == devices_.lowest() ? AppendDecided() : absl::OkStatus());
}

absl::Status SyncTask::AppendDecided() {
  DecidedSync decided;
  Durability level = Durability::kNone;
  for (const TableWork& work : work_) {
    if (work.table->group_copies == nullptr) continue;
    decided.tables.push_back({work.table->spec.id, RowsOf(work)});
    level = std::max(level, node_.journal->LevelOf(work.table->spec.durability));
  }
  return AppendToJournal(std::move(decided), level);
}

absl::Status SyncTask::RunTable(TableWork& work, std::uint32_t device) {
  TableShard* const copy = work.CopyOn(device);
  if (copy == nullptr) return absl::OkStatus();
  DeviceShare& share = work.by_device[device];
  const auto start = std::chrono::steady_clock::now();
  absl::Status status;
  for (std::size_t slice = 0; slice < share.rows.size(); ++slice) {
    if (share.rows[slice].empty()) continue;
    absl::StatusOr<kernels::Divergence> divergence = work.table->group_copies->Average(
        device, copy->spec(device), copy->slices(device)[slice], share.rows[slice]);
    if (divergence.ok()) share.divergence.Add(*divergence);
    status.Update(divergence.status());
  }
  share.time = absl::FromChrono(std::chrono::steady_clock::now() - start);
  return status.ok() ? status : Annotate(status, "table " + copy->name());
}

TableSync SyncTask::Report(const TableWork& work) const {
  TableSync report;
  report.table = work.table->spec.id;
  report.replica_groups = work.table->spec.replica_groups;
  if (work.table->group_copies == nullptr) return report;
  kernels::Divergence divergence;
  absl::Duration time;
  for (const DeviceShare& share : work.by_device) {
    divergence.Add(share.divergence);
    time = std::max(time, share.time);
  }
  const ReplicaGroupMetrics& metrics = work.table->group_copies->metrics();
  metrics.syncs.Add();
  metrics.seconds.Observe(time);
  metrics.divergence_max.Set(divergence.max);
  metrics.divergence_rms.Set(divergence.rms());
  report.values = divergence.values;
  report.divergence_max = divergence.max;
  report.squares = divergence.squares;
  report.averaged = RowsOf(work);
  return report;
}

void SyncTask::Finish() {
  const absl::Status status = devices_.empty() ? absl::OkStatus() : Outcome();
  if (!status.ok()) return done_(status);
  SyncResult result;
  result.plan_version = tables_->plan->version();
  for (const TableWork& work : work_) result.tables.push_back(Report(work));
  AnswerWhenWritten(std::move(done_), std::move(result));
}

}  // namespace embla
