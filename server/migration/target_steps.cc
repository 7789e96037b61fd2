// The target's part: reserve, pull, stage, hold, install. A staged copy is invisible, and becomes
// the unit only when the source lets go of the very cut that it is.
#include <algorithm>
#include <utility>

#include "server/migration/node_stepper.h"

namespace embla::detail {

void NodeStepper::ImportIfOpen(const UnitRecord& record) {
  if (record.phase != MovePhase::kOpen || record.target != context_.self) return;
  if (IsWithinNode(record) || Owns(unit())) return;
  if (record.move < durable().min_move && guards_.target_min_move) return;
  if (IsAside(durable())) return Report(ReportKind::kRefused, record.move);
  if (durable().released.has_value()) return;  // Rows of an earlier life are still kept.
  if (durable().import.has_value()) {
    if (durable().import->move == record.move) FetchImport();
    return;
  }
  unit().reserving = record.move;
  Do(ReserveImport{record.move});
}

void NodeStepper::On(const ReservedEvent& event) {
  if (unit().reserving != event.move || unit().seen.move != event.move) return;
  unit().reserving = MoveId{0};
  if (!event.ok) return Report(ReportKind::kRefused, event.move);
  Log(ImportRecord{event.move, unit().seen.source, unit().seen.epoch});
  ForgetStaged();
  if (Owns(unit())) return ChangeDevice(unit().seen);
  FetchImport();
}

void NodeStepper::FetchImport() {
  if (durable().import->source == NodeId{0}) return StageInitial();
  SendPullNow(/*resend=*/true);
}

// No node has the rows any more: the unit begins as a table does, and knows of no update.
void NodeStepper::StageInitial() {
  Do(ResetStaged{});
  Report(ReportKind::kReady, durable().import->move);
}

void NodeStepper::SendPullNow(bool resend) {
  const ImportState& import = *durable().import;
  Do(SendPull{import.source, Pull{.move = import.move,
                                  .epoch = import.source_epoch,
                                  .held = unit().staged,
                                  .credit = context_.credit_chunks,
                                  .resend = resend}});
}

void NodeStepper::On(const ChunkEvent& event) {
  const Chunk& chunk = event.chunk;
  if (!IsReceiving(unit(), chunk.move)) return;
  if (chunk.chunk >= context_.chunks || chunk.version <= chunk.base) return;
  Lsn& staged = unit().staged[chunk.chunk];
  if (chunk.base > staged && guards_.delta_base) return;
  if (chunk.version <= staged && guards_.chunk_order) return;
  staged = std::max(staged, chunk.version);
  unit().held.reset();
  Do(StageChunk{chunk});
  if (!HoldIfWhole()) SendPullNow(/*resend=*/false);
}

void NodeStepper::On(const FinalEvent& event) {
  const FinalCut& cut = event.cut;
  if (!IsReceiving(unit(), cut.move) || cut.needed.size() != context_.chunks) return;
  unit().cut = cut;
  if (!HoldIfWhole() && !cut.chunks_follow) SendPullNow(/*resend=*/true);
}

bool NodeStepper::HoldIfWhole() {
  if (!unit().cut.has_value()) return false;
  const FinalCut& cut = *unit().cut;
  bool is_whole = true;
  bool is_late = false;
  for (std::uint32_t c = 0; c < context_.chunks; ++c) {
    const Lsn staged = unit().staged[c];
    is_whole = is_whole && staged != Lsn{0} && staged >= cut.needed[c];
    // A chunk beyond the cut has updates that the cut's windows do not know.
    is_late = is_late || staged > cut.lsn;
  }
  if (is_late && guards_.cut_is_newest) return false;
  if (!is_whole && guards_.holds_every_chunk) return false;
  const ImportState& import = *durable().import;
  unit().held = HeldCut{cut.lsn, cut.windows};
  unit().cut.reset();
  if (guards_.acquire_waits) {
    Do(SendHolds{import.source, Holds{import.move, unit().held->lsn}});
  } else {
    Acquire(Next(import.source_epoch), *unit().held);
  }
  return true;
}

void NodeStepper::ForgetStaged() {
  std::ranges::fill(unit().staged, Lsn{0});
  unit().cut.reset();
  unit().held.reset();
}

void NodeStepper::On(const ReleaseEvent& event) {
  const Release& release = event.release;
  if (!IsReceiving(unit(), release.move)) {
    // Its log has OWN on disk, or RELEASE of a later move.
    const bool is_safe = Owns(unit()) ? unit().is_covered : !unit().is_releasing;
    if (release.move < durable().min_move && is_safe) SayCovered(event.from, release.move);
    return;
  }
  if (release.epoch != Next(durable().import->source_epoch)) return;  // No source says that.
  const bool holds_it = unit().held.has_value() && unit().held->lsn == release.lsn;
  if (!holds_it && guards_.acquire_checks_cut) return SendPullNow(/*resend=*/true);
  Acquire(release.epoch, unit().held.value_or(HeldCut{release.lsn}));
}

void NodeStepper::Acquire(UnitEpoch epoch, HeldCut cut) {
  const MoveId move = durable().import->move;
  Log(OwnRecord{epoch, move, cut.lsn, std::move(cut.windows)});
  unit().written = durable().lsn;
  unit().is_covered = !guards_.cover_synced;
  ForgetStaged();
  Do(InstallStaged{});
  if (unit().is_covered) SayCovered(unit().seen.source, move);
}

void NodeStepper::On(const OwnSynced&) {
  if (!Owns(unit())) return;
  unit().is_covered = true;
  // Where the order is forgotten, the source asks by saying its RELEASE again.
  const UnitRecord& seen = unit().seen;
  const bool came_by_it =
      seen.target == context_.self && !IsWithinNode(seen) && Next(seen.move) == durable().min_move;
  if (!came_by_it) return;
  Report(ReportKind::kHandedOver, seen.move);
  SayCovered(seen.source, seen.move);
}

void NodeStepper::SayCovered(NodeId source, MoveId move) {
  if (source != NodeId{0}) Do(SendCovered{source, Covered{move}});
}

// Nobody can hand over what nobody has: here the record decides. Nor can a source that was lost
// before it could say which cut the unit is; what is held is the last one that it made.
void NodeStepper::InstallIfGranted(const UnitRecord& record, bool source_is_lost) {
  const auto& import = durable().import;
  const bool is_ours = record.owner == context_.self && record.epoch > durable().epoch;
  if (!is_ours || !import.has_value() || import->move != record.committed) return;
  const bool is_lost = source_is_lost && record.move == import->move;
  if (import->source != NodeId{0} && !is_lost) return;
  if (unit().held.has_value()) return Acquire(record.epoch, *unit().held);
  if (import->source != NodeId{0}) Do(ResetStaged{});
  Acquire(record.epoch, HeldCut{kFirstLsn});
}

void NodeStepper::DiscardIfEnded(const UnitRecord& record) {
  if (unit().reserving != MoveId{0} && SaysAborted(record, unit().reserving)) {
    unit().reserving = MoveId{0};
  }
  const auto& import = durable().import;
  if (!import.has_value() || !SaysAborted(record, import->move)) return;
  Log(DiscardRecord{import->move});
  ForgetStaged();
  Do(DiscardStaged{});
}

// A promise: whatever the source has sent, this node takes nothing over in that move.
void NodeStepper::GiveUpImport(const UnitRecord& record) {
  if (record.move < durable().min_move && !IsReceiving(unit(), record.move)) {
    if (durable().epoch != Next(record.epoch)) Report(ReportKind::kAborted, record.move);
    return;
  }
  if (Owns(unit())) return;
  AbortMove(record.move, guards_.promise_synced);
}

}  // namespace embla::detail
