// Metrics of devices that are GPUs, and of collectives; instruments.h has the others. `metrics` may
// be null: nothing is counted then. Otherwise it is not owned and outlives the handles.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/metrics/metrics.h"
#include "core/metrics/table_series.h"

namespace embla {

// One device of a node; the label is its index.
struct GpuMetrics {
  GpuMetrics() = default;
  GpuMetrics(Metrics* metrics, std::uint32_t device);

  Counter seconds;
  Counter kernel_seconds;
  Counter bytes_in;
  Counter bytes_out;
  Counter direct_bytes_in;
  Counter direct_bytes_out;
  Gauge memory_bytes;
  Gauge pinned_bytes;
  Gauge stopped;
};

// The rows of one table on one device whose GPU has those in use.
struct RowCacheMetrics {
  RowCacheMetrics() = default;
  RowCacheMetrics(Metrics* metrics, std::string_view table, std::uint32_t device);

  TableSeries series;
  Counter hits;
  Counter misses;
  Counter evictions;
  Counter write_backs;
};

// Exists for devices of any kind.
Counter CollectiveSeconds(Metrics* metrics, std::uint32_t device);

}  // namespace embla
