// The source's part: answer pulls, freeze, cut, release, trim. It keeps nothing about a copy under
// way that it could not do without: what the target holds, the target says.
#include <algorithm>

#include "server/migration/node_stepper.h"

namespace embla::detail {

void NodeStepper::On(const FreezeEvent& event) {
  const UnitRecord& record = event.record;
  const bool is_ours = record.phase == MovePhase::kOpen && record.owner == context_.self &&
                       record.epoch == durable().epoch;
  if (!is_ours) return;
  const bool is_ended =
      record.move < durable().min_move || SaysEndedWithoutCommit(unit().seen, record.move);
  if (is_ended && guards_.source_min_move) return;
  if (durable().frozen == record.move) return SendFinalCut(record.target);
  if (record.move < unit().freezing) return;
  if (IsNewer(record, unit().seen)) unit().seen = record;
  unit().freezing = record.move;
  if (unit().written == durable().lsn) FinishFreeze();
}

void NodeStepper::FinishFreeze() {
  const FreezeRecord freeze{unit().freezing, durable().lsn, durable().touched};
  if (guards_.freeze_persisted) {
    Log(freeze);
  } else {
    ApplyUnlogged(freeze);
  }
  unit().freezing = MoveId{0};
  if (unit().seen.move == freeze.move) SendRest(unit().seen.target);
}

// Sends the chunks that were touched since they were sent. Their answer brings the cut, one round
// trip sooner than if the target asked for them after the cut. Chunks on their way are answered,
// too, and would be sent twice if the cut overtook them; lost chunks are asked for when the order
// to freeze, or the pull, is repeated.
void NodeStepper::SendRest(NodeId to) {
  const MoveId frozen = durable().frozen;
  const ChunkVersions& touched = durable().touched;
  ChunkVersions& sent = unit().sent;
  std::vector<std::uint32_t> behind;
  for (std::uint32_t c = 0; unit().sent_move == frozen && c < context_.chunks; ++c) {
    if (sent[c] == Lsn{0} || sent[c] < touched[c]) behind.push_back(c);
  }
  const bool is_on_its_way = unit().sent_move == frozen && unit().lacks_sent;
  if (behind.empty() && is_on_its_way) return;
  if (behind.empty() || behind.size() > context_.credit_chunks) return SendFinalCut(to);
  for (const std::uint32_t c : behind) {
    sent[c] = durable().lsn;
    Do(SendChunk{to, Chunk{frozen, c, Lsn{0}, durable().lsn}});
  }
}

// A frozen source has promised not to write: it may ask for the abort, never assume it.
void NodeStepper::On(const FreezeDeadline&) {
  const MoveId frozen = durable().frozen;
  if (frozen == MoveId{0}) return;
  if (!guards_.unfreeze_by_record) return Log(UnfreezeRecord{frozen});
  const auto aborted = Aborted(unit().seen, frozen);
  if (!aborted.ok()) return Do(ReadRecord{});
  Do(PutRecord{.expected = unit().seen, .desired = *aborted});
}

void NodeStepper::On(const PullEvent& event) {
  const Pull& pull = event.pull;
  if (pull.move < durable().min_move || pull.epoch != durable().epoch || !Owns(unit())) return;
  if (durable().frozen != MoveId{0} && durable().frozen != pull.move) return;
  if (pull.held.size() != context_.chunks) return;
  // The target holds updates that this node lost: the copies cannot be made one again.
  for (const Lsn held : pull.held) {
    if (held > durable().lsn) return Report(ReportKind::kRefused, pull.move);
  }
  const std::uint32_t behind = SendChunksBehind(event);
  if (durable().frozen == pull.move) {
    if (behind == 0) SendFinalCut(event.from);
    return;
  }
  if (behind <= context_.behind_max) Report(ReportKind::kCaughtUp, pull.move);
}

std::uint32_t NodeStepper::SendChunksBehind(const PullEvent& event) {
  const Pull& pull = event.pull;
  ChunkVersions& sent = unit().sent;
  if (unit().sent_move != pull.move || pull.resend) {
    sent = pull.held;
    unit().lacks_sent = true;
  }
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
    // A chunk that an earlier process sent may hold updates that were lost: it is no base for a
    // delta.
    const Lsn base = AreOfOneProcess(pull.held[c], version) ? pull.held[c] : Lsn{0};
    Do(SendChunk{event.from, Chunk{pull.move, c, base, version}});
  }
  if (behind == 0) unit().lacks_sent = false;  // A later pull that says otherwise is an older one.
  return behind;
}

void NodeStepper::SendFinalCut(NodeId to) {
  FinalCut cut{.move = durable().frozen, .lsn = durable().lsn, .needed = durable().touched};
  if (guards_.windows_travel) cut.windows = durable().windows;
  Do(SendFinal{to, std::move(cut)});
}

void NodeStepper::EndFreezeIfMoveEnded(const UnitRecord& record) {
  if (record.owner != context_.self || record.epoch != durable().epoch) return;
  const MoveId freezing = unit().freezing;
  if (freezing != MoveId{0} && SaysEndedWithoutCommit(record, freezing)) {
    unit().freezing = MoveId{0};
  }
  const MoveId frozen = durable().frozen;
  if (frozen != MoveId{0} && SaysEndedWithoutCommit(record, frozen)) Log(UnfreezeRecord{frozen});
}

// A unit is handed over by a cut, which a source makes frozen, and stays so until a record says
// otherwise. One that was never frozen comes from a log, or a coordinator's store, that was
// restored from an older copy; so does one whose owner has the same epoch. Its rows wait for an
// operator.
void NodeStepper::ReleaseIfMoved(const UnitRecord& record) {
  if (!Owns(unit()) || record.owner == context_.self || record.epoch < durable().epoch) return;
  const bool is_handed_over = durable().frozen != MoveId{0} && record.epoch > durable().epoch;
  unit().freezing = MoveId{0};
  Log(ReleaseRecord{is_handed_over ? record.committed : kAside});
}

void NodeStepper::TrimIfCleaned(const UnitRecord& record) {
  const MoveId retained = durable().retained;
  if (retained == MoveId{0} || record.committed < retained) return;
  if (retained == kAside) return;
  const bool is_uncleaned = record.phase == MovePhase::kCommitted && record.committed == retained;
  if (is_uncleaned && guards_.trim_waits_for_cleanup) return;
  Log(TrimRecord{retained});
  unit().written = Lsn{0};
  Do(TrimRows{});
}

void NodeStepper::On(const DropAsideEvent&) {
  if (durable().retained != kAside) return;
  Log(TrimRecord{kAside});
  unit().written = Lsn{0};
  Do(TrimRows{});
}

}  // namespace embla::detail
