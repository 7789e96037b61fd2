// The handles that belong together, made once by the object that counts with them.
// `metrics` may be null everywhere: the bundle then counts nothing. Otherwise it is not owned and
// outlives the bundle.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/metrics/metrics.h"
#include "core/metrics/table_series.h"

namespace embla {

// One RPC method, on the side that serves it or on the side that calls it.
// Thread safety: Record may be called from any thread.
class MethodMetrics {
 public:
  enum class Side { kServer, kClient };

  // `method` is the bare name, for instance "Lookup".
  MethodMetrics(Metrics* metrics, Side side, std::string_view method);

  // A finished call. Bytes are message bytes; the server received the request, the client the
  // reply.
  void Record(absl::StatusCode code, absl::Duration latency, std::size_t request_bytes,
              std::size_t reply_bytes);
  // Client side only: a request is sent again.
  void RecordRetry() const { retries_.Add(); }

  const std::string& method() const { return method_; }

 private:
  static constexpr std::size_t kCodes = 17;  // OK to UNAUTHENTICATED.

  Counter ByCode(std::size_t code);

  Metrics* const metrics_;  // Not owned; may be null.
  const Side side_;
  const std::string method_;
  Histogram latency_;
  Counter request_bytes_;
  Counter reply_bytes_;
  Counter retries_;
  // A code's series appears with its first call. Making a series twice gives the same series, so
  // two threads may race here.
  std::array<std::atomic<Counter>, kCodes> by_code_ = {};
};

// One table on one node.
struct TableMetrics {
  TableMetrics() = default;
  TableMetrics(Metrics* metrics, std::string_view table);

  TableSeries series;
  Counter rows_looked_up;
  Counter rows_updated;
  Counter gradient_rows;
  Counter ids_out_of_range;
  Gauge replication_lag_updates;
};

// The synchronous steps of one table on one node.
struct StepMetrics {
  StepMetrics() = default;
  StepMetrics(Metrics* metrics, std::string_view table);

  TableSeries series;
  Counter steps;
  Histogram wait;
  Gauge waiting;
  Gauge waiting_bytes;
};

// The averaging of one table with replica groups on one node.
struct ReplicaGroupMetrics {
  ReplicaGroupMetrics() = default;
  ReplicaGroupMetrics(Metrics* metrics, std::string_view table);

  TableSeries series;
  Counter syncs;
  Histogram seconds;
  Gauge divergence_max;
  Gauge divergence_rms;
};

// One table's slices on one device.
struct TableDeviceMetrics {
  TableDeviceMetrics() = default;
  TableDeviceMetrics(Metrics* metrics, std::string_view table, std::uint32_t device);

  TableSeries series;
  Gauge rows;
  Gauge bytes;
};

// One device of a node; the label is its index.
struct DeviceMetrics {
  DeviceMetrics() = default;
  DeviceMetrics(Metrics* metrics, std::uint32_t device);

  Gauge queue_depth;
  Histogram queue_delay;
  Counter busy_seconds;
  Gauge memory_bytes;
};

// The connections of a process.
struct ConnectionMetrics {
  ConnectionMetrics() = default;
  explicit ConnectionMetrics(Metrics* metrics);

  void Refused(std::string_view reason) const;
  void Ended(std::string_view reason) const;

  Metrics* metrics = nullptr;  // Not owned; may be null.
  Gauge connections;
  Gauge descriptors_max;
};

// Callers that are refused over TLS.
struct AccessMetrics {
  AccessMetrics() = default;
  explicit AccessMetrics(Metrics* metrics) : metrics(metrics) {}

  void HandshakeRefused(std::string_view reason) const;
  void Denied(std::string_view role) const;

  Metrics* metrics = nullptr;  // Not owned; may be null.
};

// A shard server.
struct ShardMetrics {
  ShardMetrics() = default;
  explicit ShardMetrics(Metrics* metrics);

  Gauge plan_version;
  Counter updates_replayed;
  Gauge streams;
  Gauge data_sockets;
  Gauge held_bytes;
  Histogram copy_hold;
  Counter trace_lines_dropped;
};

// The coordinator, and what it knows of one node.
struct CoordinatorMetrics {
  CoordinatorMetrics() = default;
  explicit CoordinatorMetrics(Metrics* metrics);

  Gauge plan_version;
  Counter nodes_died;
  Counter plan_changes;
  Gauge tables;
  Gauge tables_aside;
  Gauge store_generation;
  Counter sessions_opened;
  Counter sessions_closed;
  Counter sessions_expired;
  Gauge sessions_open;
  Counter rows_lost;
};
struct NodeMetrics {
  NodeMetrics() = default;
  NodeMetrics(Metrics* metrics, std::string_view node);
  // The node's series go.
  static void Remove(Metrics& metrics, std::string_view node);

  Gauge live;  // 0 or 1.
  Gauge plan_version;
  Gauge job_awaits;  // 0 or 1.
  Counter heartbeats;
};

// A client. Its calls are MethodMetrics with Side::kClient.
struct ClientMetrics {
  ClientMetrics() = default;
  explicit ClientMetrics(Metrics* metrics);

  Gauge plan_version;
  Counter retry_budget_exhausted;
  Counter plan_refreshes;
  Counter trace_lines_dropped;
};

// Sets embla_build_info: the version is like "0.1.0+4fdbd01", with the commit; each main calls it
// once.
void SetBuildInfo(Metrics& metrics, std::string_view program);

// The code as the label value: "OK", "NOT_FOUND". Not a code: "UNKNOWN".
std::string_view CodeLabel(absl::StatusCode code);

}  // namespace embla
