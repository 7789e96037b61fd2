#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/replica_groups.h"
#include "server/shard/contribution_task.h"
#include "server/shard/lookup_task.h"
#include "server/shard/row_reader.h"
#include "server/shard/shard_node_impl.h"
#include "server/shard/sweep_task.h"
#include "server/shard/sync_task.h"
#include "server/shard/table_inspector.h"
#include "server/shard/trainer_update.h"

namespace embla {
namespace {

// Hands out rows to sinks that are functions.
class FunctionSink final : public RowSink {
 public:
  explicit FunctionSink(const std::function<absl::Status(Buffer)>& sink) : sink_(sink) {}
  absl::Status Write(Buffer block) override { return sink_(std::move(block)); }

 private:
  const std::function<absl::Status(Buffer)>& sink_;
};

}  // namespace

void ShardNodeImpl::Lookup(LookupBatch batch, absl::Time deadline, LookupFrames frames,
                           LookupDone done) {
  NodeTablesPtr tables = this->tables();
  const SessionId session = batch.session;
  if (batch.parts.empty()) return done(LookupResult{tables->plan->version(), Buffer()});
  absl::StatusOr<std::unique_ptr<LookupTask>> task =
      LookupTask::Make(Context(), std::move(tables), std::move(batch), deadline, std::move(frames));
  if (!task.ok()) return done(Explain(task.status()));
  (*task)->SetCaller([this, done = std::move(done)](absl::StatusOr<LookupResult> result) {
    if (!result.ok()) return done(Explain(result.status()));
    done(std::move(result));
  });
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(
      *std::move(task), devices, bytes, [](LookupTask& task) { return task.TakeDone(); }, session);
}

void ShardNodeImpl::Update(UpdateBatch batch, absl::Time deadline, UpdateDone done) {
  NodeTablesPtr tables = this->tables();
  const SessionId session = batch.session;
  if (batch.parts.empty() && !batch.claim.has_value()) {
    return done(UpdateResult{tables->plan->version(), false});
  }
  const absl::Status admitted =
      sessions_.Admit(batch.session, batch.seq, batch.first_incomplete, options_.clock->Now());
  if (!admitted.ok()) return done(admitted);
  const PlanVersion plan = tables->plan->version();
  if (batch.claim.has_value()) {
    return Contribute(std::move(tables), std::move(batch), deadline, std::move(done));
  }
  absl::StatusOr<std::unique_ptr<TrainerUpdate>> task =
      TrainerUpdate::Make(Context(), std::move(tables), std::move(batch), deadline);
  if (!task.ok()) return done(Explain(task.status()));
  if ((*task)->replicates() && !replicator_.has_transport()) {
    return done(Explain(absl::UnavailableError("this node cannot reach the replicas yet")));
  }
  (*task)->SetCaller(replicator_,
                     [name = options_.name, plan, replayed = metrics_.updates_replayed,
                      done = std::move(done)](const absl::StatusOr<UpdateResult>& result) {
                       if (!result.ok()) return done(ExplainAs(name, plan, result.status()));
                       if (result->duplicate) replayed.Add();
                       done(result);
                     });
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(
      *std::move(task), devices, bytes, [](TrainerUpdate& task) { return task.TakeDone(); },
      session);
}

void ShardNodeImpl::Contribute(NodeTablesPtr tables, UpdateBatch batch, absl::Time deadline,
                               UpdateDone done) {
  const SessionId session = batch.session;
  const PlanVersion plan = tables->plan->version();
  absl::StatusOr<std::unique_ptr<ContributionTask>> task =
      ContributionTask::Make(Context(), std::move(tables), std::move(batch), deadline);
  if (!task.ok()) return done(Explain(task.status()));
  (*task)->SetCaller([name = options_.name, plan, replayed = metrics_.updates_replayed,
                      done = std::move(done)](const absl::StatusOr<UpdateResult>& result) {
    if (!result.ok()) return done(SignAs(name, plan, result.status()));
    if (result->duplicate) replayed.Add();
    done(result);
  });
  const DeviceSet devices = (*task)->devices();
  const std::size_t bytes = (*task)->bytes();
  Submit(
      *std::move(task), devices, bytes, [](ContributionTask& task) { return task.TakeDone(); },
      session);
}

std::vector<StepReport> ShardNodeImpl::StepReports() const {
  std::vector<StepReport> reports;
  const NodeTablesPtr tables = this->tables();
  for (const auto& [id, steps] : tables->steps) reports.push_back(steps->Report());
  return reports;
}

absl::Status ShardNodeImpl::ReadRows(const RowsQuery& query,
                                     const std::function<absl::Status(Buffer)>& sink) {
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> table = tables->FindServed(query.table, PlanVersion{});
  if (!table.ok()) return Explain(table.status());
  if ((*table)->copy != nullptr) EMBLA_RETURN_IF_ERROR(Explain((*table)->copy->CheckServes()));
  EMBLA_RETURN_IF_ERROR(CheckGroup((*table)->spec, query.replica_group));
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<RowReader> reader,
                         RowReader::Create((*table)->shards[query.replica_group], (*table)->spec,
                                           query, *executors_, pool_));
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
  executors_->SubmitBackground(std::make_unique<ExplainTask>(table->shard(), id, std::move(done)),
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
  executors_->SubmitBackground(
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
  auto task = std::make_unique<SweepTask>(Context(), *table, query, deadline, std::move(done));
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

absl::StatusOr<std::vector<UnitContent>> ShardNodeImpl::InspectTable(TableId table_id,
                                                                     const GivenUp& given_up) {
  const NodeTablesPtr tables = this->tables();
  const absl::StatusOr<const NodeTable*> table = tables->Find(table_id, PlanVersion{});
  if (absl::IsFailedPrecondition(table.status())) return std::vector<UnitContent>();  // Elsewhere.
  if (!table.ok()) return Explain(table.status());
  return embla::InspectTable(**table, *executors_, pool_, given_up);
}

}  // namespace embla
