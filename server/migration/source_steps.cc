// The source's part: answer pulls, freeze, cut, let go, trim. It keeps nothing about a copy under
// way that it could not do without: what the target holds, the target says.
//
// A freeze is a memory only, which keeps the cut still while the target fetches the rest. What
// hands the unit over is RELEASE, and it is written only for a target that holds the unit as it is
// then.
#include <algorithm>
#include <utility>

#include "server/migration/node_stepper.h"

namespace embla::detail {

bool NodeStepper::IsOrdered(MoveId move, NodeId target) {
  const UnitRecord& seen = unit().seen;
  const bool is_open = seen.phase == MovePhase::kOpen && seen.move == move;
  return is_open && seen.owner == context_.self && seen.target == target && Owns(unit()) &&
         seen.epoch == durable().epoch && (move >= durable().min_move || !guards_.source_min_move);
}

void NodeStepper::FinishFreeze() {
  unit().frozen = std::exchange(unit().freezing, MoveId{0});
  SendRest(unit().seen.target);
}

void NodeStepper::Unfreeze() {
  unit().freezing = MoveId{0};
  unit().frozen = MoveId{0};
}

// Sends the chunks that were touched since they were sent, and with them the cut: the target holds
// it when all have come, in whatever order. Lost chunks are asked for when the cut, or the pull, is
// repeated.
void NodeStepper::SendRest(NodeId to) {
  const MoveId frozen = unit().frozen;
  const ChunkVersions& touched = durable().touched;
  ChunkVersions& sent = unit().sent;
  std::vector<std::uint32_t> behind;
  for (std::uint32_t c = 0; unit().sent_move == frozen && c < context_.chunks; ++c) {
    if (sent[c] == Lsn{0} || sent[c] < touched[c]) behind.push_back(c);
  }
  if (behind.size() > context_.credit_chunks) return SendFinalCut(to, /*chunks_follow=*/false);
  for (const std::uint32_t c : behind) {
    sent[c] = durable().lsn;
    unit().lacks_sent = true;
    Do(SendChunk{to, Chunk{frozen, c, Lsn{0}, durable().lsn}});
  }
  SendFinalCut(to, unit().sent_move == frozen && unit().lacks_sent);
}

void NodeStepper::On(const FreezeDeadline&) {
  if (!IsFrozen(unit())) return;
  Unfreeze();
  unit().is_tired = true;
}

void NodeStepper::On(const PullEvent& event) {
  const Pull& pull = event.pull;
  if (pull.held.size() != context_.chunks) return;
  const auto& released = durable().released;
  const bool is_released = released.has_value() && released->move == pull.move;
  if (!is_released) {
    const bool is_over = pull.move < durable().min_move || pull.epoch != durable().epoch;
    if (is_over || !Owns(unit())) return;
    // The target holds updates that this node lost: the copies cannot be made one again.
    for (const Lsn held : pull.held) {
      if (held > durable().lsn) return AbortMove(pull.move, guards_.abort_synced);
    }
  }
  const std::uint32_t behind = SendChunksBehind(event);
  if (is_released || unit().frozen == pull.move) {
    if (behind == 0) SendFinalCut(event.from, /*chunks_follow=*/false);
    return;
  }
  // A freeze while nothing has been copied would last as long as the copy.
  const bool lacks_chunks = std::ranges::count(pull.held, Lsn{0}) > 0;
  const bool may_freeze = IsOrdered(pull.move, event.from) && !unit().is_tired;
  if (lacks_chunks || !may_freeze) return;
  if (behind > context_.behind_max && !IsCopyEndless()) return;
  unit().sends = 0;
  unit().freezing = pull.move;
  if (unit().written == durable().lsn) FinishFreeze();
}

// Updates touch chunks as fast as they are copied: another round would find as many behind. What
// changed during the last one is sent while the unit is frozen; if that takes too long, the freeze
// ends, and some more rounds come before the next.
bool NodeStepper::IsCopyEndless() {
  const std::uint32_t sends_max = context_.rounds_max * context_.chunks;
  return sends_max != 0 && unit().sends >= sends_max;
}

std::uint32_t NodeStepper::SendChunksBehind(const PullEvent& event) {
  const Pull& pull = event.pull;
  ChunkVersions& sent = unit().sent;
  if (unit().sent_move != pull.move || pull.resend) {
    sent = pull.held;
    unit().lacks_sent = true;
  }
  if (unit().sent_move != pull.move) unit().sends = 0;
  unit().sent_move = pull.move;
  const Lsn version = guards_.version_is_applied ? unit().written : durable().lsn;
  std::uint32_t behind = 0;
  std::uint32_t credit = pull.credit;
  for (std::uint32_t c = 0; c < context_.chunks; ++c) {
    const Lsn needed = durable().touched[c];
    if (pull.held[c] != Lsn{0} && pull.held[c] >= needed) continue;
    ++behind;
    const bool is_sent = sent[c] != Lsn{0} && sent[c] >= needed;
    // A version that is decided, but not written.
    const bool is_unchanged = version <= pull.held[c];
    if (is_sent || is_unchanged || credit == 0) continue;
    --credit;
    sent[c] = version;
    unit().lacks_sent = true;
    if (unit().sends < context_.rounds_max * context_.chunks) ++unit().sends;
    // A chunk that an earlier process sent may hold updates that were lost: it is no base for a
    // delta.
    const Lsn base = AreOfOneProcess(pull.held[c], version) ? pull.held[c] : Lsn{0};
    Do(SendChunk{event.from, Chunk{pull.move, c, base, version}});
  }
  if (behind == 0) unit().lacks_sent = false;  // A later pull that says otherwise is an older one.
  return behind;
}

void NodeStepper::SendFinalCut(NodeId to, bool chunks_follow) {
  const auto& released = durable().released;
  FinalCut cut{.move = released.has_value() ? released->move : unit().frozen,
               .lsn = durable().lsn,
               .needed = durable().touched,
               .chunks_follow = chunks_follow};
  if (guards_.windows_travel) cut.windows = durable().windows;
  Do(SendFinal{to, std::move(cut)});
}

void NodeStepper::On(const HoldsEvent& event) {
  const Holds& holds = event.holds;
  const auto& released = durable().released;
  if (released.has_value() && released->move == holds.move) return RepeatRelease();
  if (!IsOrdered(holds.move, event.from)) return;
  const bool is_current = holds.lsn == durable().lsn && unit().written == durable().lsn;
  if (!is_current && guards_.holds_match_cut) return;
  Unfreeze();
  unit().is_releasing = true;
  const ReleaseRecord release{
      {holds.move, event.from, Next(durable().epoch)}, holds.lsn, durable().touched};
  if (guards_.release_synced) return Log(release);
  ApplyUnlogged(release);
  On(ReleaseSynced{holds.move});
}

void NodeStepper::On(const ReleaseSynced& event) {
  if (!unit().is_releasing || durable().released->move != event.move) return;
  unit().is_releasing = !guards_.reads_stop;
  // The record that the coordinator will write; trainers are sent to its owner until it has.
  const absl::StatusOr<UnitRecord> after = HandedOver(unit().seen, event.move);
  if (after.ok()) unit().seen = *after;
  RepeatRelease();
  if (!guards_.trim_waits) Trim();
}

void NodeStepper::RepeatRelease() {
  const auto& released = durable().released;
  const bool is_told = !unit().is_releasing || !guards_.reads_stop;
  if (!released.has_value() || released->move == kAside || !is_told) return;
  Do(SendRelease{released->to, Release{released->move, released->epoch, durable().lsn}});
  Report(ReportKind::kHandedOver, released->move);
}

// A cancel comes to the source, whose word it is, or, when that is lost, to the target.
void NodeStepper::On(const CancelEvent& event) {
  const UnitRecord& record = event.record;
  if (record.phase != MovePhase::kOpen) return;
  if (IsNewer(record, unit().seen)) unit().seen = record;
  const bool is_source = Owns(unit()) && record.source == context_.self &&
                         record.epoch == durable().epoch && record.move >= durable().min_move;
  if (is_source) return AbortMove(record.move, guards_.abort_synced);
  if (IsComingStill(record)) return PromiseNoRelease(record.move);
  if (event.source_is_lost && record.target == context_.self) GiveUpImport(record);
  AnswerIfOver(record);
}

// The unit is to leave by `record` before it has come, as far as this node's log knows.
bool NodeStepper::IsComingStill(const UnitRecord& record) {
  const auto& import = durable().import;
  return !Owns(unit()) && record.source == context_.self && !IsWithinNode(record) &&
         import.has_value() && import->move < record.move;
}

void NodeStepper::PromiseNoRelease(MoveId move) {
  if (move >= durable().min_move) Log(AbortRecord{move});
  Report(ReportKind::kAborted, move);
}

void NodeStepper::AbortMove(MoveId move, bool is_synced) {
  Unfreeze();
  unit().reserving = MoveId{0};
  const bool has_room = durable().import.has_value();
  if (is_synced) {
    has_room ? Log(DiscardRecord{move}) : Log(AbortRecord{move});
  } else {
    has_room ? ApplyUnlogged(DiscardRecord{move}) : ApplyUnlogged(AbortRecord{move});
  }
  if (has_room) {
    ForgetStaged();
    Do(DiscardStaged{});
  }
  Report(ReportKind::kAborted, move);
}

// A node that has handed a unit over knows it from its own log. An owner that is none by the record
// comes from a log, or a coordinator's store, that was restored from an older copy. Its rows wait
// for an operator.
void NodeStepper::PutAsideIfMoved(const UnitRecord& record) {
  if (!Owns(unit()) || record.owner == context_.self || record.epoch < durable().epoch) return;
  Unfreeze();
  Log(ReleaseRecord{{kAside, record.owner, record.epoch}, durable().lsn, durable().touched});
}

void NodeStepper::On(const CoveredEvent& event) {
  const auto& released = durable().released;
  if (released.has_value() && released->move == event.covered.move) Trim();
}

// The next owner has let go of the unit again: its own RELEASE lies behind its OWN, both synced.
void NodeStepper::TrimIfMovedOn(const UnitRecord& record) {
  const auto& released = durable().released;
  if (!released.has_value() || released->move == kAside || unit().is_releasing) return;
  if (record.epoch > released->epoch) Trim();
}

void NodeStepper::Trim() {
  Log(TrimRecord{durable().released->move});
  unit().written = Lsn{0};
  Do(TrimRows{});
}

void NodeStepper::On(const DropAsideEvent&) {
  if (IsAside(durable())) Trim();
}

}  // namespace embla::detail
