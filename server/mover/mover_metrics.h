// Counters of a mover. `metrics` may be null: then nothing is counted.
#pragma once

#include <array>

#include "core/metrics/metrics.h"
#include "server/mover/unit_tracker.h"

namespace embla {

class MoverMetrics {
 public:
  explicit MoverMetrics(Metrics* metrics);

  // A unit went from one phase to another.
  void CountChange(UnitPhase from, UnitPhase to) const;
  // The table of a unit in this phase was dropped.
  void Forget(UnitPhase phase) const;

  Counter bytes;
  Counter chunks_resent;
  Counter yields;
  Counter folded;
  Gauge gates;  // Units that have one.
  Histogram frozen;

 private:
  static constexpr std::size_t kPhases = 7;

  std::array<Gauge, kPhases> units_;  // By phase; those at rest and elsewhere are not counted.
  Counter sent_;
  Counter received_;
  Counter send_aborted_;
  Counter receive_aborted_;
};

}  // namespace embla
