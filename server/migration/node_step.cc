#include "server/migration/node_step.h"

#include <utility>

#include "server/migration/node_stepper.h"

namespace embla {
namespace detail {

// Any record may arrive at any time, also one from long ago: only what it says has ended, has.
void NodeStepper::On(const RecordEvent& event) {
  const UnitRecord& record = event.record;
  if (IsNewer(record, unit().seen)) unit().seen = record;
  if (record.epoch < durable().epoch) return;
  InstallIfCommitted(record);
  EndFreezeIfMoveEnded(record);
  ReleaseIfMoved(record);
  TrimIfCleaned(record);
  DiscardIfEnded(record);
  ImportIfOpen(record);
  if (IsWithinNode(record)) return ChangeDevice(record);
  const bool is_done = record.phase == MovePhase::kCommitted && unit().is_covered &&
                       record.owner == context_.self && record.epoch == durable().epoch;
  if (is_done) Report(ReportKind::kCovered, record.committed);
}

void NodeStepper::On(const NodeTick&) {
  if (!guards_.facts_are_repeated) return;
  const auto& import = durable().import;
  if (!import.has_value()) return;
  if (import->is_sealed || Owns(unit())) {
    Report(ReportKind::kSealed, import->move);
  } else {
    FetchImport();
  }
}

}  // namespace detail

NodeStep StepNode(const UnitContext& context, UnitState state, const NodeEvent& event) {
  detail::NodeStepper stepper(context, std::move(state));
  std::visit([&stepper](const auto& e) { stepper.On(e); }, event);
  return std::move(stepper).Take();
}

}  // namespace embla
