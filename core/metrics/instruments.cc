#include "core/metrics/instruments.h"

#include "absl/strings/str_cat.h"
#include "core/base/build_version.h"

namespace embla {
namespace {

constexpr std::string_view kCodeLabels[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};
static_assert(kCodeLabels[static_cast<int>(absl::StatusCode::kUnauthenticated)] ==
              "UNAUTHENTICATED");

std::size_t CodeNumber(absl::StatusCode code) {
  const auto number = static_cast<std::size_t>(code);
  return number < std::size(kCodeLabels) ? number
                                         : static_cast<std::size_t>(absl::StatusCode::kUnknown);
}

}  // namespace

std::string_view CodeLabel(absl::StatusCode code) { return kCodeLabels[CodeNumber(code)]; }

MethodMetrics::MethodMetrics(Metrics* metrics, Side side, std::string_view method)
    : metrics_(metrics), side_(side), method_(method) {
  static_assert(kCodes == std::size(kCodeLabels));
  if (metrics == nullptr) return;
  if (side == Side::kServer) {
    latency_ = metrics->MakeHistogram(MetricNamed("embla_request_latency_seconds"), {method});
    request_bytes_ = metrics->MakeCounter(MetricNamed("embla_request_bytes_total"), {method});
    reply_bytes_ = metrics->MakeCounter(MetricNamed("embla_reply_bytes_total"), {method});
  } else {
    latency_ = metrics->MakeHistogram(MetricNamed("embla_client_latency_seconds"), {method});
    request_bytes_ = metrics->MakeCounter(MetricNamed("embla_client_sent_bytes_total"), {method});
    reply_bytes_ = metrics->MakeCounter(MetricNamed("embla_client_received_bytes_total"), {method});
    retries_ = metrics->MakeCounter(MetricNamed("embla_client_retries_total"), {method});
  }
}

void MethodMetrics::Record(absl::StatusCode code, absl::Duration latency, std::size_t request_bytes,
                           std::size_t reply_bytes) {
  if (metrics_ == nullptr) return;
  ByCode(CodeNumber(code)).Add();
  latency_.Observe(latency);
  request_bytes_.Add(static_cast<double>(request_bytes));
  reply_bytes_.Add(static_cast<double>(reply_bytes));
}

Counter MethodMetrics::ByCode(std::size_t code) {
  // Acquire pairs with the release below: the series is complete before its pointer is seen.
  Counter counter = by_code_[code].load(std::memory_order_acquire);
  if (counter.counts()) return counter;
  const auto& info = side_ == Side::kServer ? MetricNamed("embla_requests_total")
                                            : MetricNamed("embla_client_requests_total");
  counter = metrics_->MakeCounter(info, {method_, kCodeLabels[code]});
  by_code_[code].store(counter, std::memory_order_release);
  return counter;
}

TableMetrics::TableMetrics(Metrics* metrics, std::string_view table) : series(metrics, table) {
  rows_looked_up = series.MakeCounter(MetricNamed("embla_rows_looked_up_total"));
  rows_updated = series.MakeCounter(MetricNamed("embla_rows_updated_total"));
  gradient_rows = series.MakeCounter(MetricNamed("embla_gradient_rows_total"));
  ids_out_of_range = series.MakeCounter(MetricNamed("embla_ids_out_of_range_total"));
  replication_lag_updates = series.MakeGauge(MetricNamed("embla_replication_lag_updates"));
}

StepMetrics::StepMetrics(Metrics* metrics, std::string_view table) : series(metrics, table) {
  steps = series.MakeCounter(MetricNamed("embla_sync_steps_total"));
  wait = series.MakeHistogram(MetricNamed("embla_sync_step_wait_seconds"));
  waiting = series.MakeGauge(MetricNamed("embla_sync_steps_waiting"));
  waiting_bytes = series.MakeGauge(MetricNamed("embla_sync_steps_waiting_bytes"));
}

ReplicaGroupMetrics::ReplicaGroupMetrics(Metrics* metrics, std::string_view table)
    : series(metrics, table) {
  syncs = series.MakeCounter(MetricNamed("embla_replica_syncs_total"));
  seconds = series.MakeHistogram(MetricNamed("embla_replica_sync_seconds"));
  if (series.is_grouped()) return;  // The sum of distances would mean nothing.
  divergence_max = series.MakeGauge(MetricNamed("embla_replica_divergence_max"));
  divergence_rms = series.MakeGauge(MetricNamed("embla_replica_divergence_rms"));
}

TableDeviceMetrics::TableDeviceMetrics(Metrics* metrics, std::string_view table,
                                       std::uint32_t device)
    : series(metrics, table) {
  const std::string label = absl::StrCat(device);
  rows = series.MakeGauge(MetricNamed("embla_table_rows"), label);
  bytes = series.MakeGauge(MetricNamed("embla_table_bytes"), label);
}

DeviceMetrics::DeviceMetrics(Metrics* metrics, std::uint32_t device) {
  if (metrics == nullptr) return;
  const std::string label = absl::StrCat(device);
  queue_depth = metrics->MakeGauge(MetricNamed("embla_device_queue_depth"), {label});
  queue_delay = metrics->MakeHistogram(MetricNamed("embla_device_queue_seconds"), {label});
  busy_seconds = metrics->MakeCounter(MetricNamed("embla_device_busy_seconds_total"), {label});
  memory_bytes = metrics->MakeGauge(MetricNamed("embla_device_memory_bytes"), {label});
}

ConnectionMetrics::ConnectionMetrics(Metrics* metrics) : metrics(metrics) {
  if (metrics == nullptr) return;
  connections = metrics->MakeGauge(MetricNamed("embla_connections"));
  descriptors_max = metrics->MakeGauge(MetricNamed("embla_descriptors_max"));
}

void ConnectionMetrics::Refused(std::string_view reason) const {
  if (metrics == nullptr) return;
  metrics->MakeCounter(MetricNamed("embla_connections_refused_total"), {reason}).Add();
}

void ConnectionMetrics::Ended(std::string_view reason) const {
  if (metrics == nullptr) return;
  metrics->MakeCounter(MetricNamed("embla_connections_ended_total"), {reason}).Add();
}

void AccessMetrics::HandshakeRefused(std::string_view reason) const {
  if (metrics == nullptr) return;
  metrics->MakeCounter(MetricNamed("embla_tls_refused_total"), {reason}).Add();
}

void AccessMetrics::Denied(std::string_view role) const {
  if (metrics == nullptr) return;
  metrics->MakeCounter(MetricNamed("embla_calls_denied_total"), {role}).Add();
}

ShardMetrics::ShardMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  plan_version = metrics->MakeGauge(MetricNamed("embla_plan_version"));
  updates_replayed = metrics->MakeCounter(MetricNamed("embla_updates_replayed_total"));
  streams = metrics->MakeGauge(MetricNamed("embla_streams"));
  data_sockets = metrics->MakeGauge(MetricNamed("embla_data_sockets"));
  held_bytes = metrics->MakeGauge(MetricNamed("embla_held_bytes"));
  copy_hold = metrics->MakeHistogram(MetricNamed("embla_copy_hold_seconds"));
  trace_lines_dropped = metrics->MakeCounter(MetricNamed("embla_trace_lines_dropped_total"));
}

CoordinatorMetrics::CoordinatorMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  plan_version = metrics->MakeGauge(MetricNamed("embla_plan_version"));
  nodes_died = metrics->MakeCounter(MetricNamed("embla_nodes_died_total"));
  plan_changes = metrics->MakeCounter(MetricNamed("embla_plan_changes_total"));
  tables = metrics->MakeGauge(MetricNamed("embla_tables"));
  tables_aside = metrics->MakeGauge(MetricNamed("embla_tables_aside"));
  store_generation = metrics->MakeGauge(MetricNamed("embla_store_generation"));
  sessions_opened = metrics->MakeCounter(MetricNamed("embla_sessions_opened_total"));
  sessions_closed = metrics->MakeCounter(MetricNamed("embla_sessions_closed_total"));
  sessions_expired = metrics->MakeCounter(MetricNamed("embla_sessions_expired_total"));
  sessions_open = metrics->MakeGauge(MetricNamed("embla_sessions_open"));
  rows_lost = metrics->MakeCounter(MetricNamed("embla_rows_lost_total"));
}

NodeMetrics::NodeMetrics(Metrics* metrics, std::string_view node) {
  if (metrics == nullptr) return;
  live = metrics->MakeGauge(MetricNamed("embla_node_live"), {node});
  plan_version = metrics->MakeGauge(MetricNamed("embla_node_plan_version"), {node});
  job_awaits = metrics->MakeGauge(MetricNamed("embla_job_awaits_node"), {node});
  heartbeats = metrics->MakeCounter(MetricNamed("embla_heartbeats_total"), {node});
}

void NodeMetrics::Remove(Metrics& metrics, std::string_view node) {
  metrics.Remove(MetricNamed("embla_node_live"), {node});
  metrics.Remove(MetricNamed("embla_node_plan_version"), {node});
  metrics.Remove(MetricNamed("embla_job_awaits_node"), {node});
  metrics.Remove(MetricNamed("embla_heartbeats_total"), {node});
}

ClientMetrics::ClientMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  plan_version = metrics->MakeGauge(MetricNamed("embla_plan_version"));
  retry_budget_exhausted =
      metrics->MakeCounter(MetricNamed("embla_client_retry_budget_exhausted_total"));
  plan_refreshes = metrics->MakeCounter(MetricNamed("embla_client_plan_refreshes_total"));
  trace_lines_dropped = metrics->MakeCounter(MetricNamed("embla_client_trace_lines_dropped_total"));
}

void SetBuildInfo(Metrics& metrics, std::string_view program) {
  metrics.MakeGauge(MetricNamed("embla_build_info"), {program, BuildVersion()}).Set(1);
}

}  // namespace embla
