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

}  // namespace

Replicator::Replicator(Options options, ReadWindow read_window, WriteGone write_gone,
                       OnConfirmed on_confirmed)
    : options_(options),
      read_window_(std::move(read_window)),
      write_gone_(std::move(write_gone)),
      on_confirmed_(std::move(on_confirmed)),
      written_(std::make_shared<Written>(this)) {
  thread_ = std::thread([this] { Loop(); });
}

Replicator::~Replicator() { Stop(); }

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

void Replicator::Append(TableId table_id, std::uint64_t order, UpdateBatch batch) {
  MutexLock lock(mu_);
  const auto it = tables_.find(table_id);
  // The table was dropped while the update was queued, or another node leads it: then Wait says so.
  if (it == tables_.end() || !it->second.has_begun) return;
  Table& table = it->second;
  EMBLA_CHECK(order == table.order + 1);
  table.order = order;
  const std::size_t bytes = batch.memory.size();
  const Entry entry = std::make_shared<const CopiedUpdate>(
      CopiedUpdate{table_id, table.reign, order, std::move(batch)});
  for (const StreamPtr& stream : table.streams) {
    BoundBacklog(*stream, bytes);
    stream->backlog.push_back(entry);
    stream->backlog_bytes += bytes;
  }
  ShowLag(table);
  work_ = true;
  changed_.NotifyAll();
}

void Replicator::Loop() {
  for (;;) {
    TakeWritten();
    const absl::Time next_step = Pump();  // First: a copy that begins anew holds no update.
    const absl::Time look_again = std::min(next_step, FinishWaiters());
    MutexLock lock(mu_);
    while (!work_ && !stopping_) {
      const absl::Time now = options_.clock->Now();
      if (look_again <= now) break;
      const absl::Duration wait = std::min(look_again - now, kLookAgain);
      looks_at_ = now + wait;
      changed_.WaitFor(mu_, wait);
    }
    looks_at_ = absl::InfiniteFuture();
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
  ReplicaTransport* transport = nullptr;
  std::vector<FlightPtr> flights;
  std::vector<Read> reads;
  {
    MutexLock lock(mu_);
    if (stopping_ || transport_ == nullptr) return look_again;
    transport = transport_;
    for (const auto& [id, table] : tables_) {
      if (!table.has_begun) continue;
      for (const StreamPtr& stream : table.streams) {
        Step step = Next(id, table, *stream, now);
        for (; step.action != Step::Action::kNone; step = Next(id, table, *stream, now)) {
          const bool sends = step.action == Step::Action::kSend;
          if (sends) flights.push_back(TakeOff(id, stream, std::move(step)));
          if (!sends) reads.push_back(TakeRead(id, table, stream));
          ++in_flight_;
        }
        look_again = std::min(look_again, step.look_again);
      }
    }
  }
  // In their order: only the network changes it.
  for (const FlightPtr& flight : flights) {
    transport->Send(
        flight->node, flight->messages, options_.timeout,
        [this, flight](const absl::StatusOr<ReplicaAck>& ack) { HandleAck(*flight, ack); });
  }
  for (const Read& read : reads) {
    read_window_(read.table, read.number, [this, read](absl::StatusOr<CopiedRows> window) {
      HandleWindow(*read.stream, read.attempt, std::move(window));
    });
  }
  return look_again;
}

Replicator::Step Replicator::Next(TableId id, const Table& table, Stream& stream, absl::Time now) {
  if (stream.is_busy) return {};
  if (now < stream.not_before) return {.look_again = stream.not_before};
  if (!stream.probed) return Send(Head(id, table, stream));
  const Entry* const entry = stream.sent < table.order ? NextEntry(stream) : nullptr;
  // The first window of a copy needs no updates before it.
  const bool begins = stream.copying.has_value() && stream.copying->windows == 0;
  const bool is_lost = stream.sent < table.order && entry == nullptr && !begins;
  if (stream.need_snapshot || is_lost) BeginCopy(stream);
  if (stream.copying.has_value()) {
    Copying& copy = *stream.copying;
    if (!copy.is_reading && !copy.window.has_value()) return {.action = Step::Action::kRead};
    if (copy.window.has_value() && (begins || stream.at >= copy.limit)) {
      ReplicaMessage message = Head(id, table, stream);
      PrepareWindow(stream, message);
      return Send(std::move(message));
    }
    if (begins || stream.sent >= copy.limit) return {};  // A window, or answers, are on their way.
  }
  if (entry != nullptr) return SendUpdates(id, table, stream);
  // Answers are on their way, and need not wake the loop; then nobody may send for long.
  if (stream.at < stream.sent) return {.look_again = now + options_.probe_interval};
  ReplicaMessage probe = Head(id, table, stream);
  probe.serves = MayServe(stream, stream.acked);
  const bool is_due = now >= stream.last_heard + options_.probe_interval;
  if (is_due || (probe.serves && !stream.is_confirmed)) return Send(std::move(probe));
  return {.look_again = stream.last_heard + options_.probe_interval};
}

ReplicaMessage Replicator::Head(TableId id, const Table& table, const Stream& stream) const {
  ReplicaMessage message;
  message.content = CopyProbe{id, table.reign, table.order};
  message.plan_version = plan_version_;
  message.term = table.term;
  message.life = stream.life;
  return message;
}

Replicator::Step Replicator::Send(ReplicaMessage message) {
  Step step{.action = Step::Action::kSend};
  step.messages.push_back(std::move(message));
  return step;
}

Replicator::Step Replicator::SendUpdates(TableId id, const Table& table,
                                         const Stream& stream) const {
  const std::deque<Entry>& backlog = stream.backlog;
  const std::uint64_t last = stream.copying.has_value() ? stream.copying->limit : table.order;
  const std::size_t first = stream.sent + 1 - backlog.front()->order;
  const std::size_t end = first + std::min(last - stream.sent, stream.updates_max);
  Step step{.action = Step::Action::kSend};
  bool has_room = true;
  std::size_t next = first;
  for (; next < end; ++next) {
    const std::size_t bytes = step.bytes + backlog[next]->batch.memory.size();
    if (next > first && bytes > options_.together_bytes_max) break;
    has_room = HasRoom(stream, next - first + 1, bytes);
    if (!has_room) break;
    step.bytes = bytes;
  }
  const bool is_full = next - first == stream.updates_max || (has_room && next < end) ||
                       step.bytes >= options_.together_bytes_max;
  if (next == first || (!is_full && stream.messages_out >= options_.messages_out_max)) return {};
  for (std::size_t i = first; i < next; ++i) {
    step.messages.push_back(Head(id, table, stream));
    PrepareUpdate(stream, backlog[i], step.messages.back());
  }
  return step;
}

const Replicator::Entry* Replicator::NextEntry(const Stream& stream) {
  if (stream.backlog.empty() || stream.backlog.front()->order > stream.sent + 1) return nullptr;
  return &stream.backlog[stream.sent + 1 - stream.backlog.front()->order];
}

bool Replicator::HasRoom(const Stream& stream, std::size_t count, std::size_t bytes) const {
  const std::size_t before = stream.updates_out + count - 1;
  if (before == 0) return true;
  // The first one of an attempt may find out that the replica takes none now.
  return stream.is_flowing && before <= stream.early_max && before < options_.out_max &&
         stream.bytes_out + bytes <= options_.out_bytes_max;
}

void Replicator::PrepareUpdate(const Stream& stream, const Entry& entry, ReplicaMessage& message) {
  message.serves = !stream.copying.has_value() && MayServe(stream, entry->order);
  CopiedUpdate update = *entry;
  update.reign = message.reign();
  message.content = std::move(update);
}

void Replicator::PrepareWindow(Stream& stream, ReplicaMessage& message) {
  Copying& copy = *stream.copying;
  CopiedRows rows = *std::exchange(copy.window, std::nullopt);
  rows.reign = message.reign();
  rows.first = copy.windows == 0;
  message.content = std::move(rows);
}

Replicator::FlightPtr Replicator::TakeOff(TableId id, const StreamPtr& stream, Step step) {
  const auto flight = std::make_shared<const Flight>(Flight{.table = id,
                                                            .stream = stream,
                                                            .attempt = stream->attempt,
                                                            .node = stream->node,
                                                            .bytes = step.bytes,
                                                            .messages = std::move(step.messages)});
  if (!flight->is_update()) {
    stream->is_busy = true;
    return flight;
  }
  stream->sent = flight->message().order();
  ++stream->messages_out;
  stream->updates_out += flight->messages.size();
  stream->bytes_out += flight->bytes;
  return flight;
}

// All updates that are known now will be in the first window, or out of use.
void Replicator::BeginCopy(Stream& stream) {
  ++stream.attempt;
  stream.need_snapshot = false;
  stream.is_flowing = false;
  stream.backlog.clear();
  stream.backlog_bytes = 0;
  stream.copying.emplace();
}

Replicator::Read Replicator::TakeRead(TableId id, const Table& table, const StreamPtr& stream) {
  stream->copying->is_reading = true;
  stream->copying->limit = table.order;
  return {id, stream->copying->windows, stream, stream->attempt};
}

void Replicator::Landed(bool is_news) {
  --in_flight_;
  work_ = work_ || is_news;
  if (is_news || stopping_) changed_.NotifyAll();
}

void Replicator::HandleAck(const Flight& flight, const absl::StatusOr<ReplicaAck>& ack) {
  Stream& stream = *flight.stream;
  std::optional<CopyGone> gone;
  {
    MutexLock lock(mu_);
    const bool is_gone = ack.ok() && ack->gone && flight.attempt == stream.attempt;
    if (is_gone && stream.is_leaving) gone = {flight.table, stream.node.id};
  }
  // Until that is written down, the node is asked again.
  if (gone.has_value()) write_gone_(*gone, WhenWritten(*gone));
  bool is_news = true;
  {
    MutexLock lock(mu_);
    if (flight.is_update()) {
      --stream.messages_out;
      stream.updates_out -= flight.messages.size();
      stream.bytes_out -= flight.bytes;
    } else {
      stream.is_busy = false;
    }
    const auto table = tables_.find(flight.table);
    if (!stream.removed && table != tables_.end() && flight.attempt == stream.attempt) {
      if (ack.ok()) {
        Accept(table->second, flight, *ack);
        is_news = !flight.is_update() || !IsUpToDate(table->second, stream);
      } else {
        if (stream.backoff == absl::ZeroDuration()) {
          LogWarning("shard", "replica does not answer table=", ToInt(flight.table),
                     " node=", stream.node.name, " status=", ack.status().ToString());
        }
        BackOff(stream);
      }
    }
  }
  // Where the loop has nothing to do it need not wake up to tell those who wait.
  if (!is_news) FinishWaiters();
  MutexLock lock(mu_);
  Landed(is_news);
}

void Replicator::Accept(Table& table, const Flight& flight, const ReplicaAck& ack) {
  Stream& stream = *flight.stream;
  const ReplicaMessage& message = flight.message();
  stream.last_heard = options_.clock->Now();
  if (ack.gone) {
    stream.is_gone = stream.is_leaving;
    return BackOff(stream);
  }
  const bool is_snapshot = message.kind() == ReplicaMessage::Kind::kRows;
  const bool snapshot_refused = is_snapshot && ack.need_snapshot;
  if (snapshot_refused || ack.order > table.order) return BackOff(stream);
  // A copy that has begun anew is asked where it is: earlier answers are of what it does not have.
  const bool is_done = ack.need_snapshot || ack.order >= message.order();
  if (flight.is_update() && (ack.life != stream.life || !is_done)) return BackOff(stream);
  stream.backoff = absl::ZeroDuration();
  stream.probed = true;
  const bool is_probe = message.kind() == ReplicaMessage::Kind::kProbe;
  const bool goes_on = is_probe && ack.need_snapshot && MayGoOn(stream, ack);
  if (is_probe && !goes_on) stream.copying.reset();
  stream.need_snapshot = ack.need_snapshot && !goes_on;
  if (ack.life != stream.life) stream.is_confirmed = false;
  stream.life = ack.life;
  if (is_probe) {
    stream.early_max = ack.early_max;
    stream.updates_max = std::max<std::uint64_t>(ack.updates_max, 1);
  }
  if (stream.need_snapshot) {
    ++stream.attempt;  // Answers to updates that are out say the same.
  } else {
    Arrive(table, stream, flight, ack.order);
  }
  ShowLag(table);
}

void Replicator::Arrive(const Table& table, Stream& stream, const Flight& flight,
                        std::uint64_t order) {
  if (flight.is_update()) {
    stream.is_flowing = true;
    stream.at = std::max(stream.at, order);
  } else {
    stream.at = stream.sent = order;
  }
  DropBacklog(stream, order);
  const auto* const window = std::get_if<CopiedRows>(&flight.message().content);
  if (window != nullptr) ++stream.copying->windows;
  if (window != nullptr && window->last) {
    LogInfo("shard", "a copy is made node=", stream.node.name, " order=", order,
            " windows=", stream.copying->windows);
    stream.copying.reset();
  }
  if (stream.copying.has_value()) return;
  stream.acked = stream.at;
  if (flight.message().serves && stream.life == flight.message().life) stream.is_confirmed = true;
  Count(table, stream);
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
    const bool is_near = stream.acked + kCaughtUpBehindMax >= table.order;
    // One that lacks updates that are not kept any more gets a copy first.
    const bool is_kept = is_near && NextEntry(stream) != nullptr;
    if (!is_kept && stream.sent < table.order) return;
    LogInfo("shard", "a new copy has caught up node=", stream.node.name, " order=", stream.acked);
    stream.is_counted = true;
    stream.floor = table.order;  // No update has waited for this copy so far.
  }
  stream.floor = std::max(stream.floor, stream.acked);
}

void Replicator::HandleWindow(Stream& stream, std::uint64_t attempt,
                              absl::StatusOr<CopiedRows> window) {
  MutexLock lock(mu_);
  if (attempt == stream.attempt) {  // Else what came before has failed, and it is read again.
    Copying& copy = *stream.copying;
    copy.is_reading = false;
    if (window.ok()) {
      if (copy.windows == 0) {
        LogInfo("shard", "copying a table node=", stream.node.name, " order=", window->order);
      }
      copy.limit = window->order;
      copy.window = *std::move(window);
    } else {
      LogWarning("shard", "a copy is not made node=", stream.node.name,
                 " status=", window.status().ToString());
      BackOff(stream);
    }
  }
  Landed(/*is_news=*/true);
}

void Replicator::BackOff(Stream& stream) {
  ++stream.attempt;
  stream.probed = false;
  stream.is_flowing = false;
  stream.is_confirmed = false;
  stream.need_snapshot = false;
  if (stream.copying.has_value()) stream.copying = Copying{.windows = stream.copying->windows};
  BoundBacklog(stream, 0);
  stream.backoff = std::clamp(2 * stream.backoff, options_.backoff,
                              std::max(options_.backoff, options_.probe_interval));
  stream.not_before = options_.clock->Now() + stream.backoff;
}

void Replicator::DropBacklog(Stream& stream, std::uint64_t up_to) {
  while (!stream.backlog.empty() && stream.backlog.front()->order <= up_to) {
    stream.backlog_bytes -= stream.backlog.front()->batch.memory.size();
    stream.backlog.pop_front();
  }
}

void Replicator::BoundBacklog(Stream& stream, std::size_t more) const {
  const std::size_t times = stream.probed ? kAnsweringTimes : 1;
  const bool is_too_long = stream.backlog.size() >= times * options_.backlog_max ||
                           stream.backlog_bytes + more > times * options_.backlog_bytes_max;
  if (!is_too_long) return;
  stream.backlog.clear();
  stream.backlog_bytes = 0;
}

}  // namespace embla
