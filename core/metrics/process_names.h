// The metrics of a process as such, of its directories and of the coordinator's jobs and store; the
// others are in names.h. Names without `embla_` are those that Prometheus' own clients use.
#pragma once

#include "core/metrics/names.h"

namespace embla::metric {

inline constexpr MetricInfo kNodeInfo{
    "embla_node_info",
    kGauge,
    "Always 1; the labels say which node of which cluster this is, for joins by instance.",
    {"node", "cluster"}};

inline constexpr MetricInfo kProcessCpu{"process_cpu_seconds_total", kCounter,
                                        "Processor time of this process, user and system."};
inline constexpr MetricInfo kProcessMemory{"process_resident_memory_bytes", kGauge,
                                           "Memory of this process that is in RAM."};
inline constexpr MetricInfo kProcessDescriptors{"process_open_fds", kGauge,
                                                "Files and sockets that are open."};
inline constexpr MetricInfo kProcessThreads{"process_threads", kGauge, "Threads of this process."};
inline constexpr MetricInfo kProcessStart{"process_start_time_seconds", kGauge,
                                          "When this process started, since 1970."};

inline constexpr MetricInfo kDirectoryBytes{
    "embla_directory_bytes",
    kGauge,
    "Bytes of the files in a directory: journal (a node's) or state (the coordinator's).",
    {"directory"}};
inline constexpr MetricInfo kDiskFree{"embla_disk_free_bytes",
                                      kGauge,
                                      "Bytes that are free on the disk of that directory.",
                                      {"directory"}};

inline constexpr MetricInfo kJobs{
    "embla_jobs", kGauge, "Jobs by state, those that are over among the last 100.", {"state"}};
inline constexpr MetricInfo kJobUnitsLeft{"embla_job_units_left", kGauge,
                                          "Units that the running job has yet to move."};
inline constexpr MetricInfo kStoreSync{"embla_store_sync_seconds", kHistogram,
                                       "How long the disk took to sync the coordinator's state."};

}  // namespace embla::metric
