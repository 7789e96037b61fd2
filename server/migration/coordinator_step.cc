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
    Put(event.is_anew ? OpenedAnew(record(), event.target)
                      : Opened(record(), event.target, guards_));
  }

  void On(const CancelMove&) {
    if (!IsUnknown()) Put(Aborted(record(), record().move));
  }

  void On(const CoordinatorTick&) {
    if (!guards_.facts_are_repeated && !IsUnknown()) return;
    Do(ReadFromStore{});
    if (!guards_.cleanup_waits_for_cover) Put(Cleaned(record(), record().move));
  }

  void On(const ReportEvent& event) {
    if (IsUnknown()) return;
    const MoveReport& report = event.report;
    switch (report.kind) {
      case ReportKind::kCaughtUp:
        if (record().phase == MovePhase::kOpen && record().move == report.move) {
          Do(TellFreeze{record().source, record()});
        }
        return;
      case ReportKind::kSealed:
        return Put(Committed(record(), report.move, guards_));
      case ReportKind::kRefused:
        return Put(Aborted(record(), report.move));
      case ReportKind::kCovered:
        return Put(Cleaned(record(), report.move));
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

}  // namespace embla
