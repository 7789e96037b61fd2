#include "server/mover/mover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/log.h"
#include "core/base/mutex.h"

namespace embla {
namespace {

constexpr UnitEpoch kFirstEpoch{1};
constexpr std::size_t kEarlyPullsMax = 1024;  // Beyond it, a pull is lost, and comes again.

bool IsActive(UnitPhase phase) {
  return phase != UnitPhase::kElsewhere && phase != UnitPhase::kAtRest;
}

}  // namespace

Mover::Mover(const MoverOptions& options, const MoverParts& parts, Metrics* metrics,
             std::shared_ptr<TaskQueue> queue)
    : options_(options),
      parts_(parts),
      queue_(std::move(queue)),
      metrics_(metrics),
      sender_(
          options.sender, parts.host, parts.transport, parts.clock, queue_,
          [this](const SentChunk& sent) { OnSent(sent); },
          [this](const UnitId& unit, const absl::Status& why) { OnLost(unit, why); },
          metrics_.yields) {}

void Mover::OnOrders(NodeId self, std::vector<UnitOrder> orders) {
  queue_->Post([this, self, orders = std::move(orders)] {
    self_ = self;
    for (const UnitOrder& order : orders) HandleOrder(order);
  });
}

absl::Status Mover::OnMessage(PeerMessage message) {
  if (queue_->size() >= options_.peer_tasks_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "moves: ", options_.peer_tasks_max, " messages wait to be looked at; send again later"));
  }
  const bool is_open = queue_->Post(
      [this, message = std::move(message)]() mutable { HandleMessage(std::move(message)); });
  return is_open ? absl::OkStatus() : absl::UnavailableError("moves: the node is stopping");
}

MovingUnit* Mover::Find(const UnitId& id) {
  const auto found = units_.find(id);
  return found == units_.end() ? nullptr : found->second.get();
}

void Mover::HandleOrder(const UnitOrder& order) {
  if (order.drops_aside) return DropAside(order.unit.table);
  const UnitRecord& record = order.record;
  MovingUnit* const unit = FindOrBegin(order);
  if (unit == nullptr || IsRepeatedTooSoon(*unit, order)) return;
  if (unit->adopts.has_value()) Adopt(*unit);
  if (record.phase == MovePhase::kOpen && record.source == self_) {
    sender_.SetRate(order.bytes_per_second);
  }
  if (record.phase == MovePhase::kOpen && record.target == self_ &&
      record.move >= unit->target_move) {
    unit->target_move = record.move;
    unit->target_device = order.target_device;
    unit->run = order.run;
  }
  const bool is_here = record.owner == self_ && record.committed >= unit->arrival;
  if (is_here && unit->here_since == kUnknownPlan) unit->here_since = order.plan;
  const bool has_left = record.phase == MovePhase::kNone && record.owner != self_;
  if (has_left && unit->left_since.has_value()) unit->left_since = order.plan;
  Deliver(*unit, RecordEvent{.record = record, .source_is_lost = order.source_is_lost});
  if (order.settles) ReportIfSettled(*unit, record.move);
  if (order.cancels) {
    Deliver(*unit, CancelEvent{.record = record, .source_is_lost = order.source_is_lost});
  }
  // One of a move that the order does not know is dropped: to ask again would bring this order
  // again.
  if (auto early = early_pulls_.extract(order.unit);
      !early.empty() && addresses_.count(early.mapped().from) != 0) {
    HandleMessage(std::move(early.mapped()));
  }
}

// An open record makes a target ask for everything again that it lacks; what is on its way would
// come twice. A record that ends the move is never too soon: a late open one may have made the
// target begin after it had heard of the end. Nor is a cancel, which a target is asked for again
// and again, in step with its own asking.
bool Mover::IsRepeatedTooSoon(const MovingUnit& unit, const UnitOrder& order) const {
  return !order.cancels && unit.status.phase == UnitPhase::kReceiving &&
         order.record.phase == MovePhase::kOpen && unit.status.seen == order.record &&
         parts_.clock.Now() - unit.progress_at < options_.resend_after;
}

MovingUnit* Mover::FindOrBegin(const UnitOrder& order) {
  if (MovingUnit* const unit = Find(order.unit)) return unit;
  const UnitRecord& record = order.record;
  const bool is_open = record.phase == MovePhase::kOpen;
  const bool concerns = is_open && (record.owner == self_ || record.target == self_);
  if (!concerns && !order.settles) return nullptr;
  const absl::StatusOr<UnitShape> shape = parts_.host.ShapeOf(order.unit);
  if (shape.ok()) return Begin(order, shape->chunks());
  if (absl::IsNotFound(shape.status())) return nullptr;  // Its plan is on the way.
  UnitReport refused{.unit = order.unit, .kind = UnitReport::Kind::kRefused, .move = record.move};
  refused.message = Message(shape.status());
  parts_.control.Report({std::move(refused)});
  return nullptr;
}

// Runs after the step for the record. An answer that is lost is asked for again.
void Mover::ReportIfSettled(const MovingUnit& unit, MoveId move) {
  parts_.host.RunInOrder(unit.id.table,
                         [this, queue = queue_, id = unit.id, move, tracker = unit.tracker] {
                           const bool owns = Owns(tracker->state());
                           queue->Post([this, id, move, owns] {
                             const MovingUnit* const unit = Find(id);
                             if (unit == nullptr || unit->adopts.has_value() || owns) return;
                             Report(*unit, UnitReport::Kind::kSettled, move, "");
                           });
                         });
}

void Mover::DropAside(TableId table) {
  for (const auto& [id, unit] : units_) {
    const bool is_aside = unit->status.phase == UnitPhase::kRetained && unit->status.move == kAside;
    if (id.table == table && is_aside) Deliver(*unit, DropAsideEvent{});
  }
}

std::vector<UnitStandings> Mover::UnitsElsewhere() {
  struct Found {
    Mutex mu;
    CondVar changed;
    std::size_t tables ABSL_GUARDED_BY(mu) = 0;  // Tables that have not answered.
    bool is_asked ABSL_GUARDED_BY(mu) = false;
    std::vector<UnitStandings> units ABSL_GUARDED_BY(mu);
  };
  auto found = std::make_shared<Found>();
  const bool is_open = queue_->Post([this, found] {
    std::map<TableId, std::vector<std::pair<UnitStandings, std::shared_ptr<UnitTracker>>>> tables;
    for (const auto& [id, unit] : units_) {
      tables[id.table].emplace_back(UnitStandings{.table = id.table,
                                                  .column_granule = id.column_granule,
                                                  .granule_begin = id.row_granule,
                                                  .granule_end = id.row_granule + 1,
                                                  .standing = {},
                                                  .device = unit->target_device},
                                    unit->tracker);
    }
    {
      const MutexLock lock(found->mu);
      found->tables = tables.size();
      found->is_asked = true;
      found->changed.NotifyAll();
    }
    for (auto& [id, units] : tables) {
      parts_.host.RunInOrder(id, [found, units = std::move(units)] {
        const MutexLock lock(found->mu);
        for (const auto& [place, tracker] : units) {
          UnitStandings unit = place;
          unit.standing = tracker->Standing();
          if (unit.standing.state != UnitStanding::State::kOwned) found->units.push_back(unit);
        }
        --found->tables;
        found->changed.NotifyAll();
      });
    }
  });
  const MutexLock lock(found->mu);
  while (is_open && (!found->is_asked || found->tables > 0)) found->changed.Wait(found->mu);
  return std::move(found->units);
}

std::shared_ptr<UnitTracker> Mover::MakeTracker(NodeId self, std::uint32_t chunks) const {
  const UnitContext context{.self = self,
                            .chunks = chunks,
                            .credit_chunks = options_.credit_chunks,
                            .behind_max = options_.behind_max,
                            .rounds_max = options_.rounds_max};
  return std::make_shared<UnitTracker>(context, parts_.clock);
}

MovingUnit* Mover::Begin(const UnitOrder& order, std::uint32_t chunks) {
  auto& unit = units_[order.unit];
  unit = std::make_unique<MovingUnit>(order.unit, chunks, MakeTracker(self_, chunks));
  if (order.record.owner == self_) unit->adopts = order.record.epoch;
  // This node knows of no move of the unit.
  if (order.settles) unit->adopts = kFirstEpoch;
  return unit.get();
}

// The log may have no room for it: then the next order tries again.
void Mover::Adopt(MovingUnit& unit) {
  parts_.host.RunInOrder(
      unit.id.table, [this, parts = parts_, queue = queue_, id = unit.id, tracker = unit.tracker,
                      epoch = *unit.adopts, lsn = FirstLsnOf(log_process_)] {
        if (tracker->is_adopted() || !parts.log.AppendAdopted(id, epoch).ok()) return;
        tracker->Adopt(epoch, parts.host.WindowsOf(id), lsn);
        parts.host.SetGate(id, tracker);
        queue->Post([this, id] {
          if (MovingUnit* const unit = Find(id)) unit->adopts.reset();
        });
      });
}

void Mover::Restore(RestoredNode restored) {
  std::vector<std::unique_ptr<MovingUnit>> units;
  for (RestoredUnit& from : restored.units) {
    const auto chunks = static_cast<std::uint32_t>(from.durable.touched.size());
    const bool has_left = from.durable.left.has_value();
    const bool has_gate =
        from.durable.epoch != UnitEpoch{0} || from.durable.released.has_value() || has_left;
    const bool is_unused = from.has_memory && !from.durable.import.has_value();
    const std::shared_ptr<UnitTracker> tracker = MakeTracker(restored.self, chunks);
    tracker->Restore(std::move(from.durable), std::move(from.staged), from.folded);
    auto unit = std::make_unique<MovingUnit>(from.unit, chunks, tracker);
    unit->target_device = from.device;
    unit->run = from.run;
    unit->status = tracker->Status();
    unit->is_folded = tracker->is_folded();
    if (is_unused) unit->work.emplace_back(NodeAction(DiscardStaged{}));
    if (has_left) unit->left_since = kUnknownPlan;
    if (has_gate) {
      parts_.host.RunInOrder(from.unit.table,
                             [&host = parts_.host, id = from.unit, plan = from.folded, tracker] {
                               host.SetGate(id, tracker);
                               if (tracker->is_folded()) host.JoinRest(id, UnitWindows(), plan);
                             });
    }
    units.push_back(std::move(unit));
  }
  queue_->Post([this, self = restored.self, log_process = restored.log_process,
                units = std::move(units)]() mutable {
    self_ = self;
    log_process_ = log_process;
    for (auto& unit : units) {
      MovingUnit& known = *(units_[unit->id] = std::move(unit));
      metrics_.CountChange(UnitPhase::kElsewhere, known.status.phase);
      if (known.is_folded) ++folded_[known.id.table];
      RunWork(known);
    }
  });
}

void Mover::HandleMessage(PeerMessage message) {
  MovingUnit* const unit = Find(message.unit);
  if (auto* const pull = std::get_if<Pull>(&message.body)) {
    if (unit == nullptr || addresses_.count(message.from) == 0) {
      // The order that opened the move is late or lost.
      parts_.control.Report({UnitReport{
          .unit = message.unit, .kind = UnitReport::Kind::kReadRecord, .move = pull->move}});
      if (early_pulls_.size() < kEarlyPullsMax) {
        early_pulls_.insert_or_assign(message.unit, std::move(message));
      }
      return;
    }
    unit->progress_at = parts_.clock.Now();
    return DeliverPull(*unit, message.from, std::move(*pull));
  }
  if (unit == nullptr) return;
  if (std::holds_alternative<Chunk>(message.body)) {
    return DeliverRows(*unit, std::move(message));
  }
  if (const auto* const holds = std::get_if<Holds>(&message.body)) {
    return Deliver(*unit, HoldsEvent{.from = message.from, .holds = *holds});
  }
  if (const auto* const release = std::get_if<Release>(&message.body)) {
    return Deliver(*unit, ReleaseEvent{.from = message.from, .release = *release});
  }
  if (const auto* const covered = std::get_if<Covered>(&message.body)) {
    return Deliver(*unit, CoveredEvent{*covered});
  }
  Deliver(*unit, FinalEvent{std::get<FinalCut>(std::move(message.body))});
}

void Mover::Deliver(MovingUnit& unit, NodeEvent event) {
  if (!image_.has_value()) return DeliverNow(unit, std::move(event));
  image_->held.push_back([this, id = unit.id, event = std::move(event)] {
    if (MovingUnit* const later = Find(id)) Deliver(*later, event);
  });
}

void Mover::DeliverNow(MovingUnit& unit, NodeEvent event) {
  ++steps_open_;
  parts_.host.RunInOrder(unit.id.table, [fold = fold_steps(), id = unit.id, tracker = unit.tracker,
                                         event = std::move(event)] {
    if (!fold.TakeApart(id, tracker)) {  // Dropped like a lost message: it is sent again.
      fold.queue->Post([mover = fold.mover] {
        --mover->steps_open_;
        mover->TakeImageIfLogged();
      });
      return;
    }
    UnitTracker::Stepped stepped = tracker->Step(event);
    if (!tracker->IsAtRest()) fold.parts.host.CancelFold(id.table);
    fold.queue->Post([mover = fold.mover, id, stepped = std::move(stepped)]() mutable {
      mover->OnStepped(id, std::move(stepped));
    });
  });
}

// A pull that may begin a freeze waits until little of the log is to be synced: RELEASE, which ends
// the freeze, waits for all of it.
void Mover::DeliverPull(MovingUnit& unit, NodeId from, Pull pull) {
  const bool may_freeze = unit.status.phase == UnitPhase::kSending &&
                          unit.status.move == pull.move &&
                          std::ranges::count(pull.held, Lsn{0}) == 0;
  PullEvent event{.from = from, .pull = std::move(pull)};
  if (!may_freeze) return Deliver(unit, std::move(event));
  parts_.log.SyncTail(
      [this, queue = queue_, id = unit.id, event = std::move(event)](const absl::Status&) {
        queue->Post([this, id, event] {
          if (MovingUnit* const unit = Find(id)) Deliver(*unit, event);
        });
      });
}

void Mover::DeliverRows(MovingUnit& unit, PeerMessage message) {
  const Chunk chunk = std::get<Chunk>(message.body);
  const auto shared = std::make_shared<PeerMessage>(std::move(message));
  parts_.host.RunInOrder(
      unit.id.table, [this, queue = queue_, id = unit.id, tracker = unit.tracker, chunk, shared] {
        if (!tracker->WantsRows(chunk)) return;
        queue->Post([this, id, chunk, shared] {
          MovingUnit* const unit = Find(id);
          if (unit == nullptr) return;
          unit->progress_at = parts_.clock.Now();
          unit->work.emplace_back(StageRows{chunk, std::move(shared->rows), shared->is_urgent});
          RunWork(*unit);
        });
      });
}

void Mover::OnStepped(const UnitId& id, UnitTracker::Stepped stepped) {
  --steps_open_;
  MovingUnit* const found = Find(id);
  if (found == nullptr) return TakeImageIfLogged();
  MovingUnit& unit = *found;
  NoteStatus(unit, stepped.status);
  for (const NodeAction& action : stepped.actions) {
    const auto* const log = std::get_if<LogAction>(&action);
    const auto* const own = log == nullptr ? nullptr : std::get_if<OwnRecord>(&log->record);
    if (own == nullptr) continue;
    unit.arrival = own->move;
    unit.here_since = kUnknownPlan;
    unit.left_since.reset();
  }
  for (NodeAction& action : stepped.actions) unit.work.emplace_back(std::move(action));
  LetGoOn(unit);
  RunWork(unit);
}

void Mover::NoteStatus(MovingUnit& unit, const UnitStatus& status) {
  const UnitStatus before = std::exchange(unit.status, status);
  if (before.phase != status.phase) {
    metrics_.CountChange(before.phase, status.phase);
    unit.progress_at = parts_.clock.Now();
    if (status.phase == UnitPhase::kFrozen) {
      sender_.Urge(unit.id);
      sender_.Pump();
    }
  }
  if (before.phase != UnitPhase::kFrozen || status.phase == UnitPhase::kFrozen) return;
  UnitReport over{.unit = unit.id, .kind = UnitReport::Kind::kProgress, .move = before.move};
  over.bytes_sent = unit.counted_move == before.move ? unit.bytes_sent : 0;
  unit.bytes_reported = over.bytes_sent;
  over.frozen = parts_.clock.Now() - before.frozen_since;
  metrics_.frozen.Observe(over.frozen);
  parts_.control.Report({std::move(over)});
}

absl::Duration Mover::Tick() {
  const absl::Time now = parts_.clock.Now();
  GiveUpImage(now);
  if (now >= units_tick_at_) {
    units_tick_at_ = now + std::min(options_.resend_after, options_.freeze_deadline) / 4;
    for (const auto& [id, unit] : units_) TickUnit(*unit, now);
    TakeApartWhatAsks(now);
    FoldUnits(now);
    CountGates();
  }
  sender_.Pump();
  return std::min(units_tick_at_ - now, sender_.NextPump());
}

void Mover::TickUnit(MovingUnit& unit, absl::Time now) {
  if (std::exchange(unit.waits_for_tick, false)) {
    Finish(unit);
    RunWork(unit);
  }
  if (!IsActive(unit.status.phase) || unit.status.move == kAside) return;
  if (now - unit.progress_at >= options_.resend_after) {
    unit.progress_at = now;
    // The move may have ended, and who told this node may have told it once.
    Report(unit, UnitReport::Kind::kReadRecord, unit.status.move, "");
    Deliver(unit, NodeTick{});
  }
  if (unit.status.is_tired && now - unit.deadline_told_at >= options_.resend_after) {
    Deliver(unit, NodeTick{});
  }
  const absl::Time frozen_at = std::max(unit.status.frozen_since, unit.deadline_told_at);
  if (unit.status.phase == UnitPhase::kFrozen && now - frozen_at >= options_.freeze_deadline) {
    unit.deadline_told_at = now;
    Deliver(unit, FreezeDeadline{});
  }
  const bool is_told =
      unit.status.move != unit.counted_move || unit.bytes_sent == unit.bytes_reported;
  if (is_told || now - unit.progress_told_at < options_.progress_interval) return;
  unit.progress_told_at = now;
  unit.bytes_reported = unit.bytes_sent;
  Report(unit, UnitReport::Kind::kProgress, unit.counted_move, "");
}

}  // namespace embla
