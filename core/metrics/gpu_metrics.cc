#include "core/metrics/gpu_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/metrics/gpu_names.h"

namespace embla {

GpuMetrics::GpuMetrics(Metrics* metrics, std::uint32_t device) {
  if (metrics == nullptr) return;
  const std::string label = absl::StrCat(device);
  seconds = metrics->MakeCounter(metric::kGpuTime, {label});
  kernel_seconds = metrics->MakeCounter(metric::kGpuKernelTime, {label});
  bytes_in = metrics->MakeCounter(metric::kGpuLinkBytes, {label, "in"});
  bytes_out = metrics->MakeCounter(metric::kGpuLinkBytes, {label, "out"});
  memory_bytes = metrics->MakeGauge(metric::kGpuMemory, {label, "gpu"});
  pinned_bytes = metrics->MakeGauge(metric::kGpuMemory, {label, "pinned"});
  stopped = metrics->MakeGauge(metric::kGpuStopped, {label});
}

RowCacheMetrics::RowCacheMetrics(Metrics* metrics, std::string_view table, std::uint32_t device) {
  if (metrics == nullptr) return;
  const std::string label = absl::StrCat(device);
  hits = metrics->MakeCounter(metric::kRowCacheHits, {table, label});
  misses = metrics->MakeCounter(metric::kRowCacheMisses, {table, label});
  evictions = metrics->MakeCounter(metric::kRowCacheEvictions, {table, label});
  write_backs = metrics->MakeCounter(metric::kRowCacheWriteBacks, {table, label});
}

Counter CollectiveSeconds(Metrics* metrics, std::uint32_t device) {
  if (metrics == nullptr) return {};
  return metrics->MakeCounter(metric::kCollectiveTime, {absl::StrCat(device)});
}

}  // namespace embla
