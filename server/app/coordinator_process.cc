#include "server/app/coordinator_process.h"

#include <filesystem>
#include <utility>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/metrics/instruments.h"
#include "core/metrics/names.h"
#include "server/app/server_security.h"
#include "server/rpc/listen_address.h"
#include "server/state_store/file_state_store.h"
#include "server/state_store/memory_state_store.h"

namespace embla {
namespace {

// A node's first report says what it has, of thousands of tables.
constexpr std::size_t kCoordinatorMessageBytesMax = std::size_t{64} << 20;

constexpr char kAdminPort[] =
    "the coordinator's admin port (--admin-listen, 7071 unless stated), which --admin wants; "
    "--coordinator wants the port for trainers and shard servers (--listen, 7070)";
constexpr char kTrainerPort[] =
    "the coordinator's port for trainers and shard servers (--listen, 7070 unless stated), which "
    "--coordinator wants; --admin wants the admin port (--admin-listen, 7071)";

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::Start(
    const CoordinatorProcessOptions& options) {
  std::unique_ptr<CoordinatorProcess> process(new CoordinatorProcess(options));
  EMBLA_RETURN_IF_ERROR(process->OpenSecurity());
  EMBLA_RETURN_IF_ERROR(process->OpenState());
  EMBLA_RETURN_IF_ERROR(process->Listen());
  return process;
}

CoordinatorProcess::CoordinatorProcess(const CoordinatorProcessOptions& options)
    : options_(options),
      own_metrics_(options.shared == nullptr ? std::make_unique<Metrics>() : nullptr),
      metrics_(options.shared == nullptr ? *own_metrics_ : *options.shared->metrics),
      console_(options.shared == nullptr ? own_console_ : *options.shared->console) {
  SetBuildInfo(metrics_, "embla-coordinator");
}

absl::Status CoordinatorProcess::OpenSecurity() {
  EMBLA_ASSIGN_OR_RETURN(tls_, LoadServerTls(options_.tls, Role::kCoordinator));
  EMBLA_RETURN_IF_ERROR(
      TellExposure({options_.listen, options_.admin_listen}, tls_ != nullptr, metrics_));
  if (options_.audit_log.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<AuditLog>> audit = AuditLog::Open(options_.audit_log, &metrics_);
  if (!audit.ok()) return Annotate(audit.status(), "--audit-log");
  audit_ = *std::move(audit);
  return absl::OkStatus();
}

absl::Status CoordinatorProcess::OpenState() {
  if (options_.shared != nullptr) {
    store_ = options_.shared->store;
  } else if (options_.state_dir.empty()) {
    own_store_ = std::make_unique<MemoryStateStore>();
  } else {
    FileStateStoreOptions store;
    store.on_synced = [seconds = metrics_.MakeHistogram(MetricNamed("embla_store_sync_seconds"))](
                          absl::Duration took) { seconds.Observe(took); };
    EMBLA_ASSIGN_OR_RETURN(own_store_, FileStateStore::Open(options_.state_dir, store));
    process_metrics_.Watch("state", options_.state_dir);
  }
  if (store_ == nullptr) store_ = own_store_.get();
  CoordinatorOptions coordinator = options_.coordinator;
  coordinator.new_cluster_id = RandomHexId();
  EMBLA_RETURN_IF_ERROR(FindKey(coordinator));
  EMBLA_RETURN_IF_ERROR(coordinator.Validate());
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> opened,
                         Coordinator::Open(*store_, coordinator, Clock::Real().Now()));
  host_ = std::make_unique<CoordinatorHost>(std::move(opened), CoordinatorHostOptions(),
                                            Clock::Real(), &metrics_);
  return absl::OkStatus();
}

// After the store is open: its lock keeps a second coordinator from making the file, too.
absl::Status CoordinatorProcess::FindKey(CoordinatorOptions& coordinator) const {
  const bool is_stated = !options_.cluster_key_file.empty();
  if (!is_stated && options_.state_dir.empty()) return absl::OkStatus();
  const std::string file =
      is_stated ? options_.cluster_key_file : options_.state_dir + "/cluster.key";
  coordinator.key_path = std::filesystem::absolute(file).lexically_normal().string();
  absl::StatusOr<ClusterKey> key =
      is_stated ? ReadClusterKey(coordinator.key_path) : ReadOrMakeClusterKey(coordinator.key_path);
  if (!key.ok()) return key.status();
  coordinator.key = std::make_shared<const ClusterKey>(*std::move(key));
  return absl::OkStatus();
}

absl::Status CoordinatorProcess::Listen() {
  if (options_.shared == nullptr) {
    EMBLA_ASSIGN_OR_RETURN(exposer_, Expose({.listen = options_.metrics_listen,
                                             .insecure = options_.insecure,
                                             .ready = [this] { return host_->status(); },
                                             .routes = console_.Routes()},
                                            tls_, metrics_, process_metrics_));
  }
  service_ = std::make_unique<CoordinatorService>(*host_);
  admin_service_ = std::make_unique<AdminService>(*host_);
  RpcServerOptions server{.listen = options_.admin_listen,
                          .port = kAdminPort,
                          .insecure = options_.insecure,
                          .tls = tls_,
                          .connection_age = options_.connection_age,
                          .audit = audit_.get(),
                          .message_bytes_max = kAdminMessageBytesMax,
                          .connections = options_.connections,
                          .metrics = &metrics_,
                          .counted_services = {"embla.v1.AdminService"},
                          .health_services = {"embla.v1.AdminService"},
                          .has_reflection = options_.admin_reflection,
                          .ping_interval_min = kPingIntervalMin};
  if (options_.shared != nullptr) server.listening = options_.shared->admin_listening;
  grpc::Service* const admin_services[] = {admin_service_.get()};
  EMBLA_ASSIGN_OR_RETURN(admin_server_, RpcServer::Start(server, admin_services));
  server.listen = options_.listen;
  if (options_.shared != nullptr) server.listening = options_.shared->listening;
  server.port = kTrainerPort;
  server.counted_services = {"embla.v1.CoordinatorService"};
  server.health_services = server.counted_services;
  server.has_reflection = false;
  server.message_bytes_max = kCoordinatorMessageBytesMax;
  grpc::Service* const services[] = {service_.get()};
  EMBLA_ASSIGN_OR_RETURN(server_, RpcServer::Start(server, services));
  host_->OnRefusal([this] {
    admin_server_->SetServing(false);
    server_->SetServing(false);
  });
  console_.Lead(*host_, options_.audit_log);
  const PlanPtr plan = host_->plan();
  process_metrics_.SetNode("coordinator", plan->cluster_id());
  LogInfo("coordinator", "serving address=", address(), " admin=", admin_address(),
          " metrics=", metrics_address(), " cluster=", plan->cluster_id(),
          " plan=", ToInt(plan->version()), " tables=", plan->tables().size(),
          " nodes=", plan->nodes().size());
  return absl::OkStatus();
}

CoordinatorProcess::~CoordinatorProcess() {
  console_.Leave();
  // Ends what calls wait for, so that the servers can finish them.
  if (admin_service_ != nullptr) admin_service_->BeginStop();
  if (host_ != nullptr) {
    host_->StopListeners();
    host_->Stop();
  }
  if (admin_server_ != nullptr) admin_server_->Shutdown(options_.stop_grace);
  if (server_ != nullptr) server_->Shutdown(options_.stop_grace);
}

}  // namespace embla
