#include "server/mover/mover_metrics.h"

namespace embla {
namespace {

std::size_t IndexOf(UnitPhase phase) { return static_cast<std::size_t>(phase); }

bool IsSource(UnitPhase phase) {
  return phase == UnitPhase::kSending || phase == UnitPhase::kFrozen;
}
bool IsTarget(UnitPhase phase) {
  return phase == UnitPhase::kReceiving || phase == UnitPhase::kHolding;
}

}  // namespace

MoverMetrics::MoverMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  bytes = metrics->MakeCounter(MetricNamed("embla_move_bytes_total"));
  chunks_resent = metrics->MakeCounter(MetricNamed("embla_move_chunks_resent_total"));
  yields = metrics->MakeCounter(MetricNamed("embla_move_yields_total"));
  folded = metrics->MakeCounter(MetricNamed("embla_units_folded_total"));
  gates = metrics->MakeGauge(MetricNamed("embla_unit_gates"));
  frozen = metrics->MakeHistogram(MetricNamed("embla_unit_frozen_seconds"));
  const auto units = [metrics](std::string_view state) {
    return metrics->MakeGauge(MetricNamed("embla_units_moving"), {state});
  };
  units_[IndexOf(UnitPhase::kSending)] = units("sending");
  units_[IndexOf(UnitPhase::kFrozen)] = units("frozen");
  units_[IndexOf(UnitPhase::kReceiving)] = units("receiving");
  units_[IndexOf(UnitPhase::kHolding)] = units("holding");
  units_[IndexOf(UnitPhase::kRetained)] = units("retained");
  sent_ = metrics->MakeCounter(MetricNamed("embla_moves_total"), {"sent"});
  received_ = metrics->MakeCounter(MetricNamed("embla_moves_total"), {"received"});
  send_aborted_ = metrics->MakeCounter(MetricNamed("embla_moves_total"), {"send_aborted"});
  receive_aborted_ = metrics->MakeCounter(MetricNamed("embla_moves_total"), {"receive_aborted"});
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

void MoverMetrics::Forget(UnitPhase phase) const { units_[IndexOf(phase)].Add(-1); }

}  // namespace embla
