#include "server/shard/replicator.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/log.h"

namespace embla {
namespace {

// The loop looks at least this often, in case its clock is not the one that it waits by.
constexpr absl::Duration kLookAgain = absl::Seconds(1);
// A new replica that is no further behind has caught up: updates may wait for it.
constexpr std::uint64_t kCaughtUpBehindMax = 8;

absl::Status StoppedStatus() { return absl::UnavailableError("the node is shutting down"); }

}  // namespace

Replicator::Replicator(Options options, TakeSnapshot take_snapshot, WriteGone write_gone,
                       OnConfirmed on_confirmed)
    : options_(options),
      take_snapshot_(std::move(take_snapshot)),
      write_gone_(std::move(write_gone)),
      on_confirmed_(std::move(on_confirmed)),
      written_(std::make_shared<Written>(this)) {
  thread_ = std::thread([this] { Loop(); });
}

Replicator::~Replicator() { Stop(); }

void Replicator::BeginStop() {
  std::list<Waiter> waiters;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    waiters.swap(waiters_);
    changed_.NotifyAll();
  }
  for (const Waiter& waiter : waiters) waiter.done(StoppedStatus());
}

void Replicator::Stop() {
  BeginStop();
  if (thread_.joinable()) thread_.join();
  {
    const MutexLock lock(written_->mu);
    written_->loop = nullptr;
  }
  MutexLock lock(mu_);
  while (in_flight_ != 0) changed_.Wait(mu_);
}

void Replicator::SetTransport(ReplicaTransport* transport) {
  MutexLock lock(mu_);
  transport_ = transport;
  // Updates appended so far are repeated from a log: they may have been acknowledged.
  for (auto& [id, table] : tables_) {
    for (const StreamPtr& stream : table.streams) stream->floor = table.order;
  }
  work_ = true;  // The loop may have found nothing to do without it.
  changed_.NotifyAll();
}

bool Replicator::has_transport() const {
  MutexLock lock(mu_);
  return transport_ != nullptr;
}

void Replicator::SetTables(const Plan& plan, const std::vector<ReplicatedTable>& tables) {
  MutexLock lock(mu_);
  plan_version_ = plan.version();
  std::map<TableId, Table> next;
  for (const ReplicatedTable& wanted : tables) {
    const auto old = tables_.find(wanted.table);
    const Table* const known = old == tables_.end() ? nullptr : &old->second;
    // A replica has nothing to send, unless it was the primary.
    if (!wanted.is_primary && (known == nullptr || !known->has_begun)) continue;
    next[wanted.table] = NextTable(plan, wanted, known);
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

Replicator::Table Replicator::NextTable(const Plan& plan, const ReplicatedTable& wanted,
                                        const Table* old) {
  Table next;
  next.metrics = wanted.metrics;
  next.term = wanted.primary_since;
  // A primary that is back begins anew: others may have led the table meanwhile.
  const bool goes_on = old != nullptr && !(wanted.is_primary && old->is_outgoing);
  if (goes_on) {
    next.has_begun = old->has_begun;
    next.reign = old->reign;
    next.order = old->order;
    if (!wanted.is_primary) next.term = old->term;
  }
  next.is_planned = true;
  next.is_outgoing = !wanted.is_primary;
  // After a change of the primary, after missed plans, and while records are repeated from a log
  // and so happened in another process: a replica may serve since before.
  const bool may_serve = transport_ == nullptr || !goes_on || !old->is_planned ||
                         wanted.primary_since == plan.version();
  const std::vector<NodeSpec> nodes =
      wanted.is_primary ? wanted.replicas : std::vector<NodeSpec>{wanted.primary};
  for (const NodeSpec& node : nodes) {
    StreamPtr stream;
    for (const StreamPtr& existing : goes_on ? old->streams : std::vector<StreamPtr>()) {
      if (existing->node.id == node.id) stream = existing;
    }
    if (stream == nullptr) {
      stream = std::make_shared<Stream>();
      stream->is_counted = may_serve;
      stream->floor = next.order;
    }
    stream->node = node;
    stream->is_leaving = false;
    stream->is_gone = false;
    next.streams.push_back(std::move(stream));
  }
  if (goes_on && wanted.is_primary) KeepLeaving(plan, *old, next);
  return next;
}

void Replicator::KeepLeaving(const Plan& plan, const Table& old, Table& next) {
  for (const StreamPtr& stream : old.streams) {
    if (!stream->is_counted || std::ranges::count(next.streams, stream) > 0) continue;
    const NodeSpec* const node = plan.FindNode(stream->node.id);
    if (node == nullptr) continue;
    stream->node = *node;
    stream->is_leaving = true;
    next.streams.push_back(stream);
  }
}

void Replicator::Begin(TableId table_id, std::uint64_t reign, std::uint64_t order) {
  MutexLock lock(mu_);
  Table& table = tables_[table_id];
  if (table.has_begun && table.reign == reign) return;
  if (table.is_outgoing) {
    for (const StreamPtr& stream : table.streams) stream->removed = true;
    table = Table();
  }
  table.has_begun = true;
  table.reign = reign;
  table.order = order;
  for (const StreamPtr& stream : table.streams) {
    stream->is_counted = true;
    stream->floor = order;
  }
  work_ = true;
  changed_.NotifyAll();
}

void Replicator::End(TableId table_id) {
  MutexLock lock(mu_);
  const auto it = tables_.find(table_id);
  if (it == tables_.end() || !it->second.is_outgoing) return;
  for (const StreamPtr& stream : it->second.streams) stream->removed = true;
  tables_.erase(it);
  work_ = true;
  changed_.NotifyAll();
}

void Replicator::Forget(TableId table_id, NodeId node) {
  MutexLock lock(mu_);
  const auto it = tables_.find(table_id);
  if (it == tables_.end()) return;
  std::erase_if(it->second.streams, [node](const StreamPtr& stream) {
    const bool is_over = stream->is_leaving && stream->node.id == node;
    stream->removed = stream->removed || is_over;
    return is_over;
  });
  ShowLag(it->second);
  work_ = true;
  changed_.NotifyAll();
}

bool Replicator::HasLeaving(TableId table) const {
  MutexLock lock(mu_);
  const auto it = tables_.find(table);
  return it != tables_.end() &&
         std::ranges::any_of(it->second.streams, [](const auto& s) { return s->is_leaving; });
}

void Replicator::Append(TableId table_id, std::uint64_t order, const SharedUpdatePtr& update,
                        const std::vector<std::uint32_t>& parts, PlanVersion plan_version) {
  MutexLock lock(mu_);
  const auto it = tables_.find(table_id);
  // The table was dropped while the update was queued, or another node leads it: then Wait says so.
  if (it == tables_.end() || !it->second.has_begun) return;
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
  ShowLag(table);
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
    TakeWritten();
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

std::function<void(absl::Status)> Replicator::WhenWritten(CopyRecord record) {
  return [written = written_, record](const absl::Status& status) {
    if (!status.ok()) return;
    const MutexLock lock(written->mu);
    if (written->loop == nullptr) return;
    written->records.push_back(record);
    written->loop->Wake();
  };
}

void Replicator::Wake() {
  const MutexLock lock(mu_);
  work_ = true;
  changed_.NotifyAll();
}

void Replicator::TakeWritten() {
  std::vector<CopyRecord> records;
  {
    const MutexLock lock(written_->mu);
    records.swap(written_->records);
  }
  for (const CopyRecord& record : records) {
    if (const auto* gone = std::get_if<CopyGone>(&record)) {
      Forget(gone->table, gone->node);
    } else {
      on_confirmed_(std::get<CopyConfirmed>(record).table);
    }
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
      if (!table.has_begun) continue;
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
  stream.message.reign = table.reign;
  stream.message.order = table.order;
  stream.message.plan_version = plan_version_;
  stream.message.term = table.term;
  stream.message.life = stream.life;
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
  stream.message.serves = MayServe(stream, stream.acked);
  if (stream.message.serves && !stream.is_confirmed) return Action::kSend;
  return now >= stream.last_heard + options_.probe_interval ? Action::kSend : Action::kNone;
}

void Replicator::PrepareUpdate(Stream& stream) {
  const Entry& entry = stream.backlog.front();
  const UpdateBatch& all = entry.update->batch;
  ReplicaMessage& message = stream.message;
  message.kind = ReplicaMessage::Kind::kUpdate;
  message.order = entry.order;
  message.serves = MayServe(stream, entry.order);
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
  if (message.last) message.windows = std::move(stream.snapshot_windows);
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
  // stream->message is not touched until the answer arrives.
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
  std::optional<CopyGone> gone;
  {
    MutexLock lock(mu_);
    if (ack.ok() && ack->gone && stream->is_leaving) gone = {id, stream->node.id};
  }
  // Until that is written down, the node is asked again.
  if (gone.has_value()) write_gone_(*gone, WhenWritten(*gone));
  MutexLock lock(mu_);
  const auto table = tables_.find(id);
  if (!stream->removed && table != tables_.end()) {
    if (ack.ok()) {
      Accept(table->second, *stream, *ack);
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

void Replicator::Accept(Table& table, Stream& stream, const ReplicaAck& ack) {
  const ReplicaMessage& message = stream.message;
  stream.last_heard = options_.clock->Now();
  if (ack.gone) {
    stream.is_gone = stream.is_leaving;
    return BackOff(stream);
  }
  const bool snapshot_refused =
      message.kind == ReplicaMessage::Kind::kSnapshot && ack.need_snapshot;
  if (snapshot_refused || ack.order > table.order) return BackOff(stream);
  stream.backoff = absl::ZeroDuration();
  stream.probed = true;
  stream.need_snapshot = ack.need_snapshot;
  stream.is_confirmed = message.serves && ack.life == message.life;
  stream.life = ack.life;
  if (!ack.need_snapshot && (message.kind != ReplicaMessage::Kind::kSnapshot || message.last)) {
    stream.acked = ack.order;
    DropBacklog(stream, ack.order);
    Count(table, stream);
  }
  ShowLag(table);
}

void Replicator::ShowLag(const Table& table) {
  std::uint64_t least = table.order;
  for (const StreamPtr& stream : table.streams) {
    if (stream->is_counted && !stream->is_gone) least = std::min(least, stream->acked);
  }
  table.metrics.replication_lag_updates.Set(static_cast<double>(table.order - least));
}

void Replicator::Count(const Table& table, Stream& stream) {
  if (!stream.is_counted) {
    if (stream.acked + kCaughtUpBehindMax < table.order) return;
    LogInfo("shard", "a new copy has caught up node=", stream.node.name, " order=", stream.acked);
    stream.is_counted = true;
    stream.floor = table.order;  // No update has waited for this copy so far.
  }
  stream.floor = std::max(stream.floor, stream.acked);
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
    stream->snapshot_windows = std::move(snapshot->windows);
  } else if (!stream->removed) {
    BackOff(*stream);
  }
  Landed(*stream);
}

void Replicator::BackOff(Stream& stream) {
  stream.probed = false;
  stream.is_confirmed = false;
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

absl::Status Replicator::Missing(const Waiter& waiter) const {
  for (const auto& [id, order] : waiter.orders) {
    const auto table = tables_.find(id);
    if (table != tables_.end() && !table->second.is_planned) {
      return absl::UnavailableError(absl::StrCat(
          "a new plan of table ", ToInt(id), " is being installed; send the same update again"));
    }
    if (table == tables_.end() || table->second.is_outgoing || !table->second.has_begun) {
      return absl::FailedPreconditionError(
          absl::StrCat("the primary copy of table ", ToInt(id),
                       " is on another node now; send the same update there"));
    }
    for (const StreamPtr& stream : table->second.streams) {
      if (!stream->is_counted || stream->is_gone || stream->acked >= order) continue;
      return absl::UnavailableError(
          absl::StrCat("node ", stream->node.name,
                       ", which has a copy of the table, has not confirmed the "
                       "update before the deadline; send the same update again"));
    }
  }
  return absl::OkStatus();
}

absl::Time Replicator::FinishWaiters() {
  const absl::Time now = options_.clock->Now();
  absl::Time next_deadline = absl::InfiniteFuture();
  std::vector<std::pair<std::function<void(absl::Status)>, absl::Status>> finished;
  {
    MutexLock lock(mu_);
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
      absl::Status missing = Missing(*waiter);
      if (absl::IsUnavailable(missing) && now < waiter->deadline) {
        next_deadline = std::min(next_deadline, waiter->deadline);
        ++waiter;
        continue;
      }
      finished.emplace_back(std::move(waiter->done), std::move(missing));
      waiter = waiters_.erase(waiter);
    }
  }
  for (const auto& [done, status] : finished) done(status);
  return next_deadline;
}

}  // namespace embla
