// A move between two devices of one node, which is its source and its target and goes on to own the
// unit. Nothing is sent and nothing is frozen: room is reserved on the other device, and the rows
// change devices between two requests. Until then the unit's import is that room.
#include "server/migration/node_stepper.h"

namespace embla::detail {

void NodeStepper::ChangeDevice(const UnitRecord& record) {
  const bool is_here = Owns(unit()) && record.owner == context_.self &&
                       record.source == context_.self && record.epoch == durable().epoch;
  if (!is_here) return;
  if (record.phase != MovePhase::kOpen || record.move < durable().min_move) return;
  const auto& import = durable().import;
  if (!import.has_value()) {
    unit().reserving = record.move;
    return Do(ReserveImport{record.move});
  }
  if (import->move == record.move) Relocate();
}

// The order of the unit's updates relative to this one makes no difference to its rows.
void NodeStepper::Relocate() {
  const MoveId move = durable().import->move;
  Log(RelocateRecord{move});
  Do(RelocateRows{move});
  Report(ReportKind::kHandedOver, move);
}

}  // namespace embla::detail
