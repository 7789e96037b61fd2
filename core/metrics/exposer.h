// GET /metrics over HTTP.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/metrics/metrics.h"

namespace prometheus {
class Exposer;
}  // namespace prometheus

namespace embla {

class MetricsExposer {
 public:
  // Serves `metrics` on `listen`, "host:port"; port 0 takes a free one. The text has no secrets but
  // also no authentication: keep it on loopback or on a network of your own.
  // Errors: InvalidArgument (not host:port), Unavailable (cannot listen there).
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(std::string_view listen,
                                                               const Metrics& metrics);
  ~MetricsExposer();

  // "host:port" with the port in use.
  const std::string& address() const { return address_; }

 private:
  explicit MetricsExposer(std::unique_ptr<prometheus::Exposer> exposer, std::string address);

  std::unique_ptr<prometheus::Exposer> exposer_;
  std::string address_;
};

}  // namespace embla
