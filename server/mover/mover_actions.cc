// Carrying the actions of a unit's steps out, one after another.
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "server/mover/mover.h"
#include "server/mover/mover_failpoints.h"

namespace embla {
namespace {

UnitReport::Kind KindOf(ReportKind kind) {
  switch (kind) {
    case ReportKind::kHandedOver:
      return UnitReport::Kind::kHandedOver;
    case ReportKind::kReady:
      return UnitReport::Kind::kReady;
    case ReportKind::kRefused:
      return UnitReport::Kind::kRefused;
    case ReportKind::kAborted:
      return UnitReport::Kind::kAborted;
  }
  EMBLA_CHECK(false);
}

// The unit has no owner that takes updates until what is sent has arrived.
bool HasWaitingWriters(const MovingUnit& unit) {
  const UnitPhase phase = unit.status.phase;
  return phase == UnitPhase::kFrozen || phase == UnitPhase::kHolding ||
         phase == UnitPhase::kRetained;
}

bool IsLinkLost(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

constexpr char kHasRowsAside[] =
    "the node keeps rows of the unit aside, from a copy older than a move of it; see embla verify, "
    "and give them up with embla table drop-leftovers";

std::string NameOf(const UnitId& id) {
  return absl::StrCat(ToInt(id.table), "/", id.row_granule, "/", id.column_granule);
}

}  // namespace

void Mover::RunWork(MovingUnit& unit) {
  while (!unit.is_busy && !unit.work.empty()) {
    unit.is_busy = true;
    UnitWork work = std::move(unit.work.front());
    unit.work.pop_front();
    CrashPoint(FailpointOf(work));
    NoteStarted(unit, work);
    std::visit([this, &unit](auto& w) { Do(unit, w); }, work);
  }
  TakeImageIfLogged();
}

void Mover::Do(MovingUnit& unit, NodeAction& action) {
  std::visit([this, &unit](auto& a) { Do(unit, a); }, action);
}

HostDone Mover::WhenDone(MovingUnit& unit, const char* what, AfterHost then) {
  return [this, queue = queue_, id = unit.id, what,
          then = std::move(then)](const absl::Status& status) {
    queue->Post([this, id, what, then, status] {
      MovingUnit* const unit = Find(id);
      if (unit == nullptr) return;
      if (!status.ok()) {
        LogWarning("mover", "cannot ", what, " unit=", NameOf(id), " reason=", Message(status));
      }
      CrashPoint("mover.host_done");
      OnHostDone(*unit, then, status);
    });
  };
}

// `then` appends a record that no step has asked for; the next step must know of it.
void Mover::OnHostDone(MovingUnit& unit, const AfterHost& then, const absl::Status& status) {
  if (then && HoldsBack(unit)) {
    image_->done.emplace(unit.id, [this, id = unit.id, then, status] {
      if (MovingUnit* const later = Find(id)) OnHostDone(*later, then, status);
    });
    return;
  }
  if (then) then(unit, status);
  Finish(unit);
  RunWork(unit);
}

// The unit's state has changed already: nobody may hear of it before the record is durable. After
// OWN everybody may, as what they hear of lies behind it in the log.
void Mover::Do(MovingUnit& unit, LogAction& action) {
  const absl::Status appended = parts_.log.AppendControl(
      unit.id, action.record,
      [this, queue = queue_, id = unit.id, record = action.record](const absl::Status& status) {
        queue->Post([this, id, record, status] { OnSynced(id, record, status); });
      });
  if (!appended.ok()) return OnNotLogged(unit, std::move(action), appended);
  if (std::holds_alternative<OwnRecord>(action.record)) Finish(unit);
}

void Mover::OnNotLogged(MovingUnit& unit, LogAction action, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    LogWarning("mover", "log is full, trying again unit=", NameOf(unit.id),
               " reason=", Message(status));
    return TryAgain(unit, std::move(action));
  }
  LogError("mover",
           "move stands still until the node restarts: the log cannot write unit=", NameOf(unit.id),
           " reason=", Message(status));
}

void Mover::OnSynced(const UnitId& id, const LogRecord& record, const absl::Status& status) {
  MovingUnit* const found = Find(id);
  if (found == nullptr) return;
  MovingUnit& unit = *found;
  if (!status.ok()) return OnNotLogged(unit, LogAction{record}, status);
  CrashPoint("mover.logged");
  if (std::holds_alternative<OwnRecord>(record)) return Deliver(unit, OwnSynced{});
  if (const auto* const release = std::get_if<ReleaseRecord>(&record)) {
    Deliver(unit, ReleaseSynced{release->released.move});
  }
  Finish(unit);
  RunWork(unit);
}

void Mover::TryAgain(MovingUnit& unit, NodeAction action) {
  unit.work.emplace_front(std::move(action));
  unit.waits_for_tick = true;
}

void Mover::Do(MovingUnit& unit, StageRows& stage) {
  const SharedBuffer rows(std::move(stage.rows));
  parts_.host.Stage(
      unit.id, stage.chunk.chunk, rows, stage.is_urgent ? ChunkTurn::kNow : ChunkTurn::kWhenIdle,
      WhenDone(unit, "stage rows",
               [this, chunk = stage.chunk, rows](MovingUnit& done, const absl::Status& status) {
                 OnStaged(done, chunk, rows, status);
               }));
}

// A chunk that is not in the log does not count as held, and is asked for again.
void Mover::OnStaged(MovingUnit& unit, const Chunk& chunk, const SharedBuffer& rows,
                     const absl::Status& status) {
  if (status.ok()) {
    const absl::Status logged = parts_.log.AppendChunk(unit.id, chunk, rows.bytes());
    if (logged.ok()) return DeliverNow(unit, ChunkEvent{chunk});
    LogWarning("mover", "chunk not logged unit=", NameOf(unit.id), " chunk=", chunk.chunk,
               " bytes=", rows.size(), " reason=", Message(logged));
    if (absl::IsInvalidArgument(logged)) {
      Report(unit, UnitReport::Kind::kRefused, chunk.move, Message(logged));
    }
  }
  parts_.host.RunInOrder(unit.id.table,
                         [tracker = unit.tracker, chunk] { tracker->StagingFailed(chunk); });
}

void Mover::Do(MovingUnit& unit, SendPull& action) {
  SendTo(action.to, unit, {.unit = unit.id, .from = self_, .body = std::move(action.pull)});
  Finish(unit);
}

void Mover::Do(MovingUnit& unit, SendFinal& action) {
  SendTo(action.to, unit, {.unit = unit.id, .from = self_, .body = std::move(action.cut)});
  Finish(unit);
}

void Mover::Do(MovingUnit& unit, SendHolds& action) {
  SendTo(action.to, unit, {.unit = unit.id, .from = self_, .body = action.holds});
  Finish(unit);
}

void Mover::Do(MovingUnit& unit, SendRelease& action) {
  SendTo(action.to, unit, {.unit = unit.id, .from = self_, .body = action.release});
  Finish(unit);
}

void Mover::Do(MovingUnit& unit, SendCovered& action) {
  SendTo(action.to, unit, {.unit = unit.id, .from = self_, .body = action.covered});
  Finish(unit);
}

void Mover::Do(MovingUnit& unit, SendChunk& action) {
  Finish(unit);
  const auto address = addresses_.find(action.to);
  if (address == addresses_.end()) return;
  Chunk chunk = action.chunk;
  chunk.base = Lsn{0};  // Chunks are sent whole.
  sender_.Add({.unit = unit.id,
               .from = self_,
               .to_address = address->second,
               .chunk = chunk,
               .is_urgent = HasWaitingWriters(unit)});
  sender_.Pump();
}

void Mover::SendTo(NodeId node, const MovingUnit& unit, PeerMessage message) {
  const auto address = addresses_.find(node);
  // Dropped like a lost message: its plan is on the way.
  if (address == addresses_.end()) return;
  const auto done = [this, queue = queue_, id = unit.id](const absl::Status& status) {
    if (status.ok()) return;
    queue->Post([this, id, status] {
      MovingUnit* const unit = Find(id);
      if (unit == nullptr) return;
      if (IsLinkLost(status)) return OnLinkLost(*unit);
      if (HasWaitingWriters(*unit)) unit->progress_at = absl::InfinitePast();  // Said again soon.
    });
  };
  parts_.transport.Send(address->second, std::move(message), done);
}

void Mover::OnSent(const SentChunk& sent) {
  MovingUnit* const found = Find(sent.unit);
  if (found == nullptr) return;
  MovingUnit& unit = *found;
  if (unit.counted_move != sent.chunk.move) {
    unit.counted_move = sent.chunk.move;
    unit.bytes_sent = 0;
    unit.bytes_reported = 0;
    unit.is_chunk_sent.assign(unit.is_chunk_sent.size(), false);
  }
  unit.bytes_sent += sent.bytes;
  metrics_.bytes.Add(static_cast<double>(sent.bytes));
  if (unit.is_chunk_sent[sent.chunk.chunk]) metrics_.chunks_resent.Add();
  unit.is_chunk_sent[sent.chunk.chunk] = true;
}

// The target asks for a chunk again after a while. A frozen unit has no time for that: its cut,
// said again, makes the target ask at once.
void Mover::OnLost(const UnitId& id, const absl::Status& why) {
  MovingUnit* const unit = Find(id);
  if (unit == nullptr) return;
  if (IsLinkLost(why)) return OnLinkLost(*unit);
  if (HasWaitingWriters(*unit)) Deliver(*unit, NodeTick{});
}

// The other end may be away for long. A freeze ends, and there is none for a while; what no step
// can take back is said again at the next tick.
void Mover::OnLinkLost(MovingUnit& unit) {
  if (!HasWaitingWriters(unit)) return;
  if (unit.status.phase != UnitPhase::kFrozen) {
    unit.progress_at = absl::InfinitePast();
    return;
  }
  unit.deadline_told_at = parts_.clock.Now();
  Deliver(unit, FreezeDeadline{});
}

void Mover::Report(const MovingUnit& unit, UnitReport::Kind kind, MoveId move,
                   std::string message) {
  UnitReport report{.unit = unit.id, .kind = kind, .move = move};
  report.message = std::move(message);
  report.bytes_sent = unit.counted_move == move ? unit.bytes_sent : 0;
  parts_.control.Report({std::move(report)});
}

void Mover::Do(MovingUnit& unit, SendReport& action) {
  const MoveReport& report = action.report;
  if (unit.status.move == kAside) unit.refusal = kHasRowsAside;
  Report(unit, KindOf(report.kind), report.move,
         report.kind == ReportKind::kRefused ? unit.refusal : "");
  Finish(unit);
}

void Mover::Do(MovingUnit& unit, ReserveImport& action) {
  const auto then = [this, move = action.move](MovingUnit& done, const absl::Status& status) {
    absl::Status reserved = status;
    if (status.ok()) {
      reserved = parts_.log.AppendReserved(done.id, done.target_device, done.run);
    }
    done.refusal = Message(reserved);
    DeliverNow(done, ReservedEvent{.move = move, .ok = reserved.ok()});
  };
  parts_.host.Reserve(unit.id, unit.target_device, unit.run,
                      WhenDone(unit, "reserve memory", then));
}

// The next report says that the rows are there, so it waits until they are.
void Mover::Do(MovingUnit& unit, ResetStaged& action) {
  parts_.host.Reset(unit.id, [this, queue = queue_, id = unit.id, action](const absl::Status& s) {
    queue->Post([this, id, action, status = s] {
      MovingUnit* const unit = Find(id);
      if (unit == nullptr) return;
      if (!status.ok()) {
        LogWarning("mover", "cannot reset rows, trying again unit=", NameOf(id),
                   " reason=", Message(status));
        return TryAgain(*unit, action);
      }
      Finish(*unit);
      RunWork(*unit);
    });
  });
}

void Mover::Do(MovingUnit& unit, InstallStaged&) {
  parts_.host.Install(unit.id, unit.tracker, WhenDone(unit, "install rows", {}));
}

void Mover::Do(MovingUnit& unit, RelocateRows& action) {
  parts_.host.Relocate(unit.id, [this, queue = queue_, id = unit.id,
                                 move = action.move](const absl::Status& status) {
    queue->Post([this, id, move, status] { OnRelocated(id, move, status); });
  });
}

// RELOCATE is in the log: there is no way but on.
void Mover::OnRelocated(const UnitId& id, MoveId move, const absl::Status& status) {
  MovingUnit* const found = Find(id);
  if (found == nullptr) return;
  MovingUnit& unit = *found;
  CrashPoint("mover.host_done");
  if (!status.ok()) {
    LogWarning("mover", "rows have not all changed devices, trying again unit=", NameOf(id),
               " reason=", Message(status));
    return TryAgain(unit, RelocateRows{move});
  }
  Finish(unit);
  RunWork(unit);
}

void Mover::Do(MovingUnit& unit, DiscardStaged&) {
  parts_.host.Discard(unit.id, WhenDone(unit, "discard staged rows", {}));
}

// The gate stays until a plan says what it does.
void Mover::Do(MovingUnit& unit, TrimRows&) {
  unit.left_since = kUnknownPlan;
  parts_.host.Trim(unit.id, WhenDone(unit, "trim rows", {}));
}

}  // namespace embla
