// One shard server: its devices, its tables, its current plan. The RPC room calls exactly this.
//
// Every device has a thread that executes batches in order. A batch is queued on the devices it
// touches, on all of them at the same place in the order, and each device does its own slices.
//
// Thread safety: every public method may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/given_up.h"
#include "core/base/ids.h"
#include "core/metrics/metrics.h"
#include "core/plan/plan.h"
#include "core/plan/step_report.h"
#include "core/rows/refused_unit.h"
#include "core/rows/request.h"
#include "server/collective/collectives.h"
#include "server/migration/unit_standing.h"
#include "server/shard/averaged_rows.h"
#include "server/shard/decision.h"
#include "server/shard/explain_task.h"
#include "server/shard/replica_transport.h"
#include "server/shard/survey_task.h"
#include "server/storage/device_lanes.h"
#include "server/storage/row_cache.h"

namespace embla {

namespace gpu {
class Device;
}  // namespace gpu

struct ShardNodeOptions {
  std::string name;  // The node's name in the plan; for messages.
  std::vector<DeviceSpec> devices;
  // By device; null for CPU devices, and empty when all are. Not owned; outlive the node. Several
  // devices may share one.
  std::vector<gpu::Device*> gpus = {};
  Collectives collectives = Collectives::kHost;  // Not kAuto.
  // 0: the rows of devices that are GPUs are on the GPU. Otherwise they are in host memory,
  // `memory_bytes` per device, and each device has this many bytes of its GPU for those in use.
  std::size_t gpu_cache_bytes = 0;
  RowCache::Policy gpu_cache_policy = RowCache::Policy::kLru;
  // About how many bytes travel to or from a GPU at once.
  std::size_t gpu_piece_bytes = DeviceLanes::kPieceBytes;
  std::uint32_t threads_per_device = 1;
  std::size_t queued_requests_max_per_device = 1024;
  std::size_t queued_bytes_max = std::size_t{512}
                                 << 20;                  // Requests and their replies, all devices.
  std::size_t reply_bytes_max = std::size_t{256} << 20;  // Bytes of one lookup.

  std::size_t replica_backlog_max = 1024;  // Updates kept per replica; a replica further behind
                                           // gets a copy of the table instead.
  std::size_t replica_backlog_bytes_max = std::size_t{256} << 20;  // The same, in bytes.
  // Rows of a window of a copy, which has about 1 MiB otherwise.
  std::int64_t replica_window_rows_max = std::int64_t{1} << 40;
  absl::Duration replica_timeout = absl::Seconds(5);  // Deadline of one message to a replica.
  absl::Duration replica_backoff =
      absl::Milliseconds(20);  // Doubles, up to replica_probe_interval.
  absl::Duration replica_probe_interval = absl::Seconds(1);

  const Clock* clock = &Clock::Real();  // Not owned.
  Metrics* metrics = nullptr;           // Not owned; null counts nothing.

  absl::Status Validate() const;
};

struct LookupResult {
  PlanVersion plan_version{};
  // Output rows of all parts in order, in the batch's wire dtype; without those that went to
  // LookupFrames before.
  SharedBuffer rows;
  std::size_t sent_bytes = 0;  // Bytes of the rows that went to LookupFrames.
  // Not empty: units that have moved away, and there are no rows. Only if the batch takes that.
  std::vector<RefusedUnit> refused = {};
};

// Takes the first rows of a long reply while the others are still gathered.
struct LookupFrames {
  // About how many bytes of rows are worth a call of `send`.
  std::size_t bytes = 0;
  // Calls come one after the other, in the order of the rows, on device threads, and before `done`,
  // which always gets the last rows; after an error, `done` gets just that. It must not block.
  // Null: `done` gets all rows.
  std::function<void(PlanVersion plan_version, SharedBuffer rows)> send;
};

struct UpdateResult {
  PlanVersion plan_version{};
  bool duplicate = false;  // Applied before; nothing was done now.
  // Rows that were left out as their units are on the move; everything else is applied.
  std::vector<RefusedUnit> refused = {};
  // Refusals of a contribution to a synchronous step.
  std::vector<RefusedClaim> refused_claims = {};
};

// The result of a decision that is applied again.
struct Applied {
  // Tables whose replica groups are due for averaging: a decision of its own.
  std::vector<TableId> sync_due = {};
};

// The result of averaging a table's copies on this node. Divergence is that of the weights from
// their mean; tables without replica groups have none.
struct TableSync {
  TableId table{};
  std::uint32_t replica_groups = 1;
  std::uint64_t values = 0;  // Weights looked at, of all copies.
  double divergence_max = 0.0;
  double squares = 0.0;  // Sum over the values of (weight - mean)^2.
  // All rows that are here, but for units that are being handed over. By columns, then rows.
  std::vector<AveragedRows> averaged = {};
};
struct SyncResult {
  PlanVersion plan_version{};
  std::vector<TableSync> tables;  // In the order of the query.
};

// The result of a sweep of a ZCH table on this node.
struct SweepResult {
  std::size_t evicted = 0;         // Ids that lost their rows.
  std::vector<RowInterval> swept;  // The rows of the buckets that were swept, ascending.
};

using SweepDone = std::function<void(absl::StatusOr<SweepResult>)>;
using SyncDone = std::function<void(absl::StatusOr<SyncResult>)>;
using LookupDone = std::function<void(absl::StatusOr<LookupResult>)>;
using UpdateDone = std::function<void(absl::StatusOr<UpdateResult>)>;
using AppliedDone = std::function<void(absl::StatusOr<Applied>)>;

class Journal;
class NodeImages;
class SessionGate;
struct ClosedSessions;
class UnitHost;
struct UnitContent;

class ShardNode {
 public:
  // `pool` is not owned and outlives the node. InvalidArgument: options.
  // FailedPrecondition: the devices cannot meet by `collectives`; says why. Errors of gpu::Device.
  static absl::StatusOr<std::unique_ptr<ShardNode>> Create(ShardNodeOptions options,
                                                           BufferPool& pool);
  // Finishes what is queued. Every `done` has run when it returns, except those of updates that
  // wait for the journal: these run when the journal closes, and need no node any more. The
  // replica transport and the journal must still be there.
  virtual ~ShardNode() = default;

  // Allocates the tables that are new in `plan` for this node, applies changed hyper-parameters and
  // frees the tables that are gone. Units of an existing table are added and removed by moves, not
  // by plans; copies of data_parallel tables are added, removed and change their role with plans.
  // Requests go on meanwhile against the old plan. Plans not newer than the current one are
  // ignored. Nothing changed on error: ResourceExhausted (no memory, or no room in the journal),
  // FailedPrecondition (a slice of a data_parallel table would have to move; a plan of another
  // cluster, or for another node), Unavailable (the journal), InvalidArgument.
  virtual absl::Status InstallPlan(PlanPtr plan, NodeId self) = 0;
  virtual PlanPtr plan() const = 0;  // Never null: version 0 before the first one.

  // Queues the batch on the devices it touches and returns; `done` runs once, on a device thread
  // or, for early errors, on the caller's. It must not block. Expired batches are dropped from the
  // queue.
  //
  // Errors: InvalidArgument, NotFound (unknown table), OutOfRange (id outside a table in bounds
  // mode error), FailedPrecondition (row, column or primary is elsewhere: refresh the plan),
  // Unavailable (the node has not installed the sender's plan yet), ResourceExhausted (queues
  // full), DeadlineExceeded.
  virtual void Lookup(LookupBatch batch, absl::Time deadline, LookupFrames frames,
                      LookupDone done) = 0;

  // Arguments are those of Lookup. An error means that nothing was applied, except Unavailable and
  // FailedPrecondition: a replicated table's update may have been applied here while a replica did
  // not answer before the deadline, or another node became the primary. The same (session, seq)
  // sent again, there, is applied once. With a journal, likewise: Unavailable when it broke under
  // the update; ResourceExhausted when it has no room.
  virtual void Update(UpdateBatch batch, absl::Time deadline, UpdateDone done) = 0;

  struct RowsQuery {
    TableId table{};
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    std::vector<RowId> row_ids;  // If not empty, these instead of the range.
    bool with_state = false;
    std::uint32_t replica_group = 0;
  };
  // Calls `sink` with encoded row blocks (core/rows/row_block.h) of about 1 MiB, on the caller's
  // thread, until all rows held here are sent or `sink` returns an error. Each block is consistent;
  // updates may come between two blocks. Must not be called on a device thread.
  virtual absl::Status ReadRows(const RowsQuery& query,
                                const std::function<absl::Status(Buffer)>& sink) = 0;

  struct SyncQuery {
    std::vector<TableId> tables;
    PlanVersion plan_version{};  // The plan that the sender knows.
  };
  // Queues the averaging of the tables' replica groups on this node and returns; `done` as for
  // Update. Weights and all optimizer state become the mean of the copies, step counts the largest,
  // between two updates, all tables at one place in the order. Units that are being handed over to
  // another node are left out: the result says which rows are averaged. Errors: NotFound,
  // FailedPrecondition, Unavailable, ResourceExhausted, DeadlineExceeded (nothing was done).
  virtual void Sync(const SyncQuery& query, absl::Time deadline, SyncDone done) = 0;

  // The replica's side: `message` comes from the table's primary. `done` as for Update.
  // Errors: FailedPrecondition (this node leads the table), Unavailable (the message's plan is not
  // installed here yet, or the sender is a deposed primary), InvalidArgument, DataLoss
  // (damaged row block), ResourceExhausted.
  virtual void ApplyReplicated(ReplicaMessage message, absl::Time deadline, ReplicaDone done) = 0;

  // This node's copy of a data_parallel table.
  struct CopyView {
    PlanVersion plan_version{};  // The plan that the other fields refer to.
    bool is_here = false;
    bool serves = false;   // Lookups: it has every acknowledged update.
    bool has_all = false;  // Likewise, as far as this node's journal knows.
    // True: this copy orders the updates, and waits for no copy that the plan does not give it.
    bool leads = false;
  };
  virtual CopyView ViewCopy(TableId table) const = 0;
  // The copy, which is to lead by the plan and waits for updates that no node has any more, leads
  // as it is. Nothing if it leads, or is not to.
  virtual void LeadAsItIs(TableId table) = 0;

  // The gate of sessions. Callers that take in requests verify them there before they call
  // Update; Lookup answers anybody. Lives as long as the node.
  virtual SessionGate& sessions() = 0;

  // Takes no updates of `closed.refused` from now on, whenever they were sent: PermissionDenied.
  // Their updates that had begun are over when it returns, and the process after this one will
  // refuse them, too. Forgets what it knew of updates of `closed.settled`. May be called again,
  // with more. Waits for the devices and the journal; must not be called on a device thread.
  // Errors: those of the journal; the sessions are refused all the same.
  virtual absl::Status CloseSessions(const ClosedSessions& closed) = 0;

  // Needed before updates of replicated tables whose primary copy is here; until then they fail
  // with Unavailable. Not owned; outlives the node. Call it once, after all that Apply and
  // InstallPlan take from an earlier journal of this node, and before anything else.
  virtual void set_replica_transport(ReplicaTransport* transport) = 0;

  // The node is about to end: updates that wait for replicas, now or later, fail with Unavailable.
  virtual void BeginStop() = 0;

  // Updates are answered when `journal` has them, and plans installed. Not owned; outlives the
  // node. Call it once, before requests and after all that Apply and InstallPlan take from an
  // earlier journal of this node.
  virtual void set_journal(Journal* journal) = 0;

  // Applies a decision of an earlier process of this node, in the order of its journal. `done` as
  // for Update. Tables that are not here any more
  // are left out. ResourceExhausted: queues are full, nothing was done. DataLoss: it does not fit
  // what is here. Of plans the errors of InstallPlan; plans and closed sessions are applied when it
  // returns.
  virtual void Apply(Decision decision, AppliedDone done) = 0;

  // Host on which live moves find and put units. Lives as long as the node.
  virtual UnitHost& units() = 0;
  // Snapshots of the node. Lives as long as the node.
  virtual NodeImages& images() = 0;

  // The next two run when the devices have nothing else to do; the caller bounds their number.
  // Explains `id` of a ZCH table. `done` as for Update. Errors: NotFound, InvalidArgument (not a
  // ZCH table), FailedPrecondition (the id's bucket is elsewhere).
  virtual void ExplainId(TableId table, RowId id, ExplainDone done) = 0;
  // Counts the node's part of a ZCH table. Ages are up to `step`. Errors: NotFound,
  // InvalidArgument.
  virtual void SurveyTable(TableId table, std::uint64_t step, SurveyDone done) = 0;

  struct SweepQuery {
    TableId table{};
    ZchSweep sweep;
    std::vector<RowInterval> rows;  // Rows of the buckets to be swept.
  };
  // Queues a sweep of a ZCH table and returns; `done` as for Update. Buckets that are not here or
  // on the move are left out. Errors: NotFound, InvalidArgument (not a ZCH table; rule kExpired
  // without policy ttl), ResourceExhausted, DeadlineExceeded (nothing was done).
  virtual void SweepTable(const SweepQuery& query, absl::Time deadline, SweepDone done) = 0;

  // The rows that ids of a ZCH table lost here. NotFound; FailedPrecondition: the table keeps none.
  virtual absl::StatusOr<std::shared_ptr<EvictionLog>> Evictions(TableId table) = 0;

  // Reads the node's part of a table, unit by unit (table_inspector.h). Takes as long as reading
  // all of its rows; must not be called on a device thread. NotFound; Cancelled: was given up.
  virtual absl::StatusOr<std::vector<UnitContent>> InspectTable(TableId table,
                                                                const GivenUp& given_up) = 0;

  // The units that this node serves, of all tables but those that are data_parallel. Waits for the
  // devices; must not be called on a device thread.
  virtual std::vector<UnitStandings> OwnedUnits() = 0;

  // One for every table with synchronous steps in the plan. Waits for nothing.
  virtual std::vector<StepReport> StepReports() const = 0;

  virtual std::vector<std::int64_t> device_used_bytes() const = 0;
  // For each device, why it no longer serves rows; empty: it does.
  virtual std::vector<std::string> device_stopped() const = 0;
};

}  // namespace embla
