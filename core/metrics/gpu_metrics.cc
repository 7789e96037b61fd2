#include "core/metrics/gpu_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/metrics/names.h"

namespace embla {

GpuMetrics::GpuMetrics(Metrics* metrics, std::uint32_t device) {
  if (metrics == nullptr) return;
  const std::string label = absl::StrCat(device);
  seconds = metrics->MakeCounter(MetricNamed("embla_gpu_seconds_total"), {label});
  kernel_seconds = metrics->MakeCounter(MetricNamed("embla_gpu_kernel_seconds_total"), {label});
  bytes_in = metrics->MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {label, "in"});
  bytes_out = metrics->MakeCounter(MetricNamed("embla_gpu_link_bytes_total"), {label, "out"});
  direct_bytes_in =
      metrics->MakeCounter(MetricNamed("embla_gpu_direct_bytes_total"), {label, "in"});
  direct_bytes_out =
      metrics->MakeCounter(MetricNamed("embla_gpu_direct_bytes_total"), {label, "out"});
  memory_bytes = metrics->MakeGauge(MetricNamed("embla_gpu_memory_bytes"), {label, "gpu"});
  pinned_bytes = metrics->MakeGauge(MetricNamed("embla_gpu_memory_bytes"), {label, "pinned"});
  stopped = metrics->MakeGauge(MetricNamed("embla_gpu_stopped"), {label});
}

RowCacheMetrics::RowCacheMetrics(Metrics* metrics, std::string_view table, std::uint32_t device)
    : series(metrics, table) {
  const std::string label = absl::StrCat(device);
  hits = series.MakeCounter(MetricNamed("embla_row_cache_hits_total"), label);
  misses = series.MakeCounter(MetricNamed("embla_row_cache_misses_total"), label);
  evictions = series.MakeCounter(MetricNamed("embla_row_cache_evictions_total"), label);
  write_backs = series.MakeCounter(MetricNamed("embla_row_cache_write_backs_total"), label);
}

Counter CollectiveSeconds(Metrics* metrics, std::uint32_t device) {
  if (metrics == nullptr) return {};
  return metrics->MakeCounter(MetricNamed("embla_collective_seconds_total"),
                              {absl::StrCat(device)});
}

}  // namespace embla
