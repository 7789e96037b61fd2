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
#include "server/app/memory_return.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/rpc_server.h"
#include "server/state_store/state_store.h"

namespace embla {

struct CoordinatorProcessOptions {
  std::string listen = "127.0.0.1:0";        // Shard servers and trainers.
  std::string admin_listen = "127.0.0.1:0";  // Operators.
  std::string metrics_listen;                // Empty: no metrics endpoint.
  bool insecure = false;
  ConnectionLimits connections;  // Limits for each listener.
  std::string state_dir;         // Empty: the cluster is forgotten when the process ends.
  // The cluster's key. Empty: the file `cluster.key` of state_dir, which is made where it is
  // missing; without state_dir a key that only this process has.
  std::string cluster_key_file;
  CoordinatorOptions coordinator;
  absl::Duration stop_grace = absl::Seconds(5);  // For calls in flight.
};

class CoordinatorProcess {
 public:
  // Errors: those of FileStateStore, Coordinator::Open, RpcServer and MetricsExposer.
  static absl::StatusOr<std::unique_ptr<CoordinatorProcess>> Start(
      const CoordinatorProcessOptions& options);
  ~CoordinatorProcess();

  const std::string& address() const { return server_->address(); }
  // For nodes in the same process.
  ClusterKeyPtr cluster_key() const { return host_->coordinator_options().key; }
  const std::string& admin_address() const { return admin_server_->address(); }
  // Empty without a metrics endpoint.
  std::string metrics_address() const { return exposer_ ? exposer_->address() : ""; }
  const Metrics& metrics() const { return metrics_; }

 private:
  explicit CoordinatorProcess(const CoordinatorProcessOptions& options);
  absl::Status OpenState();
  absl::Status FindKey(CoordinatorOptions& coordinator) const;
  absl::Status Listen();

  const CoordinatorProcessOptions options_;
  Metrics metrics_;
  ProcessMetrics process_metrics_{metrics_};
  MemoryReturn memory_return_{
      {.kept_bytes = metrics_.MakeGauge(MetricNamed("embla_kept_heap_bytes"))}};
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<CoordinatorHost> host_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<RpcServer> admin_server_;
  std::unique_ptr<MetricsExposer> exposer_;
};

}  // namespace embla
