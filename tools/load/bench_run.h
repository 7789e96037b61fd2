// One benchmark run: prepares all cases, verifies each once, then measures them in interleaved
// rounds beside their ceilings, so that whatever the machine does meanwhile happens to all alike.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/metrics/metrics.h"
#include "tools/load/bench_tables.h"
#include "tools/load/latency_histogram.h"
#include "tools/load/transport_ceilings.h"
#include "tools/load/workload.h"

namespace embla::load {

struct RunSettings {
  TableSetup tables;
  std::string distribution = "uniform";
  int rounds = 5;
  std::uint64_t seed = 1;
};

// A rate beside our own in every round.
struct CeilingResult {
  std::string name;
  double rows_per_second = 0.0;  // Median.
  double ratio = 0.0;            // Median over rounds of ours divided by it.
};

struct CaseResult {
  Case load;
  double rows_per_second = 0.0;   // Median over rounds; rows are ids asked for.
  double bytes_per_second = 0.0;  // Ids, rows and gradients; median.
  LatencyHistogram lookups;       // All rounds.
  LatencyHistogram updates;
  double client_cpu_per_million_rows = 0.0;  // Seconds.
  double server_cpu_per_million_rows = 0.0;  // 0: the servers' processes are not known.
  double client_sleeps_per_request = 0.0;
  double server_sleeps_per_request = 0.0;
  double bytes_sent_per_request = 0.0;  // By the client, in messages.
  double bytes_received_per_request = 0.0;
  double compared = 0.0;  // Rows per second over those of load.compared_with; else 0.
  std::vector<CeilingResult> ceilings;
};

// Nothing is owned; all of it outlives the call.
struct RunEnvironment {
  client::Admin& admin;
  std::vector<client::Client*> clients;   // At least as many as any case has.
  std::vector<pid_t> server_processes;    // Empty: elsewhere.
  TransportCeilings* ceilings = nullptr;  // Null: not measured.
  Metrics& metrics;                       // Counts of the clients.
  std::ostream& log;                      // A line per round.
};

// Errors: InvalidArgument (a case), Internal (a wrong result), those of the service.
absl::StatusOr<std::vector<CaseResult>> RunCases(const std::vector<Case>& cases,
                                                 const RunSettings& settings,
                                                 RunEnvironment& environment);

}  // namespace embla::load
