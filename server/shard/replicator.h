// The primary's side of replicated tables: carries every update, in its order, to every node that
// has a copy of the table, and tells when all of them have applied it. docs/replication.md.
//
// Per table and replica there is one stream: a probe asks where the replica is, then come the
// updates that it lacks, or a copy of the table when the gap is too wide (below). Once an update
// has been answered, others follow it before they are answered themselves, as many as the
// replica takes before their turn (CopyInbox): a link's delay then costs an update time, and a
// table no updates. Updates that can be sent at the same moment go in one message. They are sent at
// once, without waiting for others, while few messages are out.
//
// After a failure begins another attempt, with a probe, for as long as the plan has the replica.
// Answers to messages of earlier attempts count for nothing: who gave them may be gone.
//
// A copy is made of windows, each of some rows as they are after some update l. Updates up to l are
// sent before the window, and none behind it before it has arrived: so it comes to rows to which
// the same updates were applied, wrong as they may have been, and it makes them right. When the
// last window has arrived, all rows are those of one moment. The next window is read when the one
// before has arrived: so one is in memory, and no device waits for a copy. After a failure the copy
// goes on with the window that has not arrived, if its life is the same. A window is always read
// behind all updates that were ever sent: so none that is late can overtake it.
//
// A replica that the plan adds is brought up to date first; only then is it counted: updates wait
// for it, and it is told to serve lookups. Trainers may be faster than that, so before, updates
// wait while the replica answers and is too far behind, for a limited time each. One that the plan
// takes away is waited for until it says that it has heard of that: before, it answers lookups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
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

using WindowDone = std::function<void(absl::StatusOr<CopiedRows>)>;
// Reads window `number` of a table, from 0; `done` runs once, on any thread, with all but the
// reign.
using ReadWindow = std::function<void(TableId table, std::size_t number, WindowDone done)>;
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
    // Updates kept for a replica that does not answer; for one that does, kAnsweringTimes as much:
    // acknowledgements wait for it, so the rest are updates that trainers have under way.
    std::size_t backlog_max = 1024;
    std::size_t backlog_bytes_max = std::size_t{256} << 20;
    // A new copy may be so far behind while it is made, and half a backlog. A window comes behind
    // all that: less would cost training more, more would make the copy last longer.
    std::size_t copy_behind_max = 512;
    std::size_t copy_behind_bytes_max = std::size_t{32} << 20;
    // Updates of a stream without an answer; their bytes, unless it is one.
    std::size_t out_max = 64;
    std::size_t out_bytes_max = std::size_t{32} << 20;
    // Bytes of updates that are sent in one message, unless it is one.
    std::size_t together_bytes_max = std::size_t{4} << 20;
    // While so many messages with updates are without an answer, others wait until one of these is
    // answered, or until they fill a message.
    std::size_t messages_out_max = 4;
    absl::Duration timeout = absl::Seconds(5);
    absl::Duration backoff = absl::Milliseconds(20);
    absl::Duration probe_interval = absl::Seconds(1);
    const Clock* clock = &Clock::Real();  // Not owned; of deadlines only.
  };
  Replicator(Options options, ReadWindow read_window, WriteGone write_gone,
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
    NodeSpec primary = {};
    TableMetrics metrics = {};
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

  // Takes update `order` of `table`; `batch` has the table's parts, and the plan of the
  // hyper-parameters that it was applied with.
  // Requires: orders of a table come one after the other, from that of Begin.
  void Append(TableId table, std::uint64_t order, UpdateBatch batch);

  // Calls `done`, perhaps within the call, once all replicas that count have applied the named
  // orders, or with Unavailable,
  // naming a replica, when `deadline` has passed. A replica that is being brought up to date, and
  // is too far behind, delays it by Options::timeout at most, and by half of the time that is left.
  // FailedPrecondition: another node leads a table now.
  using TableOrder = std::pair<TableId, std::uint64_t>;
  void Wait(std::vector<TableOrder> orders, absl::Time deadline,
            std::function<void(absl::Status)> done);

 private:
  // Shared by the streams.
  using Entry = std::shared_ptr<const CopiedUpdate>;
  // A copy of the table that is being made.
  struct Copying {
    std::size_t windows = 0;  // So many have arrived.
    bool is_reading = false;
    std::optional<CopiedRows> window = {};  // Read, and not sent.
    // No update behind it is sent before the window: the window's place or, while that is being
    // read, the table's order when that began.
    std::uint64_t limit = 0;
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

    std::uint64_t attempt = 0;
    bool probed = false;      // `at` is what the replica said, and nothing has failed since.
    std::uint64_t at = 0;     // The last update that it has applied, to right rows or wrong ones.
    std::uint64_t acked = 0;  // The last one that it has, with all its rows.
    std::uint64_t sent = 0;   // The last one that is applied there or out.
    std::uint64_t early_max = 0;    // How far before its turn the replica takes an update.
    std::uint64_t updates_max = 1;  // So many it takes in one message.
    bool is_flowing = false;        // An update of this attempt has been acked.
    std::deque<Entry> backlog;      // Consecutive orders, up to the table's.
    std::size_t backlog_bytes = 0;

    bool need_snapshot = false;
    std::optional<Copying> copying;

    bool is_busy = false;  // A probe or a window is out.
    // Updates without an answer, including those of earlier attempts, in so many messages.
    std::size_t updates_out = 0;
    std::size_t messages_out = 0;
    std::size_t bytes_out = 0;
    absl::Duration backoff;
    absl::Time not_before = absl::InfinitePast();
    absl::Time last_heard = absl::InfinitePast();
  };
  // Shared with the calls in flight: a plan may drop the stream meanwhile.
  using StreamPtr = std::shared_ptr<Stream>;
  // A message that is out, or updates that were sent together.
  struct Flight {
    TableId table{};
    StreamPtr stream;
    std::uint64_t attempt = 0;
    NodeSpec node;
    std::size_t bytes = 0;  // Memory of the updates.
    std::vector<ReplicaMessage> messages;

    // The message that is answered.
    const ReplicaMessage& message() const { return messages.back(); }
    bool is_update() const { return message().kind() == ReplicaMessage::Kind::kUpdate; }
  };
  using FlightPtr = std::shared_ptr<const Flight>;
  // A window that is being read.
  struct Read {
    TableId table{};
    std::size_t number = 0;
    StreamPtr stream;
    std::uint64_t attempt = 0;
  };
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
    absl::Time held_until;  // By replicas that do not count yet.
    std::function<void(absl::Status)> done;
  };
  // The next step of a stream.
  struct Step {
    enum class Action : std::uint8_t { kNone, kSend, kRead };

    Action action = Action::kNone;
    absl::Time look_again = absl::InfiniteFuture();  // kNone: unless something happens before.
    std::size_t bytes = 0;                           // kSend: memory of updates.
    std::vector<ReplicaMessage> messages = {};       // kSend.
  };

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
  Step Next(TableId id, const Table& table, Stream& stream, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Step Send(ReplicaMessage message);
  // A probe; any other message puts its content in place of it.
  ReplicaMessage Head(TableId id, const Table& table, const Stream& stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Requires: NextEntry, which may be sent by its place.
  Step SendUpdates(TableId id, const Table& table, const Stream& stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next update to send; null: it is not kept any more.
  static const Entry* NextEntry(const Stream& stream);
  // Whether `count` more updates with `bytes` may be out.
  bool HasRoom(const Stream& stream, std::size_t count, std::size_t bytes) const;
  // Whether a replica at `order` has every acknowledged update, and will have.
  static bool MayServe(const Stream& stream, std::uint64_t order) {
    return stream.is_counted && !stream.is_leaving && stream.life != 0 && order >= stream.floor;
  }
  static void PrepareUpdate(const Stream& stream, const Entry& entry, ReplicaMessage& message);
  static void PrepareWindow(Stream& stream, ReplicaMessage& message);
  // Whether a replica with half a copy has all windows of `stream` that have arrived.
  static bool MayGoOn(const Stream& stream, const ReplicaAck& ack) {
    return stream.copying.has_value() && stream.copying->windows > 0 && ack.life == stream.life;
  }
  static void BeginCopy(Stream& stream);
  // These note that a step is done.
  static Read TakeRead(TableId id, const Table& table, const StreamPtr& stream);
  FlightPtr TakeOff(TableId id, const StreamPtr& stream, Step step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void HandleAck(const Flight& flight, const absl::StatusOr<ReplicaAck>& ack);
  // Whether the loop has nothing to do for the stream before something else happens.
  static bool IsUpToDate(const Table& table, const Stream& stream) {
    return stream.probed && stream.is_confirmed && !stream.need_snapshot &&
           !stream.copying.has_value() && stream.sent == table.order;
  }
  void Accept(Table& table, const Flight& flight, const ReplicaAck& ack)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The replica is at `order`, by an answer of this attempt.
  void Arrive(const Table& table, Stream& stream, const Flight& flight, std::uint64_t order)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins to count a stream that has caught up.
  void Count(const Table& table, Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // In the metrics: while updates wait for an answer, too.
  static void ShowLag(const Table& table);
  void HandleWindow(Stream& stream, std::uint64_t attempt, absl::StatusOr<CopiedRows> window);
  // Begins another attempt, later.
  void BackOff(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropBacklog(Stream& stream, std::uint64_t up_to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops all of the backlog if it would become too long: the gap asks for a copy.
  void BoundBacklog(Stream& stream, std::size_t more) const;
  // Something that was in flight is over; `is_news`: the loop is to look at it.
  void Landed(bool is_news) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // When `waiter` is to be looked at if nothing happens before.
  static absl::Time NextLook(const Waiter& waiter, absl::Time now) {
    return now < waiter.held_until ? waiter.held_until : waiter.deadline;
  }
  // The answer to `waiter`; nullopt: it is to wait.
  std::optional<absl::Status> OutcomeOf(const Waiter& waiter, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a replica that does not count yet is too far behind for `waiter` to be answered.
  bool IsHeld(const Waiter& waiter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsTooFarBehind(const Stream& stream) const;
  // Answers callers that have waited long enough; returns the next deadline.
  absl::Time FinishWaiters();

  // A new replica that is no further behind has caught up, as has one that lacks nothing but what
  // is on its way: updates may wait for it.
  static constexpr std::uint64_t kCaughtUpBehindMax = 64;
  static constexpr std::size_t kAnsweringTimes = 4;

  const Options options_;
  const ReadWindow read_window_;
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
  // When the loop wakes up if nobody wakes it; while it is awake nobody needs to.
  absl::Time looks_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace embla
