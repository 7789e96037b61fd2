#include "server/shard/shard_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/rows/stale_plan.h"
#include "server/shard/contribution_task.h"
#include "server/shard/image_tables.h"
#include "server/shard/replica_tasks.h"
#include "server/shard/shard_node_impl.h"
#include "server/shard/unit_inventory.h"

namespace embla {
namespace {

// A lookup of 64 rows of 128 fp32 columns, or an update of them, which take a few microseconds:
// less than the device's thread takes to wake up.
constexpr std::size_t kRunHereBytesMax = 64 << 10;

// Whether two plans have the same tables, ranks that step them, and copies of each, wherever their
// rows are otherwise: what a journal must know.
bool SameTables(const Plan& a, const Plan& b) {
  return std::ranges::equal(
      a.tables().pointers(), b.tables().pointers(), [](const TablePtr& x, const TablePtr& y) {
        const bool has_copies = TraitsOf(x->sharding).has_copies;
        return x == y || (x->spec == y->spec && x->aside == y->aside && x->steps == y->steps &&
                          (!has_copies || x->replicas == y->replicas));
      });
}

// Whether the primaries that are here are so since the same plans: others have heard of those.
bool SameTerms(const NodeTables& old, const NodeTables& next) {
  return std::ranges::all_of(next.tables, [&old](const auto& entry) {
    const auto before = old.tables.find(entry.first);
    return before == old.tables.end() ||
           before->second->primary_since == entry.second->primary_since;
  });
}

// Device that decides steps of a table: on its thread none is under way.
std::uint32_t LeadOf(const NodeTables& tables, std::uint32_t table) {
  const auto here = tables.tables.find(table);
  return here == tables.tables.end() ? 0 : here->second->shard()->lead_device();
}

Replicator::Options ReplicatorOptions(const ShardNodeOptions& options) {
  Replicator::Options replicator;
  replicator.backlog_max = options.replica_backlog_max;
  replicator.backlog_bytes_max = options.replica_backlog_bytes_max;
  replicator.timeout = options.replica_timeout;
  replicator.backoff = options.replica_backoff;
  replicator.probe_interval = options.replica_probe_interval;
  replicator.clock = options.clock;
  return replicator;
}

}  // namespace

ShardNodeImpl::ShardNodeImpl(ShardNodeOptions options, NodeDevices devices, BufferPool& pool)
    : options_(std::move(options)),
      pool_(pool),
      metrics_(options_.metrics),
      nccl_(std::move(devices.nccl)),
      devices_(std::move(devices.devices)),
      tables_(std::make_shared<const NodeTables>()),
      replicator_(
          ReplicatorOptions(options_),
          [this](TableId table, std::size_t number, WindowDone done) {
            ReadCopy(table, number, std::move(done));
          },
          [this](const CopyGone& gone, const std::function<void(absl::Status)>& done) {
            WriteGone(gone, done);
          },
          [this](TableId table) { LeadCopy(table); }) {
  const auto count = static_cast<std::uint32_t>(options_.devices.size());
  for (std::uint32_t d = 0; d < count; ++d) {
    DeviceMetrics(options_.metrics, d)
        .memory_bytes.Set(static_cast<double>(options_.devices[d].memory_bytes));
  }
  DeviceExecutors::Options executors;
  executors.devices = count;
  executors.tasks_max_per_device = options_.queued_requests_max_per_device;
  executors.bytes_max = options_.queued_bytes_max;
  // A GPU has one thread, which knows its streams.
  const bool has_gpu = std::ranges::any_of(
      options_.gpus, [](const gpu::Device* device) { return device != nullptr; });
  executors.run_here_bytes_max = has_gpu ? 0 : kRunHereBytesMax;
  executors.node_name = options_.name;
  executors.metrics = options_.metrics;
  executors_ = std::make_unique<DeviceExecutors>(executors);
  units_ = std::make_unique<UnitTables>(UnitTables::Node{
      *executors_, [this] { return tables(); },
      [this](const UnitTables::Change& change) { return ChangeTables(change); },
      [this](TableId table) { LookAtSteps(table); }, Maker(), pool_,
      [this](SessionId session, UpdateSeq seq) { return sessions_.IsOver(session, seq); },
      *options_.clock});
}

ShardNodeImpl::~ShardNodeImpl() {
  // The replicator reads rows with the executors, and this node stores them.
  replicator_.Stop();
  CloseInboxes();
  units_->Stop();
  executors_->Stop();  // Its last tasks still submit others.
  StopSteps(*tables(), absl::UnavailableError("the node is stopping"));
}

void ShardNodeImpl::BeginStop() {
  replicator_.BeginStop();
  CloseInboxes();
  StopSteps(*tables(), absl::UnavailableError("the node is stopping"));
}

void ShardNodeImpl::CloseInboxes() {
  for (const auto& [id, table] : tables()->tables) {
    if (table->inbox != nullptr) table->inbox->Close();
  }
}

void ShardNodeImpl::StopSteps(const NodeTables& tables, const absl::Status& why) {
  for (const auto& [id, steps] : tables.steps) TableSteps::Send(steps->Stop(why));
}

void ShardNodeImpl::LookAtSteps(TableId table) {
  const NodeTablesPtr tables = this->tables();
  const auto steps = tables->steps.find(ToInt(table));
  if (steps == tables->steps.end()) return;
  const auto here = tables->tables.find(ToInt(table));
  TableShard* const shard = here == tables->tables.end() ? nullptr : here->second->shard().get();
  TableSteps::Send(steps->second->LookAt(shard, *tables));
  SubmitNextStep(Context(), table);
}

void ShardNodeImpl::FollowSteps(const NodeTables& next, std::uint32_t device) {
  for (const auto& [id, steps] : next.steps) {
    if (LeadOf(next, id) != device) continue;
    const TablePlan* const table = next.plan->FindTable(TableId{id});
    TableSteps::Send(steps->Follow(table->steps, next));
    SubmitNextStep(Context(), TableId{id});
  }
}

NodeTablesPtr ShardNodeImpl::tables() const {
  MutexLock lock(tables_mu_);
  return tables_;
}

void ShardNodeImpl::SetTables(NodeTablesPtr tables) {
  MutexLock lock(tables_mu_);
  tables_.swap(tables);
}

TableMaker ShardNodeImpl::Maker() {
  TableMaker maker;
  maker.devices = static_cast<std::uint32_t>(devices_.size());
  if (options_.collectives != Collectives::kHost) maker.gpus = options_.gpus;
  maker.make_memory = [this](const TableSpec& spec, const Slice& slice) {
    return devices_[slice.device.index]->MakeMemory(spec, slice, NewRows::kInitial);
  };
  maker.make_unset_memory = [this](const TableSpec& spec, const Slice& slice) {
    return devices_[slice.device.index]->MakeMemory(spec, slice, NewRows::kUnset);
  };
  maker.metrics = options_.metrics;
  maker.clock = options_.clock;
  return maker;
}

absl::Status ShardNodeImpl::ChangeTables(const UnitTables::Change& change) {
  MutexLock lock(install_mu_);
  EMBLA_ASSIGN_OR_RETURN(NodeTablesPtr next, change(*tables()));
  if (next != nullptr) SetTables(std::move(next));
  return absl::OkStatus();
}

absl::Status ShardNodeImpl::InstallPlan(PlanPtr plan, NodeId self) {
  MutexLock lock(install_mu_);
  return Install(std::move(plan), self, /*image=*/nullptr);
}

absl::Status ShardNodeImpl::Install(PlanPtr plan, NodeId self, const NodeImage* image) {
  const NodeTablesPtr old = tables();
  const auto context = [&] {
    return absl::StrCat("node ", options_.name, " cannot install plan ", ToInt(plan->version()));
  };
  if (plan->FindNode(self) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(context(), ": it does not know node id ", ToInt(self)));
  }
  if (const absl::Status same = CheckSameNode(*old, *plan, self); !same.ok()) {
    return Annotate(same, context());
  }
  if (ToInt(plan->version()) <= ToInt(old->plan->version())) return absl::OkStatus();
  absl::StatusOr<NodeTablesPtr> next = NextTables(*old, plan, self, Maker(), image);
  if (next.ok() && image != nullptr) next = WithImage(**next, *image, options_.clock->Now());
  if (!next.ok()) return Annotate(next.status(), context());
  if (const absl::Status taken = TakeOver(*old, **next); !taken.ok()) {
    return Annotate(taken, context());
  }
  SetReplicas(**next);
  SetTables(*next);
  for (const auto& [id, steps] : old->steps) {
    if ((*next)->steps.contains(id)) continue;
    TableSteps::Send(steps->Stop(absl::NotFoundError(
        absl::StrCat("table ", id, " was dropped while its step waited for other ranks"))));
  }
  metrics_.plan_version.Set(static_cast<double>(ToInt(plan->version())));
  for (const std::unique_ptr<Device>& device : devices_) {
    if (device->meter != nullptr) device->meter->CountMemory();
  }
  LogInfo("shard", "plan installed node=", options_.name, " version=", ToInt(plan->version()),
          " tables=", (*next)->tables.size());
  return absl::OkStatus();
}

void ShardNodeImpl::SetReplicas(const NodeTables& tables) {
  std::vector<Replicator::ReplicatedTable> replicated;
  for (const auto& [id, shared] : tables.tables) {
    const NodeTable& table = *shared;
    if (table.copy == nullptr) continue;
    replicated.push_back({.table = TableId{id},
                          .is_primary = table.is_primary,
                          .primary_since = table.primary_since,
                          .replicas = table.replicas,
                          .primary = table.primary,
                          .metrics = table.shard()->metrics()});
  }
  replicator_.SetTables(*tables.plan, replicated);
}

void ShardNodeImpl::TakeRoles(const NodeTables& tables, std::uint32_t device) {
  for (const auto& [id, shared] : tables.tables) {
    const NodeTable& table = *shared;
    if (table.copy == nullptr || table.shard()->lead_device() != device) continue;
    // One that was to lead, and may, has what the next primary may need.
    LeadIfItMay(table, replicator_);
    table.copy->TakeRole(table.is_primary, table.primary_since);
    LeadIfItMay(table, replicator_);
    if (table.copy->role() == CopyRole::kIncoming) {
      LogInfo("shard",
              "this node is to lead a table and waits for its copy table=", table.spec.name);
    }
  }
}

void ShardNodeImpl::set_replica_transport(ReplicaTransport* transport) {
  replicator_.SetTransport(transport);
  // Tables that the process before this one was to lead.
  for (const auto& [id, table] : tables()->tables) LeadCopy(TableId{id});
}

void ShardNodeImpl::set_journal(Journal* journal) {
  journal_ = journal;
  if (journal->keeps_rows()) return;
  // Copies that the process before this one received are lost, as are the rows that it led.
  const NodeTablesPtr tables = this->tables();
  for (const auto& [id, shared] : tables->tables) {
    const NodeTable& table = *shared;
    if (table.copy != nullptr && table.is_primary) Confirm(table, std::nullopt);
  }
}

absl::Status ShardNodeImpl::CheckSameNode(const NodeTables& old, const Plan& plan, NodeId self) {
  if (ToInt(old.plan->version()) == 0) return absl::OkStatus();
  if (old.plan->cluster_id() != plan.cluster_id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is of cluster ", plan.cluster_id(), ", and the tables here are of cluster ",
        old.plan->cluster_id(), "; restart the node with an empty data directory"));
  }
  if (old.self == self) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "it is for node id ", ToInt(self), ", and the tables here are of node id ", ToInt(old.self),
      "; restart the node under its old name, or with an empty data directory"));
}

// Devices take over hyper-parameters between two updates, at the same place on all of them, which
// is that of the plan's record: what lies behind it was done by devices that had come so far.
absl::Status ShardNodeImpl::TakeOver(const NodeTables& old, const NodeTables& next) {
  const bool is_same = SameTables(*old.plan, *next.plan) && SameTerms(old, next);
  const bool writes = journal_ != nullptr && !is_same;
  absl::Status written;  // By device 0, between two barriers.
  const auto take_over = [&](std::uint32_t device) -> absl::Status {
    Communicator& all = *devices_[device]->communicator;
    if (writes) {
      EMBLA_RETURN_IF_ERROR(all.Barrier());
      if (device == 0) written = journal_->Write(InstalledPlan{next.plan, next.self});
      EMBLA_RETURN_IF_ERROR(all.Barrier());
    }
    EMBLA_RETURN_IF_ERROR(written);
    TakeRoles(next, device);
    SetSpecs(old, next, device);
    FollowSteps(next, device);
    return absl::OkStatus();
  };
  // A device that cannot meet the others leaves the plan uninstalled. Devices that could have taken
  // it over; the next try takes it over once more, which changes nothing.
  std::vector<absl::Status> statuses(executors_->devices());
  RunOnDevices(*executors_, DeviceSet::First(executors_->devices()),
               [&](std::uint32_t device) { statuses[device] = take_over(device); });
  for (const absl::Status& status : statuses) EMBLA_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// Every update that passed the gate before it closed is in the queues of all its devices by now: a
// task that is queued now runs after all of them.
absl::Status ShardNodeImpl::CloseSessions(const ClosedSessions& closed) {
  const MutexLock lock(install_mu_);
  sessions_.Close(closed);
  const ClosedSessions more = {.refused = closed.refused.Minus(sessions_written_.refused),
                               .settled = closed.settled.Minus(sessions_written_.settled)};
  if (more.refused.empty() && more.settled.empty()) return absl::OkStatus();
  // All that have settled: rows that came since may have brought what others had forgotten.
  const ClosedSessions all = sessions_.closed();
  const NodeTablesPtr tables = this->tables();
  for (const auto& [id, shared] : tables->tables) {
    const NodeTable& table = *shared;
    if (table.group_copies != nullptr) table.group_copies->ForgetSessions(all.settled);
  }
  RunOnDevices(*executors_, DeviceSet::First(executors_->devices()), [&](std::uint32_t device) {
    for (const auto& [id, shared] : tables->tables) {
      const NodeTable& table = *shared;
      for (const std::shared_ptr<TableShard>& shard : table.shards) {
        if (shard->lead_device() == device) shard->ForgetSessions(all.settled);
      }
    }
    for (const auto& [id, steps] : tables->steps) {
      if (LeadOf(*tables, id) == device) TableSteps::Send(steps->Drop(more.refused, *tables));
    }
  });
  if (journal_ != nullptr) EMBLA_RETURN_IF_ERROR(journal_->Write(more));
  sessions_written_.Include(more);
  return absl::OkStatus();
}

// Replicas take them from the updates instead.
void ShardNodeImpl::SetSpecs(const NodeTables& old, const NodeTables& tables,
                             std::uint32_t device) {
  for (const auto& [id, shared] : tables.tables) {
    const auto before = old.tables.find(id);
    if (before != old.tables.end() && before->second == shared) continue;
    const NodeTable& table = *shared;
    if (!table.is_primary) continue;
    for (const std::shared_ptr<TableShard>& shard : table.shards) {
      // Updates name the plan that their hyper-parameters are from: replicas must have that one.
      if (!shard->devices().Has(device) || shard->spec(device) == table.spec) continue;
      const absl::Status status = shard->SetSpec(device, table.spec, tables.plan->version());
      EMBLA_CHECK(status.ok());  // NextTables has checked that the shape is the same.
    }
  }
}

absl::Status ShardNodeImpl::Explain(const absl::Status& status) const {
  return ExplainAs(options_.name, plan()->version(), status);
}

absl::Status ShardNodeImpl::ExplainAs(const std::string& node, PlanVersion plan,
                                      const absl::Status& status) {
  const absl::Status signed_status = SignAs(node, plan, status);
  if (!absl::IsFailedPrecondition(status)) return signed_status;
  return absl::FailedPreconditionError(
      absl::StrCat(signed_status.message(), ToAbsl(kRefreshThePlan)));
}

absl::Status ShardNodeImpl::SignAs(const std::string& node, PlanVersion plan,
                                   const absl::Status& status) {
  if (!absl::IsFailedPrecondition(status) && !absl::IsUnavailable(status)) return status;
  return absl::Status(
      status.code(), absl::StrCat("node ", node, " at plan ", ToInt(plan), ": ", status.message()));
}

std::vector<UnitStandings> ShardNodeImpl::OwnedUnits() {
  return embla::OwnedUnits(*tables(), *executors_);
}

std::vector<std::int64_t> ShardNodeImpl::device_used_bytes() const {
  std::vector<std::int64_t> used;
  for (const std::unique_ptr<Device>& device : devices_) {
    used.push_back(static_cast<std::int64_t>(device->budget.used_bytes()));
  }
  return used;
}

std::vector<std::string> ShardNodeImpl::device_stopped() const {
  std::vector<std::string> stopped;
  for (const std::unique_ptr<Device>& device : devices_) {
    stopped.push_back(Message(device->health()));
  }
  return stopped;
}

absl::Status ShardNodeOptions::Validate() const {
  EMBLA_RETURN_IF_ERROR(CheckDevices(*this));
  if (threads_per_device == 0 || queued_requests_max_per_device == 0 || queued_bytes_max == 0 ||
      reply_bytes_max == 0 || replica_backlog_max == 0 || replica_window_rows_max < 1) {
    return absl::InvalidArgumentError("threads and limits of a node are at least 1");
  }
  if (replica_timeout <= absl::ZeroDuration() || replica_backoff <= absl::ZeroDuration() ||
      replica_probe_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("times of replication are above 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardNode>> ShardNode::Create(ShardNodeOptions options,
                                                             BufferPool& pool) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  EMBLA_ASSIGN_OR_RETURN(NodeDevices devices, MakeNodeDevices(options));
  return std::make_unique<ShardNodeImpl>(std::move(options), std::move(devices), pool);
}

}  // namespace embla
