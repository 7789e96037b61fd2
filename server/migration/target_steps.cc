// The target's part: reserve, pull, stage, seal, install. A staged copy is invisible, and becomes
// the unit only when the store's record says that this very move was committed.
#include <algorithm>

#include "server/migration/node_stepper.h"

namespace embla::detail {

void NodeStepper::ImportIfOpen(const UnitRecord& record) {
  if (record.phase != MovePhase::kOpen || record.target != context_.self) return;
  if (IsWithinNode(record) || Owns(unit())) return;
  if (record.move < durable().min_move && guards_.target_min_move) return;
  if (durable().retained == kAside) return Report(ReportKind::kRefused, record.move);
  if (durable().retained != MoveId{0}) return;  // Rows of an earlier life are still kept.
  if (durable().import.has_value()) {
    if (durable().import->move != record.move) return;
    if (durable().import->is_sealed) return Report(ReportKind::kSealed, record.move);
    return FetchImport();
  }
  unit().reserving = record.move;
  Do(ReserveImport{record.move});
}

void NodeStepper::On(const ReservedEvent& event) {
  if (unit().reserving != event.move || unit().seen.move != event.move) return;
  unit().reserving = MoveId{0};
  if (!event.ok) return Report(ReportKind::kRefused, event.move);
  Log(ImportRecord{event.move, unit().seen.source, unit().seen.epoch});
  std::fill(unit().staged.begin(), unit().staged.end(), Lsn{0});
  if (Owns(unit())) return ChangeDevice(unit().seen);
  FetchImport();
}

void NodeStepper::FetchImport() {
  if (durable().import->source == NodeId{0}) return SealInitial();
  SendPullNow(/*resend=*/true);
}

// No node has the rows any more: the unit begins as a table does, and knows of no update.
void NodeStepper::SealInitial() {
  const MoveId move = durable().import->move;
  Do(ResetStaged{});
  Log(SealRecord{move, Lsn{1}, UnitWindows()});
  Report(ReportKind::kSealed, move);
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
  if (!IsReceiving(unit(), chunk.move) || durable().import->is_sealed) return;
  if (chunk.chunk >= context_.chunks || chunk.version <= chunk.base) return;
  Lsn& staged = unit().staged[chunk.chunk];
  if (chunk.base > staged && guards_.delta_base) return;
  if (chunk.version <= staged && guards_.chunk_order) return;
  staged = std::max(staged, chunk.version);
  Do(StageChunk{chunk});
  SendPullNow(/*resend=*/false);
}

void NodeStepper::On(const FinalEvent& event) {
  const FinalCut& cut = event.cut;
  const auto& import = durable().import;
  if (!IsReceiving(unit(), cut.move)) return;
  if (import->is_sealed) return Report(ReportKind::kSealed, cut.move);
  if (cut.needed.size() != context_.chunks) return;
  bool is_whole = true;
  for (std::uint32_t c = 0; c < context_.chunks; ++c) {
    is_whole = is_whole && unit().staged[c] != Lsn{0} && unit().staged[c] >= cut.needed[c];
  }
  if (!is_whole && guards_.seal_checks_chunks) return SendPullNow(/*resend=*/true);
  const SealRecord seal{cut.move, cut.lsn, cut.windows};
  if (guards_.seal_persisted) {
    Log(seal);
  } else {
    ApplyUnlogged(seal);
  }
  Report(ReportKind::kSealed, cut.move);
  if (guards_.activate_on_record) return;
  Log(OwnRecord{Next(import->source_epoch), cut.move});
  unit().written = durable().lsn;
  Do(InstallStaged{});
}

void NodeStepper::InstallIfCommitted(const UnitRecord& record) {
  const auto& import = durable().import;
  const bool is_ours = record.owner == context_.self && record.epoch > durable().epoch;
  if (!is_ours || !import.has_value() || !import->is_sealed) return;
  if (import->move != record.committed) return;
  Log(OwnRecord{record.epoch, record.committed});
  unit().written = durable().lsn;
  unit().is_covered = false;
  unit().freezing = MoveId{0};
  std::fill(unit().staged.begin(), unit().staged.end(), Lsn{0});
  Do(InstallStaged{});
}

void NodeStepper::DiscardIfEnded(const UnitRecord& record) {
  if (unit().reserving != MoveId{0} && SaysEndedWithoutCommit(record, unit().reserving)) {
    unit().reserving = MoveId{0};
  }
  const auto& import = durable().import;
  if (!import.has_value() || !SaysEndedWithoutCommit(record, import->move)) return;
  Log(DiscardRecord{import->move});
  std::fill(unit().staged.begin(), unit().staged.end(), Lsn{0});
  Do(DiscardStaged{});
}

void NodeStepper::On(const CoveredEvent&) {
  if (!Owns(unit())) return;
  unit().is_covered = true;
  const UnitRecord& seen = unit().seen;
  if (seen.phase == MovePhase::kCommitted && seen.epoch == durable().epoch) {
    Report(ReportKind::kCovered, seen.committed);
  }
}

}  // namespace embla::detail
