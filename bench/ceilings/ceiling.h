// The ceiling of the transport: exchanges of the same bytes, with no work at either end but one
// copy of the reply into the caller's memory, or with the rows gathered or stepped at the peer and
// nothing else. Every service figure is divided by these, measured in the same run
// (docs/benchmarks.md).
//
// The peer is a process of its own (embla-ceiling-peer), as the shard server is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace embla::bench {

// The peer does nothing for a request, or reads the rows of its ids, or applies their gradients.
enum class Work : std::uint32_t { kNone, kGather, kStep };

inline constexpr std::uint32_t kWorkRows = 1'000'000;  // In the peer's table of each dim.

// `requests` exchanges, `in_flight` at a time.
struct Load {
  std::size_t request_bytes = 0;  // At least those of RequestHeader (messages.h).
  std::size_t reply_bytes = 0;
  int in_flight = 1;
  int requests = 1;
  // With work there are `ids` of them in a request, and room for them and for fp32 rows of `dim`.
  Work work = Work::kNone;
  std::uint32_t ids = 0;
  std::uint32_t dim = 0;
};

class Ceiling {
 public:
  virtual ~Ceiling() = default;
  virtual std::string name() const = 0;
  // Runs the load and returns its seconds. Unavailable: the peer does not answer, or wrongly.
  virtual absl::StatusOr<double> Run(const Load& load) = 0;
};

// The peer process; ends with this object.
class CeilingPeer {
 public:
  // `program` is the path of embla-ceiling-peer.
  static absl::StatusOr<std::unique_ptr<CeilingPeer>> Start(const std::string& program);
  ~CeilingPeer();

  // host:port of the two servers.
  const std::string& grpc_address() const { return grpc_address_; }
  const std::string& socket_address() const { return socket_address_; }

 private:
  CeilingPeer() = default;

  int pid_ = -1;
  std::string grpc_address_;
  std::string socket_address_;
};

// One connection each. Unary calls, one long-lived bidirectional stream, or a TCP connection.
absl::StatusOr<std::unique_ptr<Ceiling>> GrpcUnaryCeiling(const CeilingPeer& peer);
absl::StatusOr<std::unique_ptr<Ceiling>> GrpcStreamCeiling(const CeilingPeer& peer);
absl::StatusOr<std::unique_ptr<Ceiling>> SocketCeiling(const CeilingPeer& peer);

}  // namespace embla::bench
