#include "server/shard/replicator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"

namespace embla {
namespace {

// The loop looks at least this often, in case its clock is not the one that it waits by.
constexpr absl::Duration kLookAgain = absl::Seconds(1);

absl::Status StoppedStatus() { return absl::UnavailableError("the node is shutting down"); }

}  // namespace

Replicator::Replicator(Options options, TakeSnapshot take_snapshot)
    : options_(options), take_snapshot_(std::move(take_snapshot)) {
  EMBLA_CHECK(options_.incarnation != 0);
  thread_ = std::thread([this] { Loop(); });
}

Replicator::~Replicator() { Stop(); }

void Replicator::Stop() {
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  std::list<Waiter> waiters;
  {
    MutexLock lock(mu_);
    while (in_flight_ != 0) changed_.Wait(mu_);
    waiters.swap(waiters_);
  }
  for (const Waiter& waiter : waiters) waiter.done(StoppedStatus());
}

void Replicator::SetTransport(ReplicaTransport* transport) {
  MutexLock lock(mu_);
  transport_ = transport;
}

bool Replicator::has_transport() const {
  MutexLock lock(mu_);
  return transport_ != nullptr;
}

void Replicator::SetReplicas(const std::vector<ReplicatedTable>& tables) {
  MutexLock lock(mu_);
  std::map<TableId, Table> next;
  for (const ReplicatedTable& wanted : tables) {
    const auto old = tables_.find(wanted.table);
    Table& table = next[wanted.table];
    table.metrics = wanted.metrics;
    if (old != tables_.end()) table.order = old->second.order;
    for (const NodeSpec& node : wanted.replicas) {
      StreamPtr stream;
      if (old != tables_.end()) {
        for (const StreamPtr& existing : old->second.streams) {
          if (existing->node.id == node.id) stream = existing;
        }
      }
      if (stream == nullptr) stream = std::make_shared<Stream>();
      stream->node = node;
      table.streams.push_back(std::move(stream));
    }
  }
  for (auto& [id, table] : tables_) {
    for (const StreamPtr& stream : table.streams) stream->removed = true;
  }
  for (auto& [id, table] : next) {
    for (const StreamPtr& stream : table.streams) stream->removed = false;
  }
  tables_.swap(next);
  work_ = true;
  changed_.NotifyAll();
}

void Replicator::Append(TableId table_id, std::uint64_t order, const SharedUpdatePtr& update,
                        const std::vector<std::uint32_t>& parts, PlanVersion plan_version) {
  MutexLock lock(mu_);
  const auto it = tables_.find(table_id);
  if (it == tables_.end()) return;  // The table was dropped while the update was queued.
  Table& table = it->second;
  EMBLA_CHECK(order == table.order + 1);
  table.order = order;
  const std::size_t bytes = update->keep_alive.size();
  for (const StreamPtr& stream : table.streams) {
    if (stream->backlog.size() >= options_.backlog_max ||
        stream->backlog_bytes + bytes > options_.backlog_bytes_max) {
      // Too far behind: the gap asks for a snapshot.
      stream->backlog.clear();
      stream->backlog_bytes = 0;
    }
    stream->backlog.push_back({order, update, parts, plan_version});
    stream->backlog_bytes += bytes;
  }
  work_ = true;
  changed_.NotifyAll();
}

void Replicator::Wait(std::vector<TableOrder> orders, absl::Time deadline,
                      std::function<void(absl::Status)> done) {
  {
    MutexLock lock(mu_);
    if (!stopping_) {
      waiters_.push_back({std::move(orders), deadline, std::move(done)});
      work_ = true;
      changed_.NotifyAll();
      return;
    }
  }
  done(StoppedStatus());
}

void Replicator::Loop() {
  for (;;) {
    const absl::Time look_again = std::min(Pump(), FinishWaiters());
    MutexLock lock(mu_);
    while (!work_ && !stopping_) {
      const absl::Duration left = look_again - options_.clock->Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(mu_, std::min(left, kLookAgain));
    }
    if (stopping_) return;
    work_ = false;
  }
}

absl::Time Replicator::Pump() {
  const absl::Time now = options_.clock->Now();
  absl::Time look_again = absl::InfiniteFuture();
  std::vector<std::pair<TableId, StreamPtr>> sends, snapshots;
  {
    MutexLock lock(mu_);
    if (stopping_ || transport_ == nullptr) return look_again;
    for (const auto& [id, table] : tables_) {
      for (const StreamPtr& stream : table.streams) {
        const Action action = Next(id, table, *stream, now);
        if (action == Action::kNone) {
          const absl::Time idle_until = stream->last_heard + options_.probe_interval;
          if (!stream->in_flight) {
            look_again = std::min(look_again, std::max(stream->not_before, idle_until));
          }
          continue;
        }
        stream->in_flight = true;
        ++in_flight_;
        (action == Action::kSend ? sends : snapshots).emplace_back(id, stream);
      }
    }
  }
  for (const auto& [id, stream] : sends) Send(id, stream);
  for (const auto& [id, stream] : snapshots) {
    take_snapshot_(id, [this, stream = stream](absl::StatusOr<TableSnapshot> snapshot) {
      HandleSnapshot(stream, std::move(snapshot));
    });
  }
  return look_again;
}

Replicator::Action Replicator::Next(TableId id, const Table& table, Stream& stream,
                                    absl::Time now) {
  if (stream.in_flight || now < stream.not_before) return Action::kNone;
  stream.message = ReplicaMessage{};
  stream.message.table = id;
  stream.message.incarnation = options_.incarnation;
  stream.message.order = table.order;
  if (!stream.probed) return Action::kSend;
  if (!stream.snapshot.empty()) {
    PrepareSnapshotPiece(stream);
    return Action::kSend;
  }
  if (stream.need_snapshot) return Action::kTakeSnapshot;
  if (stream.acked < table.order) {
    if (stream.backlog.empty() || stream.backlog.front().order != stream.acked + 1) {
      return Action::kTakeSnapshot;
    }
    PrepareUpdate(stream);
    return Action::kSend;
  }
  return now >= stream.last_heard + options_.probe_interval ? Action::kSend : Action::kNone;
}

void Replicator::PrepareUpdate(Stream& stream) {
  const Entry& entry = stream.backlog.front();
  const UpdateBatch& all = entry.update->batch;
  ReplicaMessage& message = stream.message;
  message.kind = ReplicaMessage::Kind::kUpdate;
  message.order = entry.order;
  message.update = all;
  message.update.plan_version = entry.plan_version;
  message.update.parts.clear();
  for (const std::uint32_t part : entry.parts) message.update.parts.push_back(all.parts[part]);
}

void Replicator::PrepareSnapshotPiece(Stream& stream) {
  ReplicaMessage& message = stream.message;
  message.kind = ReplicaMessage::Kind::kSnapshot;
  message.order = stream.snapshot_order;
  message.row_block = std::move(stream.snapshot.front());
  message.first = !stream.snapshot_begun;
  stream.snapshot.pop_front();
  message.last = stream.snapshot.empty();
  stream.snapshot_begun = true;
}

void Replicator::Send(TableId id, const StreamPtr& stream) {
  NodeSpec node;
  ReplicaTransport* transport = nullptr;
  {
    MutexLock lock(mu_);
    node = stream->node;
    transport = transport_;
  }
  // Nobody touches stream->message until the answer is here.
  transport->Send(
      node, stream->message, options_.timeout,
      [this, id, stream](const absl::StatusOr<ReplicaAck>& ack) { HandleAck(id, stream, ack); });
}

void Replicator::Landed(Stream& stream) {
  stream.in_flight = false;
  --in_flight_;
  work_ = true;
  changed_.NotifyAll();
}

void Replicator::HandleAck(TableId id, const StreamPtr& stream,
                           const absl::StatusOr<ReplicaAck>& ack) {
  MutexLock lock(mu_);
  if (!stream->removed) {
    if (ack.ok()) {
      Accept(id, *stream, *ack);
    } else {
      if (stream->backoff == absl::ZeroDuration()) {
        LogWarning("shard", "replica does not answer table=", ToInt(id),
                   " node=", stream->node.name, " status=", ack.status().ToString());
      }
      BackOff(*stream);
    }
  }
  Landed(*stream);
}

void Replicator::Accept(TableId id, Stream& stream, const ReplicaAck& ack) {
  const Table& table = tables_.at(id);
  const ReplicaMessage& message = stream.message;
  stream.last_heard = options_.clock->Now();
  const bool snapshot_refused =
      message.kind == ReplicaMessage::Kind::kSnapshot && ack.need_snapshot;
  if (snapshot_refused || ack.order > table.order) return BackOff(stream);
  stream.backoff = absl::ZeroDuration();
  stream.probed = true;
  stream.need_snapshot = ack.need_snapshot;
  if (!ack.need_snapshot && (message.kind != ReplicaMessage::Kind::kSnapshot || message.last)) {
    stream.acked = ack.order;
    DropBacklog(stream, ack.order);
  }
  std::uint64_t least = table.order;
  for (const StreamPtr& other : table.streams) least = std::min(least, other->acked);
  table.metrics.replication_lag_updates.Set(static_cast<double>(table.order - least));
}

void Replicator::HandleSnapshot(const StreamPtr& stream, absl::StatusOr<TableSnapshot> snapshot) {
  MutexLock lock(mu_);
  if (snapshot.ok()) {
    EMBLA_CHECK(!snapshot->row_blocks.empty());
    LogInfo("shard", "sending a snapshot node=", stream->node.name, " order=", snapshot->order,
            " blocks=", snapshot->row_blocks.size());
    stream->snapshot_order = snapshot->order;
    stream->snapshot_begun = false;
    stream->need_snapshot = false;
    for (Buffer& block : snapshot->row_blocks) stream->snapshot.push_back(std::move(block));
  } else if (!stream->removed) {
    BackOff(*stream);
  }
  Landed(*stream);
}

void Replicator::BackOff(Stream& stream) {
  stream.probed = false;
  stream.need_snapshot = false;
  stream.snapshot.clear();
  stream.backoff = std::clamp(2 * stream.backoff, options_.backoff,
                              std::max(options_.backoff, options_.probe_interval));
  stream.not_before = options_.clock->Now() + stream.backoff;
}

void Replicator::DropBacklog(Stream& stream, std::uint64_t up_to) {
  while (!stream.backlog.empty() && stream.backlog.front().order <= up_to) {
    stream.backlog_bytes -= stream.backlog.front().update->keep_alive.size();
    stream.backlog.pop_front();
  }
}

const Replicator::Stream* Replicator::Missing(const Waiter& waiter) const {
  for (const auto& [id, order] : waiter.orders) {
    const auto table = tables_.find(id);
    if (table == tables_.end()) continue;
    for (const StreamPtr& stream : table->second.streams) {
      if (stream->acked < order) return stream.get();
    }
  }
  return nullptr;
}

absl::Time Replicator::FinishWaiters() {
  const absl::Time now = options_.clock->Now();
  absl::Time next_deadline = absl::InfiniteFuture();
  std::vector<std::pair<std::function<void(absl::Status)>, absl::Status>> finished;
  {
    MutexLock lock(mu_);
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
      const Stream* const missing = Missing(*waiter);
      if (missing != nullptr && now < waiter->deadline) {
        next_deadline = std::min(next_deadline, waiter->deadline);
        ++waiter;
        continue;
      }
      absl::Status status;
      if (missing != nullptr) {
        status = absl::UnavailableError(
            absl::StrCat("node ", missing->node.name,
                         ", which has a copy of the table, has not confirmed the "
                         "update before the deadline; send the same update again"));
      }
      finished.emplace_back(std::move(waiter->done), std::move(status));
      waiter = waiters_.erase(waiter);
    }
  }
  for (const auto& [done, status] : finished) done(status);
  return next_deadline;
}

}  // namespace embla
