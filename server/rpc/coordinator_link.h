// A shard server's link to the coordinator: both prove that they have the cluster's key; then it
// registers, sends heartbeats, installs plans, carries the orders and reports of moves. When the
// coordinator is away the node goes on serving with the plan it has, and the link is made again,
// for ever, with jittered backoff.
//
// A process that was never registered, and never can be, gives up: it has another key, a name or a
// directory that the coordinator does not take, or the wrong address. The name of a process that
// just died is waited for, as long as that one may count as alive.
//
// Failpoints (core/base/failpoint.h): shard.registered, shard.install_plan, shard.plan_installed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/plan/plan.h"
#include "core/tls/tls.h"
#include "core/wire/redirect.h"
#include "core/wire/waited_stream.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "server/coordinator/membership.h"
#include "server/coordinator/session_registry.h"
#include "server/migration/move_orders.h"
#include "server/rpc/key_proofs.h"
#include "server/rpc/move_report_outbox.h"
#include "server/rpc/node_key.h"
#include "server/shard/shard_node.h"

namespace embla {

struct CoordinatorLinkOptions {
  std::string coordinator;        // host:port; of several coordinators all, with commas in between.
  TlsPtr tls;                     // Null: plaintext.
  NodeKey* key = nullptr;         // Not owned; outlives the link. Not null.
  NodeRegistration registration;  // cluster_id is filled in by the link.
  absl::Duration heartbeat = absl::ZeroDuration();  // Zero: what the coordinator says.
  absl::Duration backoff_min = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
  std::uint64_t jitter_seed = 0;
  // Orders of moves, for the node that this one is registered as; must not block. May be empty.
  std::function<void(NodeId self, std::vector<UnitOrder> orders)> on_orders = {};
  // Fills in what the node has, before each registration. May be empty, as all below.
  std::function<void(NodeRegistration& registration)> describe = {};
  // Writes down that the node is registered.
  std::function<absl::Status(const v1::Registered& registered)> on_registered = {};
  // Writes down what the coordinator wants to be told when the node registers again.
  std::function<absl::Status(const std::string& testimony)> on_testimony = {};
  // The node may answer everybody: nothing that it has is another node's. Once per registration.
  std::function<void()> on_serve = {};
  // Writes down that a plan is installed, before the coordinator hears of it.
  std::function<absl::Status(const Plan& plan)> on_installed = {};
  std::function<std::uint64_t()> log_position = {};  // Up to which the node's log is durable.
  std::function<NodeLoad()> load = {};               // For the next heartbeat.
  // Called once, from the link's thread, when the link gives up; must not destroy it. May be empty.
  std::function<void(const absl::Status&)> on_refused = {};
  // Reports of the node's moves. May be null, else it is not owned and outlives the link.
  MoveReportOutbox* reports = nullptr;
};

// Thread safety: every public method may be called from any thread, the destructor excepted.
class CoordinatorLink {
 public:
  // Starts to connect. `node` is not owned and outlives the link.
  CoordinatorLink(CoordinatorLinkOptions options, ShardNode& node);
  // Closes the link and waits for an installation in progress.
  ~CoordinatorLink();

  // Whether the coordinator has accepted the registration on the link that is open now.
  bool registered() const;
  // Why the link has given up; OK: it has not.
  absl::Status refusal() const;

 private:
  using Stream = wire::WaitedStream<v1::NodeReport, v1::NodeCommand>;

  // Link thread: one link after the other.
  void Run();
  absl::Status RunOnce();
  // Greets, and registers. Aborted: the other end hung up, which Finish explains.
  absl::Status Introduce(Stream& stream);
  absl::Status Register(Stream& stream, const LinkNonces& nonces, const ClusterKey& key);
  // Whether nothing but another start of this program can mend `status`.
  bool IsFinal(const absl::Status& status);
  void Carry(Stream& stream);
  void Handle(const v1::NodeCommand& command);
  void HandleSessions(const v1::ClosedSessions& sessions);
  void HandleOrders(const v1::MoveOrders& orders);
  void Backoff(const absl::Status& why);
  v1::CoordinatorService::Stub& StubOf(const std::string& address);
  // InvalidArgument: the coordinators are of two clusters. Those that do not answer are not waited
  // for.
  absl::Status CheckClusters();

  // Report thread: one per link, the only writer after the registration.
  void SendReports(Stream& stream);
  // Waits until a heartbeat is due (from `beat_at` on, which is then set for the next one) or moves
  // have something to say; nothing when the link is over.
  enum class Due : std::uint8_t { kNothing, kHeartbeat, kMoves };
  Due AwaitReport(absl::Time& beat_at, HeartbeatInfo& info);

  // Install thread: sessions that are closed, and always the newest plan. A plan that cannot be
  // installed is tried again with back-off: the coordinator sends it once.
  void Install();
  void AwaitWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsTimeToClose() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsTimeToInstall() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseSessions(const SessionNews& news);
  void InstallPlan(const PlanPtr& plan, NodeId self);

  const CoordinatorLinkOptions options_;
  ShardNode& node_;  // Not owned; outlives this object.
  wire::CoordinatorChoice choice_;

  // Owned by the link thread.
  std::map<std::string, std::unique_ptr<v1::CoordinatorService::Stub>> stubs_;
  std::string address_;              // The coordinator that is linked to.
  bool are_of_one_cluster_ = false;  // The coordinators, as far as they answered.
  std::size_t left_in_a_row_ = 0;    // Coordinators that were left since the last link.
  std::mt19937_64 jitter_;
  absl::Duration backoff_;
  std::string last_error_;
  bool was_registered_ = false;                           // Since this process started.
  absl::Duration dead_after_ = absl::Seconds(5);          // Set by the coordinator.
  absl::Time name_taken_since_ = absl::InfiniteFuture();  // By another process.

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool linked_ ABSL_GUARDED_BY(mu_) = false;      // True while the report thread is to run.
  bool registered_ ABSL_GUARDED_BY(mu_) = false;  // On the present link.
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  bool report_now_ ABSL_GUARDED_BY(mu_) = false;                 // There is news for a heartbeat.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;  // Context of the open link.
  NodeId self_ ABSL_GUARDED_BY(mu_){};
  std::string cluster_id_ ABSL_GUARDED_BY(mu_);
  absl::Duration heartbeat_ ABSL_GUARDED_BY(mu_) = absl::Seconds(1);
  std::optional<SessionNews> closed_ ABSL_GUARDED_BY(mu_);  // To be refused, before any plan.
  absl::Time close_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // Not before.
  // The node refuses those that it was told of first: it may take in units, whose records may have
  // forgotten these sessions.
  bool has_sessions_ ABSL_GUARDED_BY(mu_) = false;
  std::uint64_t sessions_heard_ ABSL_GUARDED_BY(mu_) = 0;  // The number of the last.
  PlanPtr received_ = std::make_shared<const Plan>();  // The last one; of the thread that reads.
  PlanPtr wanted_ ABSL_GUARDED_BY(mu_);                // To be installed; tried again until it is.
  absl::Time install_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // Not before.
  absl::Duration install_backoff_ ABSL_GUARDED_BY(mu_);
  PlanVersion heard_ ABSL_GUARDED_BY(mu_){};  // The newest that came.
  PlanVersion installed_ ABSL_GUARDED_BY(mu_){};
  PlanVersion failed_ ABSL_GUARDED_BY(mu_){};  // 0: the last plan was installed.
  absl::Status failure_ ABSL_GUARDED_BY(mu_);

  std::thread install_thread_;
  std::thread link_thread_;
};

}  // namespace embla
