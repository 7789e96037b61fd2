// The primary's side of replicated tables: carries every update, in its order, to every node that
// has a copy of the table, and tells when all of them have applied it. docs/replication.md.
//
// Per table and replica there is one stream: a probe asks where the replica is, then come the
// updates that it lacks, one at a time, or a copy of the table when the gap is too wide. Whatever
// fails is tried again, after a probe, for as long as the plan has the replica.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "server/shard/replica_transport.h"
#include "server/shard/shard_node.h"

namespace embla {

// An update that several threads and streams look at.
struct SharedUpdate {
  UpdateBatch batch;  // Views keep_alive.
  Buffer keep_alive;
};
using SharedUpdatePtr = std::shared_ptr<const SharedUpdate>;

// A copy of a table at one moment.
struct TableSnapshot {
  std::uint64_t order = 0;
  std::vector<Buffer> row_blocks;  // At least one.
};
using SnapshotDone = std::function<void(absl::StatusOr<TableSnapshot>)>;
// Makes a snapshot of a table; `done` runs once, on any thread.
using TakeSnapshot = std::function<void(TableId table, SnapshotDone done)>;

// Thread safety: every method may be called from any thread.
class Replicator {
 public:
  struct Options {
    std::uint64_t incarnation = 0;  // Of this primary; never 0.
    std::size_t backlog_max = 1024;
    std::size_t backlog_bytes_max = std::size_t{256} << 20;
    absl::Duration timeout = absl::Seconds(5);
    absl::Duration backoff = absl::Milliseconds(20);
    absl::Duration probe_interval = absl::Seconds(1);
    const Clock* clock = &Clock::Real();  // Not owned; of deadlines only.
  };
  Replicator(Options options, TakeSnapshot take_snapshot);
  ~Replicator();

  // Sends nothing more, waits for what is in flight, and fails whoever waits, now and later, with
  // Unavailable. The destructor does it otherwise.
  void Stop();

  // Not owned; outlives this object. Before SetReplicas.
  void SetTransport(ReplicaTransport* transport);
  bool has_transport() const;

  // The tables whose primary copy is here, with the nodes of their other copies. Tables that are
  // not named any more are forgotten, and nobody waits for them.
  struct ReplicatedTable {
    TableId table{};
    std::vector<NodeSpec> replicas;
    TableMetrics metrics;
  };
  void SetReplicas(const std::vector<ReplicatedTable>& tables);

  // Takes update `order` of `table`; `parts` of the batch, by index, are the table's.
  // `plan_version` names the hyper-parameters that it was applied with.
  // Requires: orders of a table come one after the other, from 1.
  void Append(TableId table, std::uint64_t order, const SharedUpdatePtr& update,
              const std::vector<std::uint32_t>& parts, PlanVersion plan_version);

  // Calls `done` once all replicas have applied the named orders, or with Unavailable, naming a
  // replica, when `deadline` has passed.
  using TableOrder = std::pair<TableId, std::uint64_t>;
  void Wait(std::vector<TableOrder> orders, absl::Time deadline,
            std::function<void(absl::Status)> done);

  std::uint64_t incarnation() const { return options_.incarnation; }

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
    bool removed = false;  // Not in the plan any more.

    bool probed = false;  // `acked` is what the replica said, and nothing has failed since.
    std::uint64_t acked = 0;
    std::deque<Entry> backlog;  // Consecutive orders, up to the table's.
    std::size_t backlog_bytes = 0;

    bool need_snapshot = false;
    std::deque<Buffer> snapshot;  // Pieces to be sent.
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
    std::uint64_t order = 0;
    std::vector<StreamPtr> streams;
    TableMetrics metrics;
  };
  struct Waiter {
    std::vector<TableOrder> orders;
    absl::Time deadline;
    std::function<void(absl::Status)> done;
  };
  enum class Action : std::uint8_t { kNone, kSend, kTakeSnapshot };

  void Loop();
  // Begins everything that can be begun; returns when to look again at the latest.
  absl::Time Pump();
  // Decides and prepares what `stream` does next.
  Action Next(TableId id, const Table& table, Stream& stream, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PrepareUpdate(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PrepareSnapshotPiece(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(TableId id, const StreamPtr& stream);

  void HandleAck(TableId id, const StreamPtr& stream, const absl::StatusOr<ReplicaAck>& ack);
  void Accept(TableId id, Stream& stream, const ReplicaAck& ack) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleSnapshot(const StreamPtr& stream, absl::StatusOr<TableSnapshot> snapshot);
  // Begins again with a probe, later.
  void BackOff(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropBacklog(Stream& stream, std::uint64_t up_to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Landed(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The first replica that lacks an order of `waiter`; null when there is none.
  const Stream* Missing(const Waiter& waiter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers whoever has waited long enough; returns the next deadline.
  absl::Time FinishWaiters();

  const Options options_;
  const TakeSnapshot take_snapshot_;

  mutable Mutex mu_;
  CondVar changed_;
  ReplicaTransport* transport_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::map<TableId, Table> tables_ ABSL_GUARDED_BY(mu_);
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
  std::size_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool work_ ABSL_GUARDED_BY(mu_) = false;  // Something changed since the loop looked.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace embla
