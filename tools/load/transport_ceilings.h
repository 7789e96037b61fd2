// The same bytes as a case, carried by gRPC alone and by a plain socket (bench/ceilings).
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

  // Names of Measure's results, in order: "grpc_unary", "grpc_stream", "socket".
  std::vector<std::string> names() const;
  // Requests per second of every ceiling on one connection. Requires: lookups or updates only.
  absl::StatusOr<std::vector<double>> Measure(const Case& load);

 private:
  TransportCeilings() = default;

  std::unique_ptr<bench::CeilingPeer> peer_;  // Before its users.
  std::vector<std::unique_ptr<bench::Ceiling>> ceilings_;
};

}  // namespace embla::load
