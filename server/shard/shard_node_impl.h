// The node itself. shard_node.cc makes it and takes plans; shard_node_requests.cc,
// shard_node_replicas.cc and shard_node_decisions.cc turn requests, messages to copies and
// decisions of an earlier process into tasks on its devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "server/shard/journal.h"
#include "server/shard/node_context.h"
#include "server/shard/node_image.h"
#include "server/shard/node_tables.h"
#include "server/shard/replica_tasks.h"
#include "server/shard/replicator.h"
#include "server/shard/session_gate.h"
#include "server/shard/shard_node.h"
#include "server/shard/unit_tables.h"

namespace embla {

struct PlannedTable;

class ShardNodeImpl final : public ShardNode, private NodeImages {
 public:
  ShardNodeImpl(ShardNodeOptions options, NodeDevices devices, BufferPool& pool);
  ~ShardNodeImpl() override;

  absl::Status InstallPlan(PlanPtr plan, NodeId self) override;
  PlanPtr plan() const override { return tables()->plan; }
  void Lookup(LookupBatch batch, absl::Time deadline, LookupFrames frames,
              LookupDone done) override;
  void Update(UpdateBatch batch, absl::Time deadline, UpdateDone done) override;
  absl::Status ReadRows(const RowsQuery& query,
                        const std::function<absl::Status(Buffer)>& sink) override;
  void Sync(const SyncQuery& query, absl::Time deadline, SyncDone done) override;
  void ApplyReplicated(ReplicaMessage message, absl::Time deadline, ReplicaDone done) override;
  CopyView ViewCopy(TableId table) const override;
  SessionGate& sessions() override { return sessions_; }
  void LeadAsItIs(TableId table) override;
  absl::Status CloseSessions(const ClosedSessions& closed) override;
  void set_replica_transport(ReplicaTransport* transport) override;
  void BeginStop() override;
  void set_journal(Journal* journal) override;
  void Apply(Decision decision, AppliedDone done) override;
  UnitHost& units() override { return *units_; }
  NodeImages& images() override { return *this; }
  void ExplainId(TableId table, RowId id, ExplainDone done) override;
  void SurveyTable(TableId table, std::uint64_t step, SurveyDone done) override;
  void SweepTable(const SweepQuery& query, absl::Time deadline, SweepDone done) override;
  absl::StatusOr<std::shared_ptr<EvictionLog>> Evictions(TableId table) override;
  absl::StatusOr<std::vector<UnitContent>> InspectTable(TableId table,
                                                        const GivenUp& given_up) override;
  std::vector<UnitStandings> OwnedUnits() override;
  std::vector<StepReport> StepReports() const override;
  std::vector<std::int64_t> device_used_bytes() const override;
  std::vector<std::string> device_stopped() const override;

  // For tests that make a device's ways to others fail. Requires: the node has no work.
  Device& device(std::uint32_t index) { return *devices_[index]; }

 private:
  absl::StatusOr<Taken> Take(const std::function<absl::Status()>& meanwhile) override;
  void Read(const RowWindow& window, bool changed_only,
            std::function<void(absl::StatusOr<WindowRead>)> done) override;
  absl::Status Begin(const NodeImage& image) override;
  void Write(const RowWindow& window, std::uint32_t replica_group, Buffer bytes,
             std::function<void(absl::Status)> done) override;
  void End() override;
  // While all devices stand still. Unavailable: something is on its way.
  absl::Status TakeStill(const std::vector<PlannedTable>& planned, Taken& taken);

  NodeContext Context() {
    return {options_, pool_, devices_, executors_.get(), journal_, &sessions_, &tables_now_};
  }
  // Takes an update with a claim.
  void Contribute(NodeTablesPtr tables, UpdateBatch batch, absl::Time deadline, UpdateDone done);
  // On the lead device, in its order: units of a table may have changed.
  void LookAtSteps(TableId table);
  void FollowSteps(const NodeTables& next, std::uint32_t device);
  void StopSteps(const NodeTables& tables, const absl::Status& why);
  // Answers updates of copies that wait for others.
  void CloseInboxes();
  NodeTablesPtr tables() const;
  void SetTables(NodeTablesPtr tables);
  TableMaker Maker();
  absl::Status ChangeTables(const UnitTables::Change& change);
  // `image` may be null; else the plan's tables begin with it.
  absl::Status Install(PlanPtr plan, NodeId self, const NodeImage* image)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(install_mu_);
  void SetReplicas(const NodeTables& tables);
  void TakeRoles(const NodeTables& tables, std::uint32_t device);
  // A copy has begun to lead, by hyper-parameters that it was told by the primary before.
  void TakeSpecs(TableId table);
  static absl::Status CheckSameNode(const NodeTables& old, const Plan& plan, NodeId self);
  absl::Status TakeOver(const NodeTables& old, const NodeTables& next);
  void SetSpecs(const NodeTables& old, const NodeTables& tables, std::uint32_t device);

  // `status` with the node and its plan in front, where the sender's view of the plan matters.
  absl::Status Explain(const absl::Status& status) const;
  // The same for callbacks that may run when the node is no more: those that wait for the journal.
  static absl::Status ExplainAs(const std::string& node, PlanVersion plan,
                                const absl::Status& status);
  // The same, without asking for a newer plan: a contribution is refused for its step.
  static absl::Status SignAs(const std::string& node, PlanVersion plan, const absl::Status& status);
  // Submits a task that has a `done`, and answers when it is refused.
  template <typename Task, typename TakeDone>
  void Submit(std::unique_ptr<Task> task, DeviceSet devices, std::size_t bytes, TakeDone take_done,
              SessionId origin = SessionId{});
  // NotFound, InvalidArgument: not a ZCH table.
  absl::StatusOr<NodeTable> FindZch(TableId table) const;
  void ReadCopy(TableId table, std::size_t number, WindowDone done);
  void WriteGone(const CopyGone& gone, const std::function<void(absl::Status)>& done);
  void Confirmed(TableId table, const std::shared_ptr<CopyState>& copy);
  // The copy of a table leads, if it is to and may.
  void LeadCopy(TableId table);
  void ApplyAgain(DecidedUpdate update, AppliedDone done);
  void ApplyAgain(CopiedUpdate update, AppliedDone done);
  void ApplyAgain(CopiedRows piece, AppliedDone done);
  void ApplyAgain(const CopyConfirmed& confirmed, AppliedDone done);
  void ApplyAgain(const CopyGone& gone, AppliedDone done);
  void ApplyAgain(DecidedSync sync, AppliedDone done);
  void ApplyAgain(const DecidedSweep& sweep, AppliedDone done);
  void ApplyAgain(const ClosedSessions& closed, AppliedDone done);
  void ApplyAgain(InstalledPlan installed, AppliedDone done);
  void ApplyAgain(const DecidedBefore& before, AppliedDone done);
  // The copy that `message` is for. Else it is answered: there is none.
  const NodeTable* FindCopy(const NodeTables& tables, const ReplicaMessage& message,
                            const ReplicaDone& done) const;
  void QueueUpdate(CopyInbox::Update update);
  void Follow(const NodeTablesPtr& tables, const NodeTable& table, ReplicaMessage message,
              ReplicaDone done);
  // The copy here of a data_parallel table; null: there is none. Kept by `tables`.
  static const NodeTable* FindCopy(const NodeTables& tables, TableId table);
  void Heard(const NodeTable& table, bool serves, std::uint64_t life, const ReplicaAck& ack);
  void Confirm(const NodeTable& table, std::optional<std::uint64_t> life);
  static absl::Status CheckReplicated(const NodeTables& tables, const NodeTable& table,
                                      const ReplicaMessage& message);
  // The two changes of a copy that its primary orders. `term` and `sender` are of the primary that
  // sends them now; the journal's have none.
  void ApplyCopied(const NodeTablesPtr& tables, const NodeTable& table, CopiedUpdate update,
                   std::optional<PlanVersion> term, absl::Time deadline, const CopyApplied& applied,
                   ReplicaDone done);
  void ApplyCopied(const NodeTable& table, CopiedRows piece,
                   std::optional<InstallSnapshotTask::Sender> sender, const CopyApplied& applied,
                   ReplicaDone done);

  const ShardNodeOptions options_;
  BufferPool& pool_;  // Not owned; outlives this object.
  const CopyInbox::Queue queue_update_ = [this](CopyInbox::Update update) {
    QueueUpdate(std::move(update));
  };
  const ShardMetrics metrics_;
  Journal* journal_ = nullptr;  // Not owned; may be null. Constant once requests come.

  const std::unique_ptr<NcclLibrary> nccl_;       // May be null. Outlives the devices.
  std::vector<std::unique_ptr<Device>> devices_;  // Constant.
  Mutex install_mu_;  // One change of the tables at a time; before tables_mu_. Not taken on device
                      // threads: who holds it waits for them.
  mutable Mutex tables_mu_;
  NodeTablesPtr tables_ ABSL_GUARDED_BY(tables_mu_);
  const std::function<NodeTablesPtr()> tables_now_ = [this] { return tables(); };
  SessionGate sessions_;
  ClosedSessions sessions_written_ ABSL_GUARDED_BY(install_mu_);
  Replicator replicator_;
  // After what their tasks use.
  std::unique_ptr<DeviceExecutors> executors_;
  std::unique_ptr<UnitTables> units_;
};

template <typename Task, typename TakeDone>
void ShardNodeImpl::Submit(std::unique_ptr<Task> task, DeviceSet devices, std::size_t bytes,
                           TakeDone take_done, SessionId origin) {
  Task* const typed = task.get();
  std::unique_ptr<DeviceTask> queued = std::move(task);
  const absl::Status status =
      origin == SessionId{}
          ? executors_->Submit(queued, devices, bytes)
          : executors_->SubmitOrRun(queued, devices, bytes, RequestOrigin{ToInt(origin)});
  if (!status.ok()) take_done (*typed)(status);
}

}  // namespace embla
