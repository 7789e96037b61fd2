// Everything an embla-coordinator process consists of, built in order and taken down in reverse:
// also for programs that run a cluster inside themselves.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/cluster_key.h"
#include "core/metrics/exposer.h"
#include "core/metrics/metrics.h"
#include "core/metrics/names.h"
#include "core/metrics/process_metrics.h"
#include "core/tls/tls.h"
#include "server/app/memory_return.h"
#include "server/console/console.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/audit_log.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/rpc_server.h"
#include "server/state_store/state_store.h"

namespace embla {

// Callers that know several coordinators ping them, to notice soon that one is gone.
inline constexpr absl::Duration kPingIntervalMin = absl::Milliseconds(500);

struct CoordinatorProcessOptions {
  std::string listen = "127.0.0.1:0";        // Shard servers and trainers.
  std::string admin_listen = "127.0.0.1:0";  // Operators.
  bool admin_reflection = false;             // Operators may ask what the services are.
  std::string metrics_listen;                // Empty: no metrics endpoint.
  bool insecure = false;
  TlsFiles tls;                                    // Certificate: every connection is over TLS.
  std::string audit_log;                           // File; empty: none.
  absl::Duration connection_age = absl::Hours(1);  // See RpcServerOptions.
  ConnectionLimits connections;                    // Limits for each listener.
  std::string state_dir;  // Empty: the cluster is forgotten when the process ends.
  // The cluster's key. Empty: the file `cluster.key` of state_dir, which is made where it is
  // missing; without state_dir a key that only this process has.
  std::string cluster_key_file;
  CoordinatorOptions coordinator;
  absl::Duration stop_grace = absl::Seconds(5);  // For calls in flight.

  // The parts that the process has already, where it is one of several coordinators
  // (coordinator_member.h). Null, or not owned and outlives the object: then `listen`,
  // `admin_listen`, `metrics_listen` and `state_dir` are the member's.
  struct Shared {
    Metrics* metrics = nullptr;
    Console* console = nullptr;
    StateStore* store = nullptr;
    const ListeningSockets* listening = nullptr;
    const ListeningSockets* admin_listening = nullptr;
  };
  const Shared* shared = nullptr;
};

class CoordinatorProcess {
 public:
  // Errors: those of Tls::Load, AuditLog, FileStateStore, Coordinator::Open, RpcServer and
  // MetricsExposer.
  static absl::StatusOr<std::unique_ptr<CoordinatorProcess>> Start(
      const CoordinatorProcessOptions& options);
  ~CoordinatorProcess();

  const std::string& address() const { return server_->address(); }
  // For nodes in the same process.
  ClusterKeyPtr cluster_key() const { return host_->coordinator_options().key; }
  const std::string& admin_address() const { return admin_server_->address(); }
  // Empty without a metrics endpoint.
  std::string metrics_address() const { return exposer_ ? exposer_->address() : ""; }
  // OK: it serves; else why not, as /readyz says.
  absl::Status ready() const { return host_->status(); }
  const Metrics& metrics() const { return metrics_; }
  PlanPtr plan() const { return host_->plan(); }

 private:
  explicit CoordinatorProcess(const CoordinatorProcessOptions& options);
  absl::Status OpenSecurity();
  absl::Status OpenState();
  absl::Status FindKey(CoordinatorOptions& coordinator) const;
  absl::Status Listen();

  const CoordinatorProcessOptions options_;
  const std::unique_ptr<Metrics> own_metrics_;  // Null where they are shared.
  Metrics& metrics_;
  ProcessMetrics process_metrics_{metrics_};
  MemoryReturn memory_return_{
      {.kept_bytes = metrics_.MakeGauge(MetricNamed("embla_kept_heap_bytes"))}};
  std::unique_ptr<StateStore> own_store_;  // Likewise.
  StateStore* store_ = nullptr;
  TlsPtr tls_;
  std::unique_ptr<AuditLog> audit_;
  Console own_console_;  // Unused where it is shared.
  Console& console_;
  std::unique_ptr<CoordinatorHost> host_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<RpcServer> admin_server_;
  std::unique_ptr<MetricsExposer> exposer_;
};

}  // namespace embla
