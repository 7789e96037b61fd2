// Names of a process's memory. A part of names.h: docs/metrics.md has all of them.
#pragma once

#include "core/metrics/names.h"

namespace embla::metric {

inline constexpr MetricInfo kKeptHeapBytes{
    "embla_kept_heap_bytes", kGauge,
    "Bytes that were freed and that malloc keeps for requests to come, at the last look."};

}  // namespace embla::metric
