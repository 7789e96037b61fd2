// The name, kind, meaning and labels of every metric, once. docs/metrics.md is the same list for
// people; names_test compares the two. Units are base units and stand at the end: seconds, bytes.
// Names without `embla_` are those that Prometheus' own clients use.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace embla {

enum class MetricKind : std::uint8_t { kCounter = 1, kGauge = 2, kHistogram = 3 };

inline constexpr std::size_t kMetricLabelsMax = 2;

struct MetricInfo {
  std::string_view name;
  MetricKind kind;
  std::string_view help;
  std::array<std::string_view, kMetricLabelsMax> labels = {};  // Unused ones are empty.

  constexpr std::size_t label_count() const {
    return labels[0].empty() ? 0 : labels[1].empty() ? 1 : 2;
  }
};

namespace metric_detail {

using enum MetricKind;

inline constexpr MetricInfo kMetrics[] = {
    // Every process.
    {"embla_build_info", kGauge, "Always 1; the labels say what runs.", {"program", "version"}},
    {"embla_node_info",
     kGauge,
     "Always 1; the labels say which node of which cluster this is, for joins by instance.",
     {"node", "cluster"}},
    {"process_cpu_seconds_total", kCounter, "Processor time of this process, user and system."},
    {"process_resident_memory_bytes", kGauge, "Memory of this process that is in RAM."},
    {"process_open_fds", kGauge, "Files and sockets that are open."},
    {"process_threads", kGauge, "Threads of this process."},
    {"process_start_time_seconds", kGauge, "When this process started, since 1970."},
    {"embla_directory_bytes",
     kGauge,
     "Bytes of the files in a directory: journal (a node's) or state (the coordinator's).",
     {"directory"}},
    {"embla_disk_free_bytes",
     kGauge,
     "Bytes that are free on the disk of that directory.",
     {"directory"}},
    {"embla_plan_version", kGauge, "Version of the newest plan this process has."},
    // Servers: calls as they arrive. A request inside a stream counts as its own call.
    {"embla_requests_total", kCounter, "Calls finished, by status code.", {"method", "code"}},
    {"embla_request_latency_seconds",
     kHistogram,
     "From a call's arrival to its reply.",
     {"method"}},
    {"embla_request_bytes_total", kCounter, "Message bytes received.", {"method"}},
    {"embla_reply_bytes_total", kCounter, "Message bytes sent.", {"method"}},
    {"embla_streams", kGauge, "Data streams open now."},
    {"embla_connections", kGauge, "Connections open now, of all listeners."},
    {"embla_connections_refused_total",
     kCounter,
     "Connections closed on arrival, by the limit they met: address or descriptors.",
     {"reason"}},
    {"embla_connections_ended_total",
     kCounter,
     "Connections that this process ended because of what they did: resets, memory.",
     {"reason"}},
    {"embla_descriptors_max", kGauge, "Files and sockets this process may have open."},
    {"embla_held_bytes", kGauge,
     "Bytes of requests in flight, and of replies nobody has read yet."},
    {"embla_kept_heap_bytes", kGauge,
     "Bytes that were freed and that malloc keeps for requests to come, at the last look."},
    // Shard servers.
    {"embla_rows_looked_up_total", kCounter, "Ids of lookups served.", {"table"}},
    {"embla_rows_updated_total", kCounter, "Optimizer steps: unique rows per update.", {"table"}},
    {"embla_gradient_rows_total",
     kCounter,
     "Ids of updates applied, duplicates included.",
     {"table"}},
    {"embla_ids_out_of_range_total",
     kCounter,
     "Ids outside the table, refused or ignored.",
     {"table"}},
    {"embla_updates_replayed_total", kCounter,
     "Updates that had been applied before and were acknowledged again."},
    {"embla_device_queue_depth", kGauge, "Batches waiting for a device.", {"device"}},
    {"embla_device_queue_seconds",
     kHistogram,
     "How long requests waited for a device.",
     {"device"}},
    {"embla_request_wait_seconds", kHistogram,
     "From a request's arrival at its node to its start on the first of its devices."},
    {"embla_device_busy_seconds_total", kCounter, "Time a device spent on batches.", {"device"}},
    {"embla_device_memory_bytes", kGauge, "Memory a device may use.", {"device"}},
    // GPUs, and collectives among the devices of a node.
    {"embla_gpu_seconds_total",
     kCounter,
     "Time batches took on a GPU, copies to it and back included.",
     {"device"}},
    {"embla_gpu_kernel_seconds_total",
     kCounter,
     "Of that, the time of kernels, by the GPU's clock.",
     {"device"}},
    {"embla_gpu_link_bytes_total",
     kCounter,
     "Bytes copied to a GPU (in) and back (out).",
     {"device", "direction"}},
    {"embla_gpu_memory_bytes",
     kGauge,
     "Memory that this process has on a device's GPU (gpu), and pinned for it on the host "
     "(pinned).",
     {"device", "where"}},
    {"embla_gpu_stopped", kGauge, "1 once a GPU has stopped for an error, else 0.", {"device"}},
    {"embla_row_cache_hits_total",
     kCounter,
     "Rows of batches that were on their GPU, each once per batch.",
     {"table", "device"}},
    {"embla_row_cache_misses_total",
     kCounter,
     "Rows of batches that were copied to their GPU first.",
     {"table", "device"}},
    {"embla_row_cache_evictions_total",
     kCounter,
     "Rows that left their GPU to make room for others.",
     {"table", "device"}},
    {"embla_row_cache_write_backs_total",
     kCounter,
     "Of the rows that left, those that had changed and were copied back.",
     {"table", "device"}},
    {"embla_collective_seconds_total",
     kCounter,
     "Time a device spent in collectives of its node, waiting for the others included.",
     {"device"}},
    // Tables on the devices of a node.
    {"embla_table_rows",
     kGauge,
     "Rows of a table's slices on a device, a row once per column slice.",
     {"table", "device"}},
    {"embla_table_bytes",
     kGauge,
     "Memory of a table's slices on a device, optimizer state included.",
     {"table", "device"}},
    {"embla_zch_hits_total",
     kCounter,
     "Ids of lookups and updates that had a row.",
     {"table", "device"}},
    {"embla_zch_unseen_total", kCounter, "Ids of lookups that had no row.", {"table", "device"}},
    {"embla_zch_inserts_total", kCounter, "Ids that got a row.", {"table", "device"}},
    {"embla_zch_residents",
     kGauge,
     "Rows that belong to an id; of embla_table_rows.",
     {"table", "device"}},
    {"embla_zch_evictions_total",
     kCounter,
     "Ids that lost their row: replaced, expired, idle or removed.",
     {"table", "reason"}},
    {"embla_zch_rejections_total",
     kCounter,
     "Ids of updates that got no row, their gradients dropped: not_admitted or full.",
     {"table", "reason"}},
    {"embla_zch_collisions_avoided_total",
     kCounter,
     "Ids that got a row although plain hashing would have given them another id's.",
     {"table", "device"}},
    {"embla_zch_evicted_age_steps_total",
     kCounter,
     "Sum over evicted ids of the training steps since their last touch.",
     {"table", "device"}},
    {"embla_zch_evictions_unread_total",
     kCounter,
     "Evicted rows that left the buffer for readers before anybody had read them.",
     {"table"}},
    {"embla_replication_lag_updates",
     kGauge,
     "Updates of a replicated table not yet on every node.",
     {"table"}},
    {"embla_sync_steps_total",
     kCounter,
     "Synchronous steps of a table that this node has made.",
     {"table"}},
    {"embla_sync_step_wait_seconds",
     kHistogram,
     "From the arrival of a contribution to a synchronous step to that step.",
     {"table"}},
    {"embla_sync_steps_waiting",
     kGauge,
     "Contributions to synchronous steps that wait for other ranks.",
     {"table"}},
    {"embla_sync_steps_waiting_bytes", kGauge, "Memory of those contributions.", {"table"}},
    {"embla_replica_syncs_total",
     kCounter,
     "Times the copies of a table's replica groups were averaged.",
     {"table"}},
    {"embla_replica_sync_seconds",
     kHistogram,
     "Time a device's averaging of a table took, the slowest device's.",
     {"table"}},
    {"embla_replica_divergence_max",
     kGauge,
     "Largest distance of a weight from the mean of its copies, before the last averaging.",
     {"table"}},
    {"embla_replica_divergence_rms",
     kGauge,
     "Root of the mean square of those distances, before the last averaging.",
     {"table"}},
    // Moves of units, and the journal.
    {"embla_moves_total", kCounter, "Moves of a unit that are over here, by how.", {"outcome"}},
    {"embla_move_bytes_total", kCounter, "Bytes of rows that moves sent to other nodes."},
    {"embla_move_chunks_resent_total", kCounter,
     "Chunks that moves sent again, because their rows changed or the chunk was lost."},
    {"embla_move_yields_total", kCounter,
     "How often moves were slowed down because requests waited longer for a device."},
    {"embla_unit_frozen_seconds", kHistogram,
     "How long a source refused a unit's updates: until it was handed over, or the freeze ended "
     "without."},
    {"embla_units_folded_total", kCounter,
     "How often the record of updates of a unit at rest joined that of its table."},
    {"embla_unit_gates", kGauge,
     "Units that go by a record of updates of their own: they take part in a move, or came to rest "
     "lately."},
    {"embla_units_moving", kGauge, "Units that take part in a move here now.", {"state"}},
    {"embla_journal_bytes_total", kCounter, "Bytes written to the node's journal."},
    {"embla_journal_queue_bytes", kGauge,
     "Bytes of records that wait to be written or for their sync, when the last one came."},
    {"embla_journal_sync_seconds", kHistogram, "How long the disk took to sync the journal."},
    {"embla_journal_recovery_seconds", kHistogram,
     "How long this process took to become what its journal says; once per process."},
    {"embla_journal_recovered_bytes", kGauge,
     "Bytes of records that this process has applied from its journal: rises while it starts."},
    {"embla_journal_kept_bytes", kGauge,
     "Bytes of records since the newest snapshot: what a start would apply."},
    {"embla_snapshots_total", kCounter, "Snapshots of the node, by how they ended.", {"outcome"}},
    {"embla_snapshot_bytes", kGauge,
     "Bytes of the newest snapshot, with those that it goes on from."},
    {"embla_snapshot_bytes_total", kCounter, "Bytes written to snapshots."},
    {"embla_snapshot_seconds", kHistogram, "How long a snapshot took."},
    {"embla_snapshot_hold_seconds", kHistogram,
     "How long a device did nothing else for a window of a snapshot, or for its beginning."},
    // The coordinator.
    {"embla_node_live", kGauge, "1 while a node's heartbeats arrive, else 0.", {"node"}},
    {"embla_node_plan_version", kGauge, "Plan version a node has installed.", {"node"}},
    {"embla_heartbeats_total", kCounter, "Heartbeats received.", {"node"}},
    {"embla_nodes_died_total", kCounter,
     "Times a node was declared dead since this process started, for want of heartbeats."},
    {"embla_plan_changes_total", kCounter, "Plan versions published since this process started."},
    {"embla_tables", kGauge, "Tables in the plan."},
    {"embla_tables_aside", kGauge, "Tables that are kept aside, not served."},
    {"embla_store_generation", kGauge,
     "1 and how often the state was found to have gone back in time."},
    {"embla_rows_lost_total", kCounter,
     "Rows that were lost with nodes, or with their directories, and began at initial values."},
    {"embla_sessions_opened_total", kCounter,
     "Trainer sessions opened since this process started."},
    {"embla_sessions_closed_total", kCounter,
     "Trainer sessions closed since this process started: by their clients, by the next client of "
     "the same trainer, or as nothing was heard of them."},
    {"embla_sessions_expired_total", kCounter,
     "Of the closed sessions, those whose leases ran out: their clients died or were cut off."},
    {"embla_sessions_open", kGauge,
     "Open trainer sessions that this coordinator has heard of since it started."},
    {"embla_jobs", kGauge, "Jobs by state, those that are over among the last 100.", {"state"}},
    {"embla_job_units_left", kGauge, "Units that the running job has yet to move."},
    {"embla_job_awaits_node",
     kGauge,
     "1 while the running job makes no progress without this node, else 0.",
     {"node"}},
    {"embla_store_sync_seconds", kHistogram,
     "How long the disk took to sync the coordinator's state."},
    // Clients.
    {"embla_client_requests_total",
     kCounter,
     "Calls to the cluster finished, by status code.",
     {"method", "code"}},
    {"embla_client_latency_seconds",
     kHistogram,
     "From the caller's call to its result, retries included.",
     {"method"}},
    {"embla_client_sent_bytes_total", kCounter, "Message bytes sent.", {"method"}},
    {"embla_client_received_bytes_total", kCounter, "Message bytes received.", {"method"}},
    {"embla_client_retries_total", kCounter, "Requests sent again.", {"method"}},
    {"embla_client_retry_budget_exhausted_total", kCounter,
     "Failures handed to the caller because the retry budget was empty."},
    {"embla_client_plan_refreshes_total", kCounter, "Newer plans taken over."},
};

}  // namespace metric_detail

// Every metric, in the order of the page.
constexpr std::span<const MetricInfo> AllMetrics() { return metric_detail::kMetrics; }

// The metric of that name. A name that is not in the list does not compile.
consteval const MetricInfo& MetricNamed(std::string_view name) {
  for (const MetricInfo& info : metric_detail::kMetrics) {
    if (info.name == name) return info;
  }
  throw "no metric has this name";
}

}  // namespace embla
