// Bounds what a server's connections hold of messages that are not complete.
//
// gRPC 1.51 takes in whatever a client sends of a message, up to the length that the message
// states, before any handler is called, and offers nothing that could be asked first. But every
// byte comes by recvmsg, which this program defines in libc's place (at the end of the .cc file),
// as it does sendmsg and close. They call libc's, and then tell the account of the connection what
// passed: Http2Parts says what is held. A connection that holds too much gets ECONNRESET from its
// next recvmsg, and gRPC gives back all that it has of the connection. Sockets that are not in a
// ConnectionShares cost one load.
//
//   - A stranger, a connection that has shown no session yet, has `stranger_bytes_max` for parts of
//     messages, and for its requests and replies in flight (InFlightBudget), which are told here.
//   - All strangers together have `strangers_bytes_max`, a quarter of it for those that have been
//     ended and that gRPC has not closed yet. Beyond it the one that holds most is ended.
//   - A connection that has shown a session with any of its messages has `session_bytes_max`.
//   - Peers, which have proved to have the cluster's key, are not bounded here.
//
// Connections over TLS are not among them: their bytes say nothing, and they have all shown a
// certificate of the cluster. What gRPC takes for all of them together is bounded by its quota
// (RpcServerOptions::grpc_bytes_max).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <grpcpp/server_context.h>

#include "core/metrics/instruments.h"

namespace embla {

struct ConnectionShareLimits {
  std::size_t stranger_bytes_max = std::size_t{16} << 20;
  // 40 MiB, and the 24 KiB that gRPC takes for each connection: 64 MiB for a thousand of them.
  std::size_t strangers_bytes_max = std::size_t{40} << 20;
  // Twice the longest message: a client has the longest one alone on its way, or many others.
  std::size_t session_bytes_max = std::size_t{512} << 20;
};

// An accepted connection, unlike any other of the process. 0: none, as of calls in the process.
enum class ConnectionId : std::uint64_t {};

// The connection of a call that is not over.
ConnectionId ConnectionOf(const grpc::CallbackServerContext& call);

// The peer of the connection has proved this. A connection that is over is ignored.
void ShowSession(ConnectionId connection);
void ShowPeer(ConnectionId connection);

// Memory that a connection has beside parts of messages, as a stranger. Connections that are over,
// or have been ended, are ignored.
void TakeBeside(ConnectionId connection, std::size_t bytes);
void GiveBackBeside(ConnectionId connection, std::size_t bytes);

// One server's connections. Thread safety: every method may be called from any thread.
class ConnectionShares {
 public:
  // Connections with higher descriptors cannot be opened.
  static constexpr std::size_t kDescriptorsMax = std::size_t{1} << 20;

  // `metrics` may be null; otherwise it is not owned and outlives this object.
  ConnectionShares(const ConnectionShareLimits& limits, Metrics* metrics)
      : limits_(limits), metrics_(metrics) {}
  // Connections that are still open are bounded no longer.
  ~ConnectionShares();

  // `number` is an open socket's, from which nothing was received yet. Until its close the socket
  // is one of these connections.
  void Open(int number);

  // Held by all strangers that are open and have not been ended.
  std::size_t strangers_bytes() const { return strangers_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class ConnectionAccount;

  void EndLargest();

  const ConnectionShareLimits limits_;
  const ConnectionMetrics metrics_;
  // Held by all strangers; no other memory depends on it.
  std::atomic<std::size_t> strangers_bytes_ = 0;
  // Held by connections that have been ended, until gRPC has closed them.
  std::atomic<std::size_t> ending_bytes_ = 0;
  std::atomic<std::int64_t> told_at_ = 0;  // In seconds.
};

}  // namespace embla
