#include "server/shard/sync_task.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/shard/journal.h"

namespace embla {

absl::StatusOr<std::unique_ptr<SyncTask>> SyncTask::Make(const NodeContext& node,
                                                         NodeTablesPtr tables,
                                                         const ShardNode::SyncQuery& query,
                                                         absl::Time deadline) {
  std::unique_ptr<SyncTask> task(new SyncTask(node, std::move(tables), deadline));
  for (const TableId id : query.tables) {
    EMBLA_ASSIGN_OR_RETURN(const NodeTable* table, task->tables_->Find(id, query.plan_version));
    task->Add(*table);
  }
  for (const TableWork& work : task->work_) {
    if (work.table->group_copies != nullptr) work.table->group_copies->ResetCounts();
  }
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

void SyncTask::Add(const NodeTable& table) {
  work_.push_back({&table, std::vector<DeviceShare>(node_.devices.size())});
  if (table.group_copies == nullptr) return;
  devices_ |= table.devices();
  // The agreement is a collective of all devices.
  if (node_.journal != nullptr) {
    devices_ = DeviceSet::First(static_cast<std::uint32_t>(node_.devices.size()));
  }
}

void SyncTask::Run(std::uint32_t device) {
  if (!Begin() || !WriteDown(device)) return;
  // After an error too: the devices with the other copies go on, and wait for this one.
  absl::Status status;
  for (TableWork& work : work_) status.Update(RunTable(work, device));
  SetError(device, status);
}

// All devices have done what is before the averaging, and none begins what is behind it.
bool SyncTask::WriteDown(std::uint32_t device) {
  if (node_.journal == nullptr) return true;
  if (!Agree(device, CanAverage(device))) return false;
  absl::Status written;
  if (device == devices_.lowest()) {
    std::vector<TableId> tables;
    for (const TableWork& work : work_) {
      if (work.table->group_copies != nullptr) tables.push_back(work.table->spec.id);
    }
    ticket_ = std::make_shared<LogTicket>();
    written = node_.journal->AppendSync(
        tables, [ticket = ticket_](const absl::Status& status) { ticket->Reached(status); });
  }
  return Agree(device, written);
}

// A record of what cannot be done would be done at the next start.
absl::Status SyncTask::CanAverage(std::uint32_t device) const {
  for (const TableWork& work : work_) {
    if (work.table->group_copies == nullptr || !work.table->devices().Has(device)) continue;
    EMBLA_RETURN_IF_ERROR(this->device(device).health());
  }
  return absl::OkStatus();
}

absl::Status SyncTask::RunTable(TableWork& work, std::uint32_t device) {
  GroupCopies* const copies = work.table->group_copies.get();
  if (copies == nullptr) return absl::OkStatus();
  TableShard& shard = *work.table->shards[copies->GroupOf(device)];
  if (!shard.devices().Has(device)) return absl::OkStatus();
  DeviceShare& share = work.by_device[device];
  const auto start = std::chrono::steady_clock::now();
  absl::Status status;
  for (OwnSlice& own : shard.slices(device)) {
    absl::StatusOr<Divergence> divergence = copies->Average(device, shard.spec(device), own);
    if (divergence.ok()) share.divergence.Add(*divergence);
    status.Update(divergence.status());
  }
  share.time = absl::FromChrono(std::chrono::steady_clock::now() - start);
  return status.ok() ? status : Annotate(status, "table " + shard.name());
}

TableSync SyncTask::Report(const TableWork& work) const {
  TableSync report;
  report.table = work.table->spec.id;
  report.replica_groups = work.table->spec.replica_groups;
  if (work.table->group_copies == nullptr) return report;
  Divergence divergence;
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
  return report;
}

void SyncTask::Finish() {
  const absl::Status status = devices_.empty() ? absl::OkStatus() : Outcome();
  if (!status.ok()) return done_(status);
  SyncResult result;
  result.plan_version = tables_->plan->version();
  for (const TableWork& work : work_) result.tables.push_back(Report(work));
  if (ticket_ == nullptr) return done_(std::move(result));
  ticket_->WhenReached(
      [result = std::move(result), done = std::move(done_)](const absl::Status& reached) {
        if (!reached.ok()) return done(reached);
        done(result);
      });
}

}  // namespace embla
