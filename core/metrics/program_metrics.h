// The metrics of a program that only has clients: its own, those of its clients, and where both are
// served.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/metrics/exposer.h"
#include "core/metrics/metrics.h"
#include "core/metrics/process_metrics.h"

namespace embla {

class ProgramMetrics {
 public:
  // `listen` is host:port, with port 0 for a free one; empty: nothing is served. `program` is the
  // label of embla_build_info. Errors: as MetricsExposer::Start.
  static absl::StatusOr<std::unique_ptr<ProgramMetrics>> Start(std::string_view listen,
                                                               std::string_view program);

  // For client::ConnectOptions::metrics: what several clients count is added up.
  Metrics& metrics() { return metrics_; }
  // "" when nothing is served.
  std::string address() const { return exposer_ == nullptr ? "" : exposer_->address(); }

 private:
  explicit ProgramMetrics(std::string_view program);

  Metrics metrics_;
  ProcessMetrics process_{metrics_};
  std::unique_ptr<MetricsExposer> exposer_;  // Gone before what it reads.
};

}  // namespace embla
