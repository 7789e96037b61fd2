// The primary's side of replicated tables: carries every update, in its order, to every node that
// has a copy of the table, and tells when all of them have applied it. docs/replication.md.
//
// Per table and replica there is one stream: a probe asks where the replica is, then come the
// updates that it lacks, one at a time, or a copy of the table when the gap is too wide. A message
// that fails is tried again, after a probe, for as long as the plan has the replica.
//
// A replica that the plan adds is brought up to date first; only then do updates wait for it, and
// it is told to serve lookups. One that the plan takes away is waited for until it says that it has
// heard of that: before, it answers lookups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "server/shard/decision.h"
#include "server/shard/replica_transport.h"
#include "server/shard/shard_node.h"

namespace embla {

// An update that several threads and streams look at.
struct SharedUpdate {
  UpdateBatch batch;  // Views keep_alive.
  Buffer keep_alive;
  std::vector<std::shared_ptr<const SharedUpdate>> also_views = {};  // Their memory.
};
using SharedUpdatePtr = std::shared_ptr<const SharedUpdate>;

// A copy of a table at one moment.
struct TableSnapshot {
  std::uint64_t order = 0;
  std::vector<Buffer> row_blocks;  // At least one.
  UnitWindows windows;             // The updates that the rows contain.
};
using SnapshotDone = std::function<void(absl::StatusOr<TableSnapshot>)>;
// Makes a snapshot of a table; `done` runs once, on any thread.
using TakeSnapshot = std::function<void(TableId table, SnapshotDone done)>;
// Writes down that `node`, which was to lose its copy, has lost it; `done` runs once, on any
// thread.
using WriteGone =
    std::function<void(const CopyGone& gone, const std::function<void(absl::Status)>& done)>;
// The copy of the table here has every acknowledged update, and that is written down.
using OnConfirmed = std::function<void(TableId table)>;

// Thread safety: every method may be called from any thread.
class Replicator {
 public:
  struct Options {
    std::size_t backlog_max = 1024;
    std::size_t backlog_bytes_max = std::size_t{256} << 20;
    absl::Duration timeout = absl::Seconds(5);
    absl::Duration backoff = absl::Milliseconds(20);
    absl::Duration probe_interval = absl::Seconds(1);
    const Clock* clock = &Clock::Real();  // Not owned; of deadlines only.
  };
  Replicator(Options options, TakeSnapshot take_snapshot, WriteGone write_gone,
             OnConfirmed on_confirmed);
  ~Replicator();

  // Sends nothing more and fails waiting callers, now and later, with Unavailable: a silent replica
  // does not keep the node from stopping.
  void BeginStop();
  // The same, and waits for what is in flight. The destructor does it otherwise.
  void Stop();

  // Not owned; outlives this object. Call after updates are repeated from a log, before anything
  // else.
  void SetTransport(ReplicaTransport* transport);
  bool has_transport() const;

  // The data_parallel tables on this node, by `plan`. If this copy is the primary, `replicas` are
  // the nodes of the other copies; otherwise `primary` is the primary's node, which is brought up
  // to date if this node was the primary. Tables that are not named any more are forgotten.
  struct ReplicatedTable {
    TableId table{};
    bool is_primary = true;
    PlanVersion primary_since{};
    std::vector<NodeSpec> replicas;
    NodeSpec primary;
    TableMetrics metrics;
  };
  void SetTables(const Plan& plan, const std::vector<ReplicatedTable>& tables);

  // The copy here begins to be the primary, after update `order`; nothing if it has begun. May come
  // before the plan that says so is set. Its replicas may serve since before: updates wait for
  // them.
  void Begin(TableId table, std::uint64_t reign, std::uint64_t order);
  // Another node leads the table, whose primary copy was here.
  void End(TableId table);
  // The node has lost its copy, and that is written down: updates do not wait for it any more.
  void Forget(TableId table, NodeId node);
  // A record about a copy that the journal has written.
  using CopyRecord = std::variant<CopyConfirmed, CopyGone>;
  // Returns a function that tells this object, soon, that `record` is written. The journal may call
  // it after this object is destroyed.
  std::function<void(absl::Status)> WhenWritten(CopyRecord record);
  void SayWritten(CopyRecord record) { WhenWritten(record)(absl::OkStatus()); }
  // Whether some node that is to lose its copy of the table may not have heard of it.
  bool HasLeaving(TableId table) const;

  // Takes update `order` of `table`; `parts` of the batch, by index, are the table's.
  // `plan_version` names the hyper-parameters that it was applied with.
  // Requires: orders of a table come one after the other, from that of Begin.
  void Append(TableId table, std::uint64_t order, const SharedUpdatePtr& update,
              const std::vector<std::uint32_t>& parts, PlanVersion plan_version);

  // Calls `done` once all replicas have applied the named orders, or with Unavailable, naming a
  // replica, when `deadline` has passed. FailedPrecondition: another node leads a table now.
  using TableOrder = std::pair<TableId, std::uint64_t>;
  void Wait(std::vector<TableOrder> orders, absl::Time deadline,
            std::function<void(absl::Status)> done);

 private:
  struct Entry {
    std::uint64_t order;
    SharedUpdatePtr update;
    std::vector<std::uint32_t> parts;
    PlanVersion plan_version;
  };
  // To one replica of one table.
  struct Stream {
    NodeSpec node;
    bool removed = false;     // Nothing is sent any more.
    bool is_leaving = false;  // Not in the plan any more, until that is written down to be over.
    bool is_gone = false;     // Leaving, and its node has heard of it.

    bool is_counted = false;    // Updates wait for it.
    std::uint64_t floor = 0;    // When it has this order, it has every acknowledged update.
    std::uint64_t life = 0;     // Life of the copy.
    bool is_confirmed = false;  // The copy knows that it may serve.

    bool probed = false;  // `acked` is what the replica said, and nothing has failed since.
    std::uint64_t acked = 0;
    std::deque<Entry> backlog;  // Consecutive orders, up to the table's.
    std::size_t backlog_bytes = 0;

    bool need_snapshot = false;
    std::deque<Buffer> snapshot;  // Pieces to be sent.
    UnitWindows snapshot_windows;
    std::uint64_t snapshot_order = 0;
    bool snapshot_begun = false;

    bool in_flight = false;  // A message is out, or a snapshot is being made.
    ReplicaMessage message;  // The one that is out.
    absl::Duration backoff;
    absl::Time not_before = absl::InfinitePast();
    absl::Time last_heard = absl::InfinitePast();
  };
  // Shared with the calls in flight: a plan may drop the stream meanwhile.
  using StreamPtr = std::shared_ptr<Stream>;
  struct Table {
    bool has_begun = false;
    bool is_planned = false;   // `streams` are those of a plan.
    bool is_outgoing = false;  // One stream, to the next primary.
    PlanVersion term{};
    std::uint64_t reign = 0;
    std::uint64_t order = 0;
    std::vector<StreamPtr> streams;
    TableMetrics metrics;
  };
  // Records that the journal has written, for the loop. The journal outlives the replicator.
  struct Written {
    explicit Written(Replicator* loop) : loop(loop) {}

    Mutex mu;                              // Before mu_.
    Replicator* loop ABSL_GUARDED_BY(mu);  // Null once the replicator has stopped.
    std::vector<CopyRecord> records ABSL_GUARDED_BY(mu);
  };
  struct Waiter {
    std::vector<TableOrder> orders;
    absl::Time deadline;
    std::function<void(absl::Status)> done;
  };
  enum class Action : std::uint8_t { kNone, kSend, kTakeSnapshot };

  // The streams of `old` under a new plan; `old` is null for a table that is new here.
  Table NextTable(const Plan& plan, const ReplicatedTable& wanted, const Table* old)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepLeaving(const Plan& plan, const Table& old, Table& next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Loop();
  void Wake();
  void TakeWritten();
  // Begins everything that can be begun; returns when to look again at the latest.
  absl::Time Pump();
  // Decides and prepares what `stream` does next.
  Action Next(TableId id, const Table& table, Stream& stream, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a replica at `order` has every acknowledged update, and will have.
  static bool MayServe(const Stream& stream, std::uint64_t order) {
    return stream.is_counted && !stream.is_leaving && stream.life != 0 && order >= stream.floor;
  }
  void PrepareUpdate(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PrepareSnapshotPiece(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(TableId id, const StreamPtr& stream);

  void HandleAck(TableId id, const StreamPtr& stream, const absl::StatusOr<ReplicaAck>& ack);
  void Accept(Table& table, Stream& stream, const ReplicaAck& ack)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins to count a stream that has caught up.
  void Count(const Table& table, Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // In the metrics: while updates wait for an answer, too.
  static void ShowLag(const Table& table);
  void HandleSnapshot(const StreamPtr& stream, absl::StatusOr<TableSnapshot> snapshot);
  // Begins again with a probe, later.
  void BackOff(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropBacklog(Stream& stream, std::uint64_t up_to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Landed(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // OK when nothing keeps `waiter` from its answer.
  absl::Status Missing(const Waiter& waiter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers callers that have waited long enough; returns the next deadline.
  absl::Time FinishWaiters();

  const Options options_;
  const TakeSnapshot take_snapshot_;
  const WriteGone write_gone_;
  const OnConfirmed on_confirmed_;
  const std::shared_ptr<Written> written_;

  mutable Mutex mu_;
  CondVar changed_;
  ReplicaTransport* transport_ ABSL_GUARDED_BY(mu_) = nullptr;
  PlanVersion plan_version_ ABSL_GUARDED_BY(mu_){};
  std::map<TableId, Table> tables_ ABSL_GUARDED_BY(mu_);
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
  std::size_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool work_ ABSL_GUARDED_BY(mu_) = false;  // Something changed since the loop looked.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace embla
