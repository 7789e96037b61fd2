#include "core/metrics/instruments.h"

#include "absl/strings/str_cat.h"

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
    latency_ = metrics->MakeHistogram(metric::kRequestLatency, {method});
    request_bytes_ = metrics->MakeCounter(metric::kRequestBytes, {method});
    reply_bytes_ = metrics->MakeCounter(metric::kReplyBytes, {method});
  } else {
    latency_ = metrics->MakeHistogram(metric::kClientLatency, {method});
    request_bytes_ = metrics->MakeCounter(metric::kClientSentBytes, {method});
    reply_bytes_ = metrics->MakeCounter(metric::kClientReceivedBytes, {method});
    retries_ = metrics->MakeCounter(metric::kClientRetries, {method});
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
  const auto& info = side_ == Side::kServer ? metric::kRequests : metric::kClientRequests;
  counter = metrics_->MakeCounter(info, {method_, kCodeLabels[code]});
  by_code_[code].store(counter, std::memory_order_release);
  return counter;
}

TableMetrics::TableMetrics(Metrics* metrics, std::string_view table) {
  if (metrics == nullptr) return;
  rows_looked_up = metrics->MakeCounter(metric::kRowsLookedUp, {table});
  rows_updated = metrics->MakeCounter(metric::kRowsUpdated, {table});
  gradient_rows = metrics->MakeCounter(metric::kGradientRows, {table});
  ids_out_of_range = metrics->MakeCounter(metric::kIdsOutOfRange, {table});
  replication_lag_updates = metrics->MakeGauge(metric::kReplicationLag, {table});
}

StepMetrics::StepMetrics(Metrics* metrics, std::string_view table) {
  if (metrics == nullptr) return;
  steps = metrics->MakeCounter(metric::kSyncSteps, {table});
  wait = metrics->MakeHistogram(metric::kSyncStepWait, {table});
  waiting = metrics->MakeGauge(metric::kSyncStepsWaiting, {table});
  waiting_bytes = metrics->MakeGauge(metric::kSyncStepsWaitingBytes, {table});
}

ReplicaGroupMetrics::ReplicaGroupMetrics(Metrics* metrics, std::string_view table) {
  if (metrics == nullptr) return;
  syncs = metrics->MakeCounter(metric::kReplicaSyncs, {table});
  seconds = metrics->MakeHistogram(metric::kReplicaSyncTime, {table});
  divergence_max = metrics->MakeGauge(metric::kReplicaDivergenceMax, {table});
  divergence_rms = metrics->MakeGauge(metric::kReplicaDivergenceRms, {table});
}

TableDeviceMetrics::TableDeviceMetrics(Metrics* metrics, std::string_view table,
                                       std::uint32_t device) {
  if (metrics == nullptr) return;
  const std::string label = absl::StrCat(device);
  rows = metrics->MakeGauge(metric::kTableRows, {table, label});
  bytes = metrics->MakeGauge(metric::kTableBytes, {table, label});
}

DeviceMetrics::DeviceMetrics(Metrics* metrics, std::uint32_t device) {
  if (metrics == nullptr) return;
  const std::string label = absl::StrCat(device);
  queue_depth = metrics->MakeGauge(metric::kQueueDepth, {label});
  queue_delay = metrics->MakeHistogram(metric::kQueueDelay, {label});
  busy_seconds = metrics->MakeCounter(metric::kDeviceBusy, {label});
  memory_bytes = metrics->MakeGauge(metric::kDeviceMemory, {label});
}

ConnectionMetrics::ConnectionMetrics(Metrics* metrics) : metrics(metrics) {
  if (metrics == nullptr) return;
  connections = metrics->MakeGauge(metric::kConnections);
  descriptors_max = metrics->MakeGauge(metric::kDescriptorsMax);
}

void ConnectionMetrics::Refused(std::string_view reason) const {
  if (metrics != nullptr) metrics->MakeCounter(metric::kConnectionsRefused, {reason}).Add();
}

void ConnectionMetrics::Ended(std::string_view reason) const {
  if (metrics != nullptr) metrics->MakeCounter(metric::kConnectionsEnded, {reason}).Add();
}

ShardMetrics::ShardMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  plan_version = metrics->MakeGauge(metric::kPlanVersion);
  updates_replayed = metrics->MakeCounter(metric::kUpdatesReplayed);
  streams = metrics->MakeGauge(metric::kStreams);
  held_bytes = metrics->MakeGauge(metric::kHeldBytes);
}

CoordinatorMetrics::CoordinatorMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  plan_version = metrics->MakeGauge(metric::kPlanVersion);
  nodes_died = metrics->MakeCounter(metric::kNodesDied);
  plan_changes = metrics->MakeCounter(metric::kPlanChanges);
  tables = metrics->MakeGauge(metric::kTables);
  tables_aside = metrics->MakeGauge(metric::kTablesAside);
  store_generation = metrics->MakeGauge(metric::kStoreGeneration);
  sessions_opened = metrics->MakeCounter(metric::kSessionsOpened);
  sessions_closed = metrics->MakeCounter(metric::kSessionsClosed);
  sessions_expired = metrics->MakeCounter(metric::kSessionsExpired);
  sessions_open = metrics->MakeGauge(metric::kSessionsOpen);
  rows_lost = metrics->MakeCounter(metric::kRowsLost);
}

NodeMetrics::NodeMetrics(Metrics* metrics, std::string_view node) {
  if (metrics == nullptr) return;
  live = metrics->MakeGauge(metric::kNodeLive, {node});
  plan_version = metrics->MakeGauge(metric::kNodePlanVersion, {node});
  heartbeats = metrics->MakeCounter(metric::kHeartbeats, {node});
}

void NodeMetrics::Remove(Metrics& metrics, std::string_view node) {
  metrics.RemoveGauge(metric::kNodeLive, {node});
  metrics.RemoveGauge(metric::kNodePlanVersion, {node});
  metrics.RemoveCounter(metric::kHeartbeats, {node});
}

ClientMetrics::ClientMetrics(Metrics* metrics) {
  if (metrics == nullptr) return;
  plan_version = metrics->MakeGauge(metric::kPlanVersion);
  retry_budget_exhausted = metrics->MakeCounter(metric::kClientRetryBudgetExhausted);
  plan_refreshes = metrics->MakeCounter(metric::kClientPlanRefreshes);
}

void SetBuildInfo(Metrics& metrics, std::string_view program) {
  metrics.MakeGauge(metric::kBuildInfo, {program, EMBLA_VERSION "+" EMBLA_COMMIT}).Set(1);
}

}  // namespace embla
