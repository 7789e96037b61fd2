// How busy a node is, for its heartbeats: the difference of its metrics between two looks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "core/metrics/metrics.h"
#include "server/coordinator/membership.h"

namespace embla {

// Thread safety: none.
class LoadMeter {
 public:
  // Looks are no closer than this: a percentile of a second's calls would jump.
  static constexpr absl::Duration kWindowMin = absl::Seconds(5);
  // Tables that a node tells of: more would make its heartbeats long.
  static constexpr std::size_t kTablesMax = 32;

  // `metrics` are a node's with `devices` devices; not owned, and outlive the meter.
  LoadMeter(Metrics& metrics, std::size_t devices, absl::Time now);

  // The load between the last two looks; nothing is known before the second.
  const NodeLoad& Look(absl::Time now);

 private:
  struct Method {
    std::string name;
    Histogram latency;
    std::vector<Histogram::Bucket> before;
  };
  struct Device {
    Counter busy_seconds;
    double before = 0;
  };
  using ByTable = std::map<std::string, double>;

  std::vector<TableLoad> LookAtTables(double seconds);

  Metrics& metrics_;  // Not owned; outlives this object.
  std::vector<Method> methods_;
  std::vector<Device> devices_;
  ByTable looked_up_;  // Rows at the last look.
  ByTable updated_;
  absl::Time looked_;
  NodeLoad load_;
};

// The duration that a share `q` of the observations between `before` and `after` did not exceed:
// between the bounds of its bucket by proportion, as Prometheus does. Zero: there were none.
absl::Duration QuantileBetween(const std::vector<Histogram::Bucket>& before,
                               const std::vector<Histogram::Bucket>& after, double q);

}  // namespace embla
