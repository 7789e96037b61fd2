// A move between two devices of one node, which is its source and its target and goes on to own the
// unit. Nothing is sent and nothing is frozen: room is reserved on the other device, the record
// commits, and the rows change devices between two requests. Until then the unit's import is that
// room.
#include "server/migration/node_stepper.h"

namespace embla::detail {

// The node may lack room even for a committed record: a restarted process has lost it.
void NodeStepper::ChangeDevice(const UnitRecord& record) {
  const bool is_here = Owns(unit()) && record.owner == context_.self &&
                       record.source == context_.self && record.epoch == durable().epoch;
  const bool is_committed = record.phase == MovePhase::kCommitted;
  if (!is_here || (record.phase != MovePhase::kOpen && !is_committed)) return;
  const bool is_over = record.move < durable().min_move;
  if (is_over && is_committed) return Report(ReportKind::kCovered, record.move);
  if (is_over && guards_.target_min_move) return;
  const auto& import = durable().import;
  if (!import.has_value()) {
    unit().reserving = record.move;
    return Do(ReserveImport{record.move});
  }
  if (import->move != record.move) return;
  if (is_committed || !guards_.activate_on_record) return Relocate();
  Report(ReportKind::kSealed, record.move);
}

// The order of the unit's updates relative to this one makes no difference to its rows.
void NodeStepper::Relocate() {
  const MoveId move = durable().import->move;
  Log(RelocateRecord{move});
  Do(RelocateRows{move});
  Report(ReportKind::kCovered, move);
}

}  // namespace embla::detail
