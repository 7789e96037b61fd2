// One of several coordinators of a cluster whose state is in etcd: a standby, or the leader.
//
// Two threads. The election's keeps the lease and looks who leads, several times a second; it never
// waits for anything but etcd. The role's turns what it says into one of two states:
//   standby  both listeners answer every call with a redirect to the leader;
//   leader   the store is open, and a CoordinatorProcess serves.
// A leader whose lease is over by its own clock, that another one has replaced, or whose store
// cannot write, becomes a standby: it closes its links, so that nodes and trainers go elsewhere.
// Its doings until then are harmless: no answer is given before etcd has confirmed, in a
// transaction, that this one leads (EtcdStateStore::EndBatch).
//
// The listening sockets are this object's and stay over a change of state: connections wait.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include <grpcpp/support/status.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/metrics/exposer.h"
#include "core/metrics/instruments.h"
#include "core/metrics/metrics.h"
#include "core/metrics/process_metrics.h"
#include "core/tls/tls.h"
#include "core/wire/redirect.h"
#include "server/app/coordinator_process.h"
#include "server/etcd/etcd_address.h"
#include "server/etcd/etcd_client.h"
#include "server/etcd/etcd_election.h"
#include "server/etcd/etcd_state_store.h"
#include "server/rpc/listening_socket.h"
#include "server/rpc/rpc_server.h"

namespace embla {

struct CoordinatorMemberOptions {
  CoordinatorProcessOptions process;  // Without state_dir; with a key file.
  EtcdAddress etcd;
  std::string etcd_ca_file;  // See EtcdClientOptions.
  std::string etcd_cert_file;
  std::string etcd_key_file;
  // By which nodes, trainers and the other coordinators' redirects reach this one, host:port.
  // Empty: where it listens.
  std::string advertise;
  std::string admin_advertise;
  absl::Duration lease = absl::Seconds(3);        // Whole seconds.
  absl::Duration step = absl::Milliseconds(200);  // Between two looks at the election.
};

class CoordinatorMember {
 public:
  // Listens when it returns, as a standby. Errors: those of the listeners and of the key file;
  // Unavailable: etcd does not answer; FailedPrecondition: the cluster has another key.
  static absl::StatusOr<std::unique_ptr<CoordinatorMember>> Start(
      const CoordinatorMemberOptions& options);
  // A leader resigns: another one leads at once.
  ~CoordinatorMember();

  const std::string& address() const { return address_; }
  const std::string& admin_address() const { return admin_address_; }
  // Empty without a metrics endpoint.
  std::string metrics_address() const { return exposer_ ? exposer_->address() : ""; }
  // OK: it serves, or stands by; else why not, as /readyz says.
  absl::Status ready() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit CoordinatorMember(const CoordinatorMemberOptions& options);
  absl::Status Prepare();
  absl::Status Listen();
  absl::Status CheckKey() const;

  // The election's thread.
  void Elect();
  void Note(const absl::StatusOr<ElectionView>& view) ABSL_LOCKS_EXCLUDED(mu_);

  // The role's thread.
  void Act();
  // Waits until the role should change; false: stop.
  bool AwaitChange(bool is_leader, std::vector<EtcdCompare>& fence) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Lead(const std::vector<EtcdCompare>& fence);
  absl::Status StandBy();
  void StopLeading(const std::string& why);
  absl::Status NoteKey() const;

  // Another coordinator that leads and serves; all empty: there is none.
  wire::Redirect Leader() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  grpc::Status Redirect() const ABSL_LOCKS_EXCLUDED(mu_);
  std::string Role() const ABSL_LOCKS_EXCLUDED(mu_);
  StandbyFacts LeaderForConsole() const ABSL_LOCKS_EXCLUDED(mu_);
  // The URL at which others find this one's console; empty: they cannot.
  std::string ConsoleUrl() const;

  const CoordinatorMemberOptions options_;
  Metrics metrics_;
  ProcessMetrics process_metrics_{metrics_};
  const Gauge leads_gauge_;
  ListeningSockets listening_;
  ListeningSockets admin_listening_;
  std::string address_;
  std::string admin_address_;
  wire::Redirect self_;  // Without a cluster id.
  ClusterKeyPtr key_;
  TlsPtr tls_;  // Null: plaintext.
  std::unique_ptr<EtcdKv> etcd_;
  Console console_{[this] { return LeaderForConsole(); }};
  CoordinatorProcessOptions::Shared shared_;

  std::unique_ptr<EtcdElection> election_;  // The election thread's.
  // The role thread's: the first two, or the other two.
  std::unique_ptr<RpcServer> standby_;
  std::unique_ptr<RpcServer> admin_standby_;
  std::unique_ptr<EtcdStateStore> store_;
  std::unique_ptr<CoordinatorProcess> leader_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool is_standing_ ABSL_GUARDED_BY(mu_) = true;  // False: the election's thread resigns and ends.
  ElectionView view_ ABSL_GUARDED_BY(mu_);
  absl::Time leads_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Status etcd_status_ ABSL_GUARDED_BY(mu_);
  absl::Time not_before_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // Stand aside until then.
  std::string cluster_id_ ABSL_GUARDED_BY(mu_);
  bool serves_ ABSL_GUARDED_BY(mu_) = false;  // Leads, and answers.

  std::unique_ptr<MetricsExposer> exposer_;
  std::thread election_thread_;
  std::thread role_thread_;
};

}  // namespace embla
