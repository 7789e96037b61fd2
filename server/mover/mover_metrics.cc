#include "server/mover/mover_metrics.h"

namespace embla {
namespace {

std::size_t IndexOf(UnitPhase phase) { return static_cast<std::size_t>(phase); }

bool IsSource(UnitPhase phase) {
  return phase == UnitPhase::kSending || phase == UnitPhase::kFrozen;
}
bool IsTarget(UnitPhase phase) {
  return phase == UnitPhase::kReceiving || phase == UnitPhase::kSealed;
}

}  // namespace

MoverMetrics::MoverMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  bytes = metrics->MakeCounter(metric::kMoveBytes);
  chunks_resent = metrics->MakeCounter(metric::kMoveChunksResent);
  yields = metrics->MakeCounter(metric::kMoveYields);
  folded = metrics->MakeCounter(metric::kUnitsFolded);
  gates = metrics->MakeGauge(metric::kUnitGates);
  frozen = metrics->MakeHistogram(metric::kUnitFrozen);
  const auto units = [metrics](std::string_view state) {
    return metrics->MakeGauge(metric::kUnitsMoving, {state});
  };
  units_[IndexOf(UnitPhase::kSending)] = units("sending");
  units_[IndexOf(UnitPhase::kFrozen)] = units("frozen");
  units_[IndexOf(UnitPhase::kReceiving)] = units("receiving");
  units_[IndexOf(UnitPhase::kSealed)] = units("sealed");
  units_[IndexOf(UnitPhase::kRetained)] = units("retained");
  sent_ = metrics->MakeCounter(metric::kMoves, {"sent"});
  received_ = metrics->MakeCounter(metric::kMoves, {"received"});
  send_aborted_ = metrics->MakeCounter(metric::kMoves, {"send_aborted"});
  receive_aborted_ = metrics->MakeCounter(metric::kMoves, {"receive_aborted"});
}

void MoverMetrics::CountChange(UnitPhase from, UnitPhase to) const {
  units_[IndexOf(from)].Add(-1);
  units_[IndexOf(to)].Add(1);
  const bool is_owned = to == UnitPhase::kAtRest || IsSource(to);
  if (IsSource(from) && to == UnitPhase::kAtRest) send_aborted_.Add();
  if (IsSource(from) && !is_owned) sent_.Add();
  if (IsTarget(from) && is_owned) received_.Add();
  if (IsTarget(from) && to == UnitPhase::kElsewhere) receive_aborted_.Add();
}

}  // namespace embla
