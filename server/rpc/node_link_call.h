// One shard server's link, on the coordinator's side: both ends prove that they have the cluster's
// key; then registration, then heartbeats in and plans out, and what is said of moves both ways. A
// node that falls behind gets the newest plan only.
//
// Reports come as bytes and are scanned before they are parsed (core/wire/message_scan.h). Before
// the proof only short ones are taken, as anybody may have sent them.
//
// Lives until gRPC and the host are done with it, then deletes itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/tls/identity.h"
#include "embla/v1/coordinator.pb.h"
#include "server/migration/move_orders.h"
#include "server/rpc/connection_shares.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/key_proofs.h"

namespace embla {

// gRPC never runs a reactor's callback inside Start* or Finish, so those are called under mu_.
class NodeLinkCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           private PlanListener {
 public:
  // `host` is not owned and outlives the call. `peer` is the node's address, for the log.
  NodeLinkCall(CoordinatorHost& host, const grpc::CallbackServerContext& call);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  ~NodeLinkCall() override = default;

  // The first commands for a registered node.
  struct Welcome {
    std::unique_ptr<v1::NodeCommand> registered;
    SessionNews sessions;
    PlanPtr plan;
  };

  // On gRPC's thread. InvalidArgument: more than a node may say, or no report.
  absl::StatusOr<v1::NodeReport> DecodeReceived();
  // On gRPC's thread: hand the report to the host. The next is read when it is done.
  void Handle(v1::NodeReport report);
  // The same, but nobody waits for it to be done: the next may be the one that counts.
  void HandOverHeartbeat(const v1::Heartbeat& heartbeat);
  // On gRPC's thread, before the host hears of the link.
  absl::Status Greet(const v1::NodeGreeting& greeting);
  absl::Status HearProof(const v1::NodeProof& proof);
  absl::Status CheckProved(const v1::Registration& registration) const;
  // On the host's thread.
  absl::Status Execute(Coordinator& coordinator, const v1::NodeReport& report, absl::Time now);
  absl::Status Register(Coordinator& coordinator, const v1::Registration& message, absl::Time now);
  absl::Status HearMoves(Coordinator& coordinator, const v1::MoveReports& message, absl::Time now);
  // On the host's thread, or on gRPC's when the host takes nothing any more.
  void Handled(const absl::Status& status);
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnPlan(const PlanPtr& plan) override;
  void OnOrders(NodeId node, const std::vector<UnitOrder>& orders) override;
  void OnSessions(const SessionNews& news) override;
  void OnTestimony(NodeId node, const std::string& testimony) override;
  void OnServe(NodeId node) override;
  void OnLogLevel(NodeId node, LogLevel level) override;
  void OnRefusedHeartbeat(const NodeProcess& process, const absl::Status& status) override;
  void OnStop() override;

  void WriteMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Orders that wait to be written; later ones are dropped, and said again by who gave them.
  static constexpr std::size_t kOrdersMax = 16384;
  static constexpr std::size_t kOrdersPerCommand = 512;

  CoordinatorHost& host_;  // Not owned; outlives this object.
  const std::string peer_;
  const std::optional<Identity> caller_;  // Over TLS.
  const ConnectionId connection_;
  // Used by gRPC's thread, which reads one report after the other.
  grpc::ByteBuffer received_;
  LinkNonces nonces_;
  std::optional<v1::NodeProof> proved_;

  // Written by the host's thread while a report is handled, read by gRPC's between reports.
  NodeProcess process_;  // Incarnation 0: not registered.
  absl::Status executed_;
  std::unique_ptr<Welcome> welcome_;  // Belongs to the report that is handled.

  Mutex mu_;
  grpc::Status result_ ABSL_GUARDED_BY(mu_);
  v1::NodeCommand command_ ABSL_GUARDED_BY(mu_);                      // To be written now,
  grpc::ByteBuffer command_bytes_ ABSL_GUARDED_BY(mu_);               // and as it is written.
  std::unique_ptr<v1::NodeCommand> greeting_ ABSL_GUARDED_BY(mu_);    // To be written first,
  std::unique_ptr<v1::NodeCommand> registered_ ABSL_GUARDED_BY(mu_);  // and this after it.
  std::optional<SessionNews> sessions_ ABSL_GUARDED_BY(mu_);  // To be written, before any plan.
  PlanPtr plan_ ABSL_GUARDED_BY(mu_);                         // To be written.
  PlanVersion written_ ABSL_GUARDED_BY(mu_){};
  std::vector<UnitOrder> orders_ ABSL_GUARDED_BY(mu_);      // To be written, oldest first.
  std::string testimony_ ABSL_GUARDED_BY(mu_);              // To be written, if nothing else is.
  bool lets_serve_ ABSL_GUARDED_BY(mu_) = false;            // Likewise.
  std::optional<LogLevel> log_level_ ABSL_GUARDED_BY(mu_);  // Likewise.
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;              // registered_ was given.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool handling_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace embla
