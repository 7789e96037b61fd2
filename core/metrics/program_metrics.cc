#include "core/metrics/program_metrics.h"

#include <utility>

#include "core/metrics/instruments.h"

namespace embla {

ProgramMetrics::ProgramMetrics(std::string_view program) { SetBuildInfo(metrics_, program); }

absl::StatusOr<std::unique_ptr<ProgramMetrics>> ProgramMetrics::Start(std::string_view listen,
                                                                      std::string_view program) {
  std::unique_ptr<ProgramMetrics> started(new ProgramMetrics(program));
  if (listen.empty()) return started;
  auto exposer = MetricsExposer::Start(
      listen, started->metrics_, {.refresh = [self = started.get()] { self->process_.Refresh(); }});
  if (!exposer.ok()) return exposer.status();
  started->exposer_ = *std::move(exposer);
  return started;
}

}  // namespace embla
