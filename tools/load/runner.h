// Drives one case: every client keeps its number of requests in flight until all are done.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "client/include/embla/client.h"
#include "tools/load/latency_histogram.h"
#include "tools/load/workload.h"

namespace embla::load {

struct RoundResult {
  double seconds = 0.0;
  std::int64_t requests = 0;
  LatencyHistogram lookups;
  LatencyHistogram updates;
};

// Thread safety: one thread at a time.
class Runner {
 public:
  // `clients` (load.clients of them) and `requests` are not owned; they outlive this object.
  Runner(const Case& load, std::span<client::Client* const> clients, const RequestSet& requests,
         std::uint64_t seed);
  ~Runner();

  // `count` requests of all clients together. The first error ends the round.
  absl::StatusOr<RoundResult> Run(int count);

 private:
  class Driver;
  std::vector<std::unique_ptr<Driver>> drivers_;
};

}  // namespace embla::load
