// The same bytes as a case, carried by gRPC alone and by a plain socket; and the same with the rows
// gathered or stepped at the peer (bench/ceilings).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/ceilings/ceiling.h"
#include "tools/load/workload.h"

namespace embla::load {

// Thread safety: one thread at a time.
class TransportCeilings {
 public:
  // Starts `peer_program`, embla-ceiling-peer.
  static absl::StatusOr<std::unique_ptr<TransportCeilings>> Start(const std::string& peer_program);

  struct Rate {
    std::string name;
    double requests_per_second = 0.0;
  };
  // Every ceiling on one connection: "grpc_unary", "grpc_stream", "socket"; and, for single rows of
  // one table in fp32, "grpc_stream_work" and "socket_work". Requires: lookups or updates only.
  absl::StatusOr<std::vector<Rate>> Measure(const Case& load);

 private:
  TransportCeilings() = default;

  std::unique_ptr<bench::CeilingPeer> peer_;  // Before its users.
  std::unique_ptr<bench::Ceiling> unary_;
  std::unique_ptr<bench::Ceiling> stream_;
  std::unique_ptr<bench::Ceiling> socket_;
};

}  // namespace embla::load
