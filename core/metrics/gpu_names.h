// The metrics of GPUs, and of collectives among a node's devices; the others are in names.h.
#pragma once

#include "core/metrics/names.h"

namespace embla::metric {

inline constexpr MetricInfo kGpuTime{"embla_gpu_seconds_total",
                                     kCounter,
                                     "Time batches took on a GPU, copies to it and back included.",
                                     {"device"}};
inline constexpr MetricInfo kGpuKernelTime{"embla_gpu_kernel_seconds_total",
                                           kCounter,
                                           "Of that, the time of kernels, by the GPU's clock.",
                                           {"device"}};
inline constexpr MetricInfo kGpuLinkBytes{"embla_gpu_link_bytes_total",
                                          kCounter,
                                          "Bytes copied to a GPU (in) and back (out).",
                                          {"device", "direction"}};
inline constexpr MetricInfo kGpuMemory{
    "embla_gpu_memory_bytes",
    kGauge,
    "Memory that this process has on a device's GPU (gpu), and pinned for it on the host (pinned).",
    {"device", "where"}};
inline constexpr MetricInfo kGpuStopped{
    "embla_gpu_stopped", kGauge, "1 once a GPU has stopped for an error, else 0.", {"device"}};
inline constexpr MetricInfo kRowCacheHits{
    "embla_row_cache_hits_total",
    kCounter,
    "Rows of batches that were on their GPU, each once per batch.",
    {"table", "device"}};
inline constexpr MetricInfo kRowCacheMisses{"embla_row_cache_misses_total",
                                            kCounter,
                                            "Rows of batches that were copied to their GPU first.",
                                            {"table", "device"}};
inline constexpr MetricInfo kRowCacheEvictions{"embla_row_cache_evictions_total",
                                               kCounter,
                                               "Rows that left their GPU to make room for others.",
                                               {"table", "device"}};
inline constexpr MetricInfo kRowCacheWriteBacks{
    "embla_row_cache_write_backs_total",
    kCounter,
    "Of the rows that left, those that had changed and were copied back.",
    {"table", "device"}};
inline constexpr MetricInfo kCollectiveTime{
    "embla_collective_seconds_total",
    kCounter,
    "Time a device spent in collectives of its node, waiting for the others included.",
    {"device"}};

}  // namespace embla::metric
