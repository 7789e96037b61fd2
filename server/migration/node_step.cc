#include "server/migration/node_step.h"

#include <utility>

#include "server/migration/node_stepper.h"

namespace embla {
namespace detail {

// Any record may arrive at any time, also one from long ago: only what it says has ended, has.
void NodeStepper::On(const RecordEvent& event) {
  const UnitRecord& record = event.record;
  if (IsNewer(record, unit().seen)) unit().seen = record;
  AnswerIfOver(record);
  if (record.epoch < durable().epoch) return;
  InstallIfGranted(record, event.source_is_lost);
  PutAsideIfMoved(record);
  TrimIfMovedOn(record);
  DiscardIfEnded(record);
  ImportIfOpen(record);
  if (IsWithinNode(record)) ChangeDevice(record);
}

// The record may not know yet what has become of its move.
void NodeStepper::AnswerIfOver(const UnitRecord& record) {
  if (record.phase != MovePhase::kOpen) return;
  const MoveId move = record.move;
  const auto& released = durable().released;
  const bool has_released = released.has_value() && released->move == move && !unit().is_releasing;
  const bool has_taken_over = Owns(unit()) && unit().is_covered && record.target == context_.self &&
                              !IsWithinNode(record) && durable().epoch == Next(record.epoch);
  const auto& left = durable().left;
  const bool has_trimmed =
      !Owns(unit()) && (unit().seen.committed == move || (left.has_value() && left->move == move));
  if (has_released || has_taken_over || has_trimmed) {
    return Report(ReportKind::kHandedOver, move);
  }
  const bool is_source = Owns(unit()) && record.source == context_.self &&
                         record.epoch == durable().epoch && move < durable().min_move;
  if (!is_source) return;
  Report(durable().relocated == move ? ReportKind::kHandedOver : ReportKind::kAborted, move);
}

void NodeStepper::On(const NodeTick&) {
  if (!guards_.facts_are_repeated) return;
  unit().is_tired = false;
  if (unit().frozen != MoveId{0}) SendFinalCut(unit().seen.target, /*chunks_follow=*/false);
  RepeatRelease();
  if (durable().import.has_value() && !Owns(unit())) FetchImport();
}

}  // namespace detail

NodeStep StepNode(const UnitContext& context, UnitState state, const NodeEvent& event) {
  detail::NodeStepper stepper(context, std::move(state));
  std::visit([&stepper](const auto& e) { stepper.On(e); }, event);
  return std::move(stepper).Take();
}

}  // namespace embla
