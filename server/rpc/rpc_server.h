// One gRPC listener with its services and the standard health service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/status.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/metrics/metrics.h"
#include "core/tls/tls.h"
#include "server/rpc/access_guard.h"
#include "server/rpc/audit_log.h"
#include "server/rpc/connection_acceptor.h"
#include "server/rpc/connection_shares.h"
#include "server/rpc/unknown_calls.h"

namespace embla {

struct RpcServerOptions {
  std::string listen = "127.0.0.1:0";
  // Purpose of the port: calls that it does not serve are answered with "this is `port`".
  std::string port = "another port";
  bool insecure = false;  // Allow addresses that other machines can reach, without TLS.
  TlsPtr tls = nullptr;   // Null: plaintext, and every caller may call everything.
  // A connection over TLS takes no new calls at this age, give or take a tenth, and ends when its
  // calls have, or after as long again, at most 10 minutes: so certificates are judged again.
  // Zero: never.
  absl::Duration connection_age = absl::Hours(1);
  AuditLog* audit = nullptr;  // Not owned; outlives the server. Null: nothing is audited.
  std::size_t message_bytes_max = std::size_t{256} << 20;
  ConnectionLimits connections = {};
  ConnectionShareLimits shares = {};
  // Memory that gRPC may take for incoming messages and for calls. Beyond it, it ends connections.
  // 0: a quarter of the machine's memory, or of its control group's, at least 1 GiB.
  std::size_t grpc_bytes_max = 0;
  Metrics* metrics = nullptr;  // Not owned; outlives the server. May be null.
  // Full names of services whose calls are counted here, not by their handlers. Needs metrics.
  std::vector<std::string> counted_services = {};
  bool is_serving = true;  // Health at first; see SetServing.
  // Full names of services whose health may be asked by name, and is that of the whole.
  std::vector<std::string> health_services = {};
  bool has_reflection = false;  // The server tells callers what its services are (gRPC's service).
  bool accepts = true;          // False: whoever connects waits until BeginAccepting.
  // Sockets to listen on, of which duplicates are taken, instead of `listen`. Null, or not owned
  // and used by Start only.
  const ListeningSockets* listening = nullptr;
  // Answers every call of a service that the server does not have. Empty: UNIMPLEMENTED. On any
  // thread, and until Shutdown returns.
  std::function<grpc::Status()> answer_unknown = {};
  // See ConnectionAcceptor. Empty: every connection is gRPC's.
  ConnectionAcceptor::TakeFrames take_frames = {};
  // Pings of a connection that come faster than this end it, when they come without data.
  absl::Duration ping_interval_min = absl::Seconds(5);
};

class RpcServer {
 public:
  // `services` are not owned and outlive the server.
  // Errors: InvalidArgument, FailedPrecondition (see CheckListenAddress), Unavailable (cannot
  // bind).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          std::span<grpc::Service* const> services);
  // Shuts down at once if Shutdown was not called.
  ~RpcServer();

  // Takes in connections, if it does not yet. Unavailable: no descriptors.
  absl::Status BeginAccepting();

  // Sets the answer of the health service: SERVING or NOT_SERVING. Not beside or after Shutdown.
  void SetServing(bool is_serving);

  // Stops accepting, reports NOT_SERVING, and waits for calls in flight; cancels those left after
  // `grace`. When it returns, no handler runs.
  void Shutdown(absl::Duration grace);

  // With the port in use.
  const std::string& address() const { return address_; }
  // For tests and co-located callers: no socket.
  std::shared_ptr<grpc::Channel> InProcessChannel();

 private:
  RpcServer(std::string address, const RpcServerOptions& options);

  // Hands a connection that was accepted to gRPC, which owns the descriptor from then on. Returns
  // gRPC's name of the connection.
  std::string TakeConnection(int number);

  const ConnectionLimits limits_;
  Metrics* const metrics_;  // Not owned; may be null.
  const ConnectionAcceptor::TakeFrames take_frames_;
  ListeningSockets listening_;  // Until connections are taken in.
  ConnectionShares shares_;     // Shares of connections that may outlive server_ by a moment.
  UnknownCalls unknown_calls_;
  const std::shared_ptr<AccessGuard> guard_;  // Shared with gRPC.
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> tls_connections_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // Gone before server_.
  const std::string address_;
};

}  // namespace embla
