// Accepts a server's connections and hands them to gRPC, with bounds of its own.
//
// gRPC 1.51 stops listening for good when one accept fails for want of descriptors (CVE-2023-4785),
// counts no connections, and lets a peer start and reset streams without end (CVE-2023-44487). So
// one thread here accepts, keeps a duplicate of every connection's descriptor, and
//   - takes no connection that would leave fewer than a reserve of descriptors to the process, and
//     no more than `per_address_max` from one address: those are closed at once;
//   - goes on as soon as there are descriptors again. A descriptor in reserve makes it possible to
//     accept and close also when the process has none left;
//   - shuts a connection down (by the duplicate: the number that gRPC has may be another file's by
//     then) whose streams are mostly reset before their answer;
//   - closes the duplicate when the connection is over, which the kernel tells by EPOLLHUP;
//   - hands connections that greet as data sockets (core/socket/link.h) to those.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/file_descriptor.h"
#include "core/metrics/instruments.h"
#include "server/rpc/listening_socket.h"
#include "server/rpc/stream_counts.h"

namespace embla {

struct ConnectionLimits {
  // Only this user, and root, may connect to a unix socket.
  bool same_user = true;
  // From one IP address, or from one user of a unix socket.
  std::uint32_t per_address_max = 1024;
  std::uint32_t open_calls_max = 1024;  // Limit for one connection.
  // Streams that a peer reset before they were answered: more than so many, beyond those that
  // `resets_per_second` forgives, end the connection. A client whose calls all miss their deadlines
  // stays below.
  std::int64_t resets_max = 5'000;
  double resets_per_second = 1'000;
};

// Thread safety: none, but it has a thread of its own.
class ConnectionAcceptor {
 public:
  // Owns the descriptor from then on. Returns gRPC's name of the connection; empty: not known. Runs
  // on the acceptor's thread.
  using HandOver = std::function<std::string(int fd)>;

  // Takes a connection whose first byte is that of kHello, and shuts it down when it is over. Runs
  // on the acceptor's thread.
  using TakeFrames = std::function<void(FileDescriptor socket)>;

  // `take_frames` may be empty: every connection is gRPC's. `metrics` may be null; otherwise it is
  // not owned and outlives the acceptor.
  // Errors: Unavailable (no descriptors to begin with).
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Start(ListeningSockets listening,
                                                                   const ConnectionLimits& limits,
                                                                   Metrics* metrics,
                                                                   HandOver hand_over,
                                                                   TakeFrames take_frames);
  // Stops accepting. Connections go on.
  ~ConnectionAcceptor();

 private:
  struct Connection {
    FileDescriptor duplicate;
    FileDescriptor silent;  // The connection, until it is known whose it is.
    std::string name;       // gRPC's name of the connection; empty: not known.
    std::string address;
    std::int64_t channelz_socket = 0;  // 0: not found yet.
    std::int64_t unanswered = 0;       // When it was last looked at.
    absl::Time looked_at;
    double resets = 0;  // Resets that count against the connection: time forgives them.
    bool ended = false;
  };

  ConnectionAcceptor(ListeningSockets listening, const ConnectionLimits& limits, Metrics* metrics,
                     HandOver hand_over, TakeFrames take_frames);
  absl::Status Prepare();

  void Run();
  void Accept(int listener);
  // Whether there is another connection to accept.
  bool AcceptOne(int listener);
  void Admit(FileDescriptor socket);
  // A silent connection has said something, or is over, or has waited long enough.
  void Direct(Connection& connection);
  // Accepts one connection with the reserve's descriptor and closes it.
  void TurnAway(int listener);
  void Refuse(const char* reason, const std::string& address);
  void Watch(int number, std::uint32_t events);
  void Pause(bool paused);
  void Remove(int duplicate);
  void LookForResets(absl::Time now);
  void FindNumbers(const std::vector<Connection*>& connections);
  void Look(Connection& connection, absl::Time now);

  const ConnectionLimits limits_;
  const std::size_t descriptors_max_;
  const HandOver hand_over_;
  const TakeFrames take_frames_;  // Empty: nobody speaks frames.
  const ConnectionMetrics metrics_;

  // Owned by the thread.
  ListeningSockets listening_;
  FileDescriptor epoll_;
  FileDescriptor wake_;
  FileDescriptor reserve_;
  bool paused_ = false;
  absl::Time told_at_;
  std::unordered_map<int, Connection> connections_;  // By the duplicate's number.
  std::unordered_map<std::string, std::uint32_t> by_address_;
  ChannelzNumbers channelz_;
  std::vector<int> to_look_at_;  // Duplicates; may be gone.

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace embla
