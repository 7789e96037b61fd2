// How both servers take up their certificates, and say when they have none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/metrics/exposer.h"
#include "core/metrics/metrics.h"
#include "core/metrics/process_metrics.h"
#include "core/tls/tls.h"

namespace embla {

// Loads the files (Tls::Load); the certificate's role has to be `role`. InvalidArgument otherwise.
absl::StatusOr<TlsPtr> LoadServerTls(const TlsFiles& files, Role role);

// Sets embla_insecure, and warns, if a listener of plaintext is open to other machines.
absl::Status TellExposure(const std::vector<std::string>& listeners, bool is_tls, Metrics& metrics);

struct ExposerOptions {
  std::string listen;  // Empty: nothing is served.
  bool insecure = false;
  MetricsExposer::Ready ready = nullptr;
  MetricsExposer::Role role = nullptr;
  std::vector<WebRoute> routes = {};
};
// Serves `metrics`, those of `process` and of `tls`, which may be null, among them; over TLS where
// other machines reach the port. `metrics` and `process` are not owned and outlive the exposer,
// which is null where nothing is to be served. Errors: those of CheckListenAddress and
// MetricsExposer::Start.
absl::StatusOr<std::unique_ptr<MetricsExposer>> Expose(ExposerOptions options, const TlsPtr& tls,
                                                       Metrics& metrics, ProcessMetrics& process);

}  // namespace embla
