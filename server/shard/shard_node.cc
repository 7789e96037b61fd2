#include "server/shard/shard_node.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/rows/row_block.h"
#include "server/collective/host_communicator.h"
#include "server/shard/journal.h"
#include "server/shard/lookup_task.h"
#include "server/shard/node_context.h"
#include "server/shard/node_tables.h"
#include "server/shard/replica_tasks.h"
#include "server/shard/replicator.h"
#include "server/shard/row_reader.h"
#include "server/shard/sweep_task.h"
#include "server/shard/sync_task.h"
#include "server/shard/table_inspector.h"
#include "server/shard/unit_tables.h"
#include "server/shard/update_task.h"
#include "server/storage/host_row_store.h"

namespace embla {
namespace {

std::uint64_t NewIncarnation() {
  std::random_device random;
  const std::uint64_t high = random(), low = random();
  return (high << 32 | low) | 1;  // Never 0.
}

// Whether two plans have the same tables, wherever their rows are: what a journal must know.
bool SameSpecs(const Plan& a, const Plan& b) {
  return std::equal(a.tables().begin(), a.tables().end(), b.tables().begin(), b.tables().end(),
                    [](const TablePlan& x, const TablePlan& y) { return x.spec == y.spec; });
}

// Hands out rows to sinks that are functions.
class FunctionSink final : public RowSink {
 public:
  explicit FunctionSink(const std::function<absl::Status(Buffer)>& sink) : sink_(sink) {}
  absl::Status Write(Buffer block) override { return sink_(std::move(block)); }

 private:
  const std::function<absl::Status(Buffer)>& sink_;
};

class ShardNodeImpl final : public ShardNode {
 public:
  ShardNodeImpl(ShardNodeOptions options, BufferPool& pool);
  ~ShardNodeImpl() override;

  absl::Status InstallPlan(PlanPtr plan, NodeId self) override;
  PlanPtr plan() const override { return tables()->plan; }
  void Lookup(LookupBatch batch, Buffer keep_alive, absl::Time deadline, LookupFrames frames,
              LookupDone done) override;
  void Update(UpdateBatch batch, Buffer keep_alive, absl::Time deadline, UpdateDone done) override;
  absl::Status ReadRows(const RowsQuery& query,
                        const std::function<absl::Status(Buffer)>& sink) override;
  void Sync(const SyncQuery& query, absl::Time deadline, SyncDone done) override;
  void ApplyReplicated(ReplicaMessage message, Buffer keep_alive, absl::Time deadline,
                       ReplicaDone done) override;
  void set_replica_transport(ReplicaTransport* transport) override {
    replicator_.SetTransport(transport);
  }
  void set_journal(Journal* journal) override { journal_ = journal; }
  void Repeat(DecidedUpdate update, Buffer keep_alive, UpdateDone done) override;
  UnitHost& units() override { return *units_; }
  void ExplainId(TableId table, RowId id, ExplainDone done) override;
  void SurveyTable(TableId table, std::uint64_t step, SurveyDone done) override;
  void SweepTable(const SweepQuery& query, absl::Time deadline, SweepDone done) override;
  absl::StatusOr<std::shared_ptr<EvictionLog>> Evictions(TableId table) override;
  absl::StatusOr<std::vector<UnitContent>> InspectTable(TableId table) override;
  std::vector<std::int64_t> device_used_bytes() const override;

 private:
  NodeContext Context() { return {options_, pool_, devices_, executors_.get(), journal_}; }
  NodeTablesPtr tables() const;
  void SetTables(NodeTablesPtr tables);
  absl::StatusOr<std::unique_ptr<RowStore>> MakeStore(const TableSpec& spec, const Slice& slice);
  TableMaker Maker();
  absl::Status ChangeTables(const UnitTables::Change& change);
  void SetReplicas(const NodeTables& tables);
  static absl::Status CheckSameNode(const NodeTables& old, const Plan& plan, NodeId self);
  absl::Status TakeOver(const NodeTables& old, const NodeTables& next);
  void SetSpecs(const NodeTables& tables, std::uint32_t device);

  // `status` with the node and its plan in front, where the sender's view of the plan matters.
  absl::Status Explain(const absl::Status& status) const;
  // Submits a task that has a `done`, and answers when it is refused.
  template <typename Task, typename TakeDone>
  void Submit(std::unique_ptr<Task> task, DeviceSet devices, std::size_t bytes, TakeDone take_done);
  // NotFound, InvalidArgument: not a ZCH table.
  absl::StatusOr<NodeTable> FindZch(TableId table) const;
  void TakeSnapshot(TableId table, SnapshotDone done);
  absl::StatusOr<std::unique_ptr<UpdateTask>> MakeReplicaUpdate(NodeTablesPtr tables,
                                                                const NodeTable& table,
                                                                ReplicaMessage message,
                                                                Buffer keep_alive,
                                                                absl::Time deadline);
  void InstallPiece(const NodeTable& table, ReplicaMessage message, ReplicaDone done);

  const ShardNodeOptions options_;
  BufferPool& pool_;  // Not owned; outlives this object.
  const ShardMetrics metrics_;
  Journal* journal_ = nullptr;  // Not owned; may be null. Constant once requests come.

  std::vector<std::unique_ptr<Device>> devices_;  // Constant after construction.
  Mutex install_mu_;  // One change of the tables at a time; before tables_mu_. Not taken on device
                      // threads: who holds it waits for them.
  mutable Mutex tables_mu_;
  NodeTablesPtr tables_ ABSL_GUARDED_BY(tables_mu_);
  Replicator replicator_;
  // After what their tasks use.
  std::unique_ptr<DeviceExecutors> executors_;
  std::unique_ptr<UnitTables> units_;
};

Replicator::Options ReplicatorOptions(const ShardNodeOptions& options) {
  Replicator::Options replicator;
  replicator.incarnation = NewIncarnation();
  replicator.backlog_max = options.replica_backlog_max;
  replicator.backlog_bytes_max = options.replica_backlog_bytes_max;
  replicator.timeout = options.replica_timeout;
  replicator.backoff = options.replica_backoff;
  replicator.probe_interval = options.replica_probe_interval;
  replicator.clock = options.clock;
  return replicator;
}

ShardNodeImpl::ShardNodeImpl(ShardNodeOptions options, BufferPool& pool)
    : options_(std::move(options)),
      pool_(pool),
      metrics_(options_.metrics),
      tables_(std::make_shared<const NodeTables>()),
      replicator_(ReplicatorOptions(options_), [this](TableId table, SnapshotDone done) {
        TakeSnapshot(table, std::move(done));
      }) {
  const auto count = static_cast<std::uint32_t>(options_.devices.size());
  std::vector<std::unique_ptr<Communicator>> ranks = MakeHostCommunicators(count);
  for (std::uint32_t d = 0; d < count; ++d) {
    devices_.push_back(std::make_unique<Device>(options_.devices[d], options_.threads_per_device));
    devices_.back()->communicator = std::move(ranks[d]);
    DeviceMetrics(options_.metrics, d)
        .memory_bytes.Set(static_cast<double>(options_.devices[d].memory_bytes));
  }
  DeviceExecutors::Options executors;
  executors.devices = count;
  executors.tasks_max_per_device = options_.queued_requests_max_per_device;
  executors.bytes_max = options_.queued_bytes_max;
  executors.node_name = options_.name;
  executors.metrics = options_.metrics;
  executors_ = std::make_unique<DeviceExecutors>(executors);
  units_ = std::make_unique<UnitTables>(UnitTables::Node{
      *executors_, [this] { return tables(); },
      [this](const UnitTables::Change& change) { return ChangeTables(change); }, Maker()});
}

ShardNodeImpl::~ShardNodeImpl() {
  replicator_.Stop();  // It makes snapshots with the executors, and this one stores.
  units_->Stop();
  executors_.reset();
}

NodeTablesPtr ShardNodeImpl::tables() const {
  MutexLock lock(tables_mu_);
  return tables_;
}

void ShardNodeImpl::SetTables(NodeTablesPtr tables) {
  MutexLock lock(tables_mu_);
  tables_.swap(tables);
}

absl::StatusOr<std::unique_ptr<RowStore>> ShardNodeImpl::MakeStore(const TableSpec& spec,
                                                                   const Slice& slice) {
  Device& device = *devices_[slice.device.index];
  return HostRowStore::Create(spec, slice, device.budget, device.pool);
}

TableMaker ShardNodeImpl::Maker() {
  TableMaker maker;
  maker.devices = static_cast<std::uint32_t>(devices_.size());
  maker.make_store = [this](const TableSpec& spec, const Slice& slice) {
    return MakeStore(spec, slice);
  };
  maker.metrics = options_.metrics;
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
  absl::StatusOr<NodeTablesPtr> next = NextTables(*old, plan, self, Maker());
  if (!next.ok()) return Annotate(next.status(), context());
  if (const absl::Status taken = TakeOver(*old, **next); !taken.ok()) {
    return Annotate(taken, context());
  }
  SetReplicas(**next);
  SetTables(*next);
  metrics_.plan_version.Set(static_cast<double>(ToInt(plan->version())));
  LogInfo("shard", "plan installed node=", options_.name, " version=", ToInt(plan->version()),
          " tables=", (*next)->tables.size());
  return absl::OkStatus();
}

void ShardNodeImpl::SetReplicas(const NodeTables& tables) {
  std::vector<Replicator::ReplicatedTable> replicated;
  for (const auto& [id, table] : tables.tables) {
    if (table.replicas.empty()) continue;
    replicated.push_back({TableId{id}, table.replicas, table.shard()->metrics()});
  }
  replicator_.SetReplicas(replicated);
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
  const bool writes = journal_ != nullptr && !SameSpecs(*old.plan, *next.plan);
  absl::Status written;
  RunOnDevices(*executors_, DeviceSet::First(executors_->devices()), [&](std::uint32_t device) {
    if (writes) {
      EMBLA_CHECK(devices_[device]->communicator->Barrier().ok());
      if (device == 0) written = journal_->WritePlan(*next.plan, next.self);
      EMBLA_CHECK(devices_[device]->communicator->Barrier().ok());
    }
    if (written.ok()) SetSpecs(next, device);
  });
  return written;
}

// Replicas take them from the updates instead.
void ShardNodeImpl::SetSpecs(const NodeTables& tables, std::uint32_t device) {
  for (const auto& [id, table] : tables.tables) {
    if (!table.is_primary) continue;
    for (const std::shared_ptr<TableShard>& shard : table.shards) {
      if (!shard->devices().Has(device)) continue;
      const absl::Status status = shard->SetSpec(device, table.spec, tables.plan->version());
      EMBLA_CHECK(status.ok());  // NextTables has checked that the shape is the same.
    }
  }
}

absl::Status ShardNodeImpl::Explain(const absl::Status& status) const {
  if (!absl::IsFailedPrecondition(status) && !absl::IsUnavailable(status)) return status;
  return absl::Status(status.code(),
                      absl::StrCat("node ", options_.name, " at plan ", ToInt(plan()->version()),
                                   ": ", status.message(),
                                   absl::IsFailedPrecondition(status) ? "; refresh the plan" : ""));
}

template <typename Task, typename TakeDone>
void ShardNodeImpl::Submit(std::unique_ptr<Task> task, DeviceSet devices, std::size_t bytes,
                           TakeDone take_done) {
  Task* const typed = task.get();
  std::unique_ptr<DeviceTask> queued = std::move(task);
  const absl::Status status = executors_->Submit(queued, devices, bytes);
  if (!status.ok()) take_done (*typed)(status);
}

void ShardNodeImpl::Lookup(LookupBatch batch, Buffer keep_alive, absl::Time deadline,
                           LookupFrames frames, LookupDone done) {
  NodeTablesPtr tables = this->tables();
  if (batch.parts.empty()) return done(LookupResult{tables->plan->version(), Buffer()});
  absl::StatusOr<std::unique_ptr<LookupTask>> task =
      LookupTask::Make(Context(), std::move(tables), std::move(batch), deadline, std::move(frames));
  if (!task.ok()) return done(Explain(task.status()));
  (*task)->SetCaller(std::move(keep_alive),
                     [this, done = std::move(done)](absl::StatusOr<LookupResult> result) {
                       if (!result.ok()) return done(Explain(result.status()));
                       done(std::move(result));
                     });
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(*std::move(task), devices, bytes, [](LookupTask& task) { return task.TakeDone(); });
}

void ShardNodeImpl::Update(UpdateBatch batch, Buffer keep_alive, absl::Time deadline,
                           UpdateDone done) {
  NodeTablesPtr tables = this->tables();
  if (batch.parts.empty()) return done(UpdateResult{tables->plan->version(), false});
  const auto update =
      std::make_shared<const SharedUpdate>(SharedUpdate{std::move(batch), std::move(keep_alive)});
  absl::StatusOr<std::unique_ptr<UpdateTask>> task =
      UpdateTask::Make(Context(), std::move(tables), update, std::nullopt, deadline);
  if (!task.ok()) return done(Explain(task.status()));
  if ((*task)->replicates() && !replicator_.has_transport()) {
    return done(Explain(absl::UnavailableError("this node cannot reach the replicas yet")));
  }
  (*task)->SetCaller(replicator_,
                     [this, done = std::move(done)](const absl::StatusOr<UpdateResult>& result) {
                       if (!result.ok()) return done(Explain(result.status()));
                       if (result->duplicate) metrics_.updates_replayed.Add();
                       done(result);
                     });
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(*std::move(task), devices, bytes, [](UpdateTask& task) { return task.TakeDone(); });
}

void ShardNodeImpl::Repeat(DecidedUpdate update, Buffer keep_alive, UpdateDone done) {
  NodeTablesPtr tables = this->tables();
  // Requests that began under a plan with a table may be behind the plan without it.
  std::erase_if(update.batch.parts, [&](const UpdatePart& part) {
    return tables->tables.find(ToInt(part.table)) == tables->tables.end();
  });
  if (update.batch.parts.empty()) return done(UpdateResult{tables->plan->version(), false});
  const auto shared = std::make_shared<const SharedUpdate>(
      SharedUpdate{std::move(update.batch), std::move(keep_alive)});
  absl::StatusOr<std::unique_ptr<UpdateTask>> task = UpdateTask::MakeRepeated(
      Context(), std::move(tables), shared, std::move(update.tables), update.time);
  if (!task.ok()) return done(task.status());
  (*task)->SetCaller(replicator_, std::move(done));
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(*std::move(task), devices, bytes, [](UpdateTask& task) { return task.TakeDone(); });
}

absl::Status ShardNodeImpl::ReadRows(const RowsQuery& query,
                                     const std::function<absl::Status(Buffer)>& sink) {
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> table = tables->Find(query.table, PlanVersion{});
  if (!table.ok()) return Explain(table.status());
  EMBLA_ASSIGN_OR_RETURN(std::shared_ptr<TableShard> shard, (*table)->ShardOf(query.replica_group));
  EMBLA_ASSIGN_OR_RETURN(
      const std::unique_ptr<RowReader> reader,
      RowReader::Create(std::move(shard), (*table)->spec, query, *executors_, pool_));
  FunctionSink rows(sink);
  return CopyRows(*reader, rows);
}

void ShardNodeImpl::Sync(const SyncQuery& query, absl::Time deadline, SyncDone done) {
  NodeTablesPtr tables = this->tables();
  absl::StatusOr<std::unique_ptr<SyncTask>> task =
      SyncTask::Make(Context(), std::move(tables), query, deadline);
  if (!task.ok()) return done(Explain(task.status()));
  (*task)->SetCaller(std::move(done));
  const DeviceSet devices = (*task)->devices();
  if (devices.empty()) return (*task)->Finish();  // No table has groups.
  Submit(*std::move(task), devices, 0, [](SyncTask& task) { return task.TakeDone(); });
}

void ShardNodeImpl::ExplainId(TableId table_id, RowId id, ExplainDone done) {
  const absl::StatusOr<NodeTable> table = FindZch(table_id);
  if (!table.ok()) return done(table.status());
  executors_->SubmitControl(std::make_unique<ExplainTask>(table->shard(), id, std::move(done)),
                            table->shard()->devices());
}

absl::StatusOr<NodeTable> ShardNodeImpl::FindZch(TableId id) const {
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> table = tables->Find(id, PlanVersion{});
  if (!table.ok()) return Explain(table.status());
  if ((*table)->spec.zch.has_value()) return **table;
  return absl::InvalidArgumentError(
      absl::StrCat("table ", (*table)->spec.name, " is no zch table: its ids are its rows"));
}

void ShardNodeImpl::SurveyTable(TableId table_id, std::uint64_t step, SurveyDone done) {
  const absl::StatusOr<NodeTable> table = FindZch(table_id);
  if (!table.ok()) return done(table.status());
  executors_->SubmitControl(
      std::make_unique<SurveyTask>(table->shard(), executors_->devices(), step, std::move(done)),
      table->shard()->devices());
}

void ShardNodeImpl::SweepTable(const SweepQuery& query, absl::Time deadline, SweepDone done) {
  const absl::StatusOr<NodeTable> table = FindZch(query.table);
  if (!table.ok()) return done(table.status());
  if (query.sweep.rule == ZchSweep::Rule::kExpired &&
      table->spec.zch->policy != zch::Policy::kTtl) {
    return done(absl::InvalidArgumentError(absl::StrCat(
        "table ", table->spec.name, " has no TTLs: sweep what has been idle instead")));
  }
  auto task =
      std::make_unique<SweepTask>(Context(), table->shard(), query, deadline, std::move(done));
  const DeviceSet devices = task->devices();
  Submit(std::move(task), devices, 0, [](SweepTask& task) { return task.TakeDone(); });
}

absl::StatusOr<std::shared_ptr<EvictionLog>> ShardNodeImpl::Evictions(TableId table_id) {
  EMBLA_ASSIGN_OR_RETURN(const NodeTable table, FindZch(table_id));
  if (table.shard()->evictions() != nullptr) return table.shard()->evictions();
  return absl::FailedPreconditionError(
      absl::StrCat("table ", table.spec.name,
                   " keeps no evicted rows: it was made with eviction_buffer_bytes 0"));
}

absl::StatusOr<std::vector<UnitContent>> ShardNodeImpl::InspectTable(TableId table_id) {
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> table = tables->Find(table_id, PlanVersion{});
  if (!table.ok()) return Explain(table.status());
  return embla::InspectTable(**table, *executors_, pool_);
}

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

std::vector<std::int64_t> ShardNodeImpl::device_used_bytes() const {
  std::vector<std::int64_t> used;
  for (const std::unique_ptr<Device>& device : devices_) {
    used.push_back(static_cast<std::int64_t>(device->budget.used_bytes()));
  }
  return used;
}

}  // namespace

absl::Status ShardNodeOptions::Validate() const {
  if (devices.empty() || devices.size() > kDevicesPerNodeMax) {
    return absl::InvalidArgumentError(absl::StrCat("node has ", devices.size(), " devices, 1 to ",
                                                   kDevicesPerNodeMax, " are possible"));
  }
  for (const DeviceSpec& device : devices) {
    if (device.kind != DeviceKind::kCpu) {
      return absl::InvalidArgumentError("only CPU devices can hold rows in this build");
    }
    if (device.memory_bytes <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("device with ", device.memory_bytes, " bytes of memory"));
    }
  }
  if (threads_per_device == 0 || queued_requests_max_per_device == 0 || queued_bytes_max == 0 ||
      reply_bytes_max == 0 || replica_backlog_max == 0) {
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
  return std::unique_ptr<ShardNode>(new ShardNodeImpl(std::move(options), pool));
}

}  // namespace embla
