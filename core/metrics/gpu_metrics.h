// What counts on a device that is a GPU, and in collectives; instruments.h has the others.
// `metrics` may be null: nothing is counted then. Otherwise it is not owned and outlives the
// handles.
#pragma once

#include <cstdint>

#include "core/metrics/metrics.h"

namespace embla {

// One device of a node; the label is its index.
struct GpuMetrics {
  GpuMetrics() = default;
  GpuMetrics(Metrics* metrics, std::uint32_t device);

  Counter seconds;
  Counter bytes_in;
  Counter bytes_out;
  Gauge memory_bytes;
  Gauge pinned_bytes;
  Gauge stopped;
};

// Of any device.
Counter CollectiveSeconds(Metrics* metrics, std::uint32_t device);

}  // namespace embla
