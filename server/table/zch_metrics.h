// Metrics of a ZCH table's slices.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/metrics/table_series.h"
#include "server/zch/statistics.h"

namespace embla {

// One table's slices on one device. `metrics` may be null: then nothing is counted; otherwise it is
// not owned and outlives this object.
class ZchMetrics {
 public:
  ZchMetrics() = default;
  ZchMetrics(Metrics* metrics, std::string_view table, std::uint32_t device);

  // Counts what happened between two readings of one slice's statistics.
  void Count(const zch::Statistics& before, const zch::Statistics& now) const;
  // Ids that came to the slice otherwise, or left it: with a bucket.
  void CountResidents(double by) const { residents_.Add(by); }

 private:
  TableSeries series_;
  Counter hits_;
  Counter inserts_;
  Counter unseen_;
  Counter not_admitted_;
  Counter full_;
  Counter collisions_avoided_;
  Counter evicted_age_;
  Gauge residents_;
  std::array<Counter, zch::kEvictionReasons> evictions_;  // By reason.
};

}  // namespace embla
