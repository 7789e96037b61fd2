#include "server/migration/coordinator_step.h"

#include <utility>

namespace embla {
namespace {

class CoordinatorStepper {
 public:
  CoordinatorStepper(CoordinatedUnit state, const Guards& guards)
      : step_{state, {}}, guards_(guards) {}

  void On(const StoredRecord& event) {
    if (!IsNewer(record(), event.record)) step_.state.record = event.record;
    TellBothEnds();
  }

  void On(const StartMove& event) {
    if (IsUnknown()) return Do(ReadFromStore{});
    Put(event.is_anew ? OpenedAnew(record(), event.target) : Opened(record(), event.target));
  }

  // Only the source can say that it will not hand the unit over. Where there is none, or it is
  // lost, the target says that it will not take it.
  void On(const CancelMove& event) {
    if (record().phase != MovePhase::kOpen) return;
    if (IsAnew(record()) || !guards_.abort_asks_source)
      return Put(Aborted(record(), record().move));
    Do(TellCancel{.to = event.source_is_lost ? record().target : record().source,
                  .record = record(),
                  .source_is_lost = event.source_is_lost});
  }

  void On(const CoordinatorTick&) {
    if (!guards_.facts_are_repeated && !IsUnknown()) return;
    Do(ReadFromStore{});
  }

  void On(const ReportEvent& event) {
    if (IsUnknown()) return;
    const MoveReport& report = event.report;
    switch (report.kind) {
      case ReportKind::kHandedOver:
        return Put(HandedOver(record(), report.move, guards_));
      case ReportKind::kReady:
        if (IsAnew(record())) Put(HandedOver(record(), report.move, guards_));
        return;
      case ReportKind::kRefused:
        if (record().move == report.move) On(CancelMove{});
        return;
      case ReportKind::kAborted:
        if (event.is_of_next_life && record().move == report.move && !IsWithinNode(record()) &&
            guards_.lost_moves_end) {
          return On(CancelMove{.source_is_lost = true});
        }
        return Put(Aborted(record(), report.move));
    }
  }

  CoordinatorStep Take() && { return std::move(step_); }

 private:
  const UnitRecord& record() const { return step_.state.record; }
  bool IsUnknown() const { return record().epoch == UnitEpoch{0}; }

  template <typename Action>
  void Do(Action action) {
    step_.actions.emplace_back(std::move(action));
  }

  // A change that the record does not allow is not asked for.
  void Put(const absl::StatusOr<UnitRecord>& desired) {
    if (desired.ok()) Do(PutToStore{.expected = record(), .desired = *desired});
  }

  void TellBothEnds() {
    if (record().move == MoveId{0}) return;
    if (!IsAnew(record())) Do(TellRecord{record().source, record()});
    if (!IsWithinNode(record())) Do(TellRecord{record().target, record()});
  }

  CoordinatorStep step_;
  const Guards& guards_;
};

}  // namespace

CoordinatorStep StepCoordinator(CoordinatedUnit state, const CoordinatorEvent& event,
                                const Guards& guards) {
  CoordinatorStepper stepper(state, guards);
  std::visit([&stepper](const auto& e) { stepper.On(e); }, event);
  return std::move(stepper).Take();
}

bool MayServe(const UnitRecord& record, NodeId node, const UnitStanding& standing,
              bool source_is_lost, const Guards& guards) {
  using State = UnitStanding::State;
  // RELEASE, where the node's log has it, is its word about the move.
  const bool may_have_let_go = record.phase == MovePhase::kOpen && record.source == node &&
                               source_is_lost && standing.state != State::kHandedOver;
  if (may_have_let_go && guards.lost_moves_end) return false;
  const bool is_elsewhere =
      (standing.state == State::kOwned && record.owner != node) ||
      (standing.state == State::kComing && SaysAborted(record, standing.last_move));
  return !is_elsewhere || !guards.owners_agree;
}

}  // namespace embla
