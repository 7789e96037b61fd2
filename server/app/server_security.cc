#include "server/app/server_security.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/metrics/names.h"
#include "server/rpc/listen_address.h"

namespace embla {

absl::StatusOr<TlsPtr> LoadServerTls(const TlsFiles& files, Role role) {
  EMBLA_ASSIGN_OR_RETURN(TlsPtr tls, Tls::Load(files));
  if (tls == nullptr) return tls;
  if (tls->identity().role != role) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert ", files.certificate, " is that of ", UriOf(tls->identity()),
                     "; this program needs one of the role ", ToAbsl(NameOf(role))));
  }
  LogInfo("tls", "certificate of ", UriOf(tls->identity()),
          " not_after=", absl::FormatTime(absl::RFC3339_sec, tls->NotAfter(), absl::UTCTimeZone()));
  return tls;
}

absl::Status TellExposure(const std::vector<std::string>& listeners, bool is_tls,
                          Metrics& metrics) {
  bool is_exposed = false;
  for (const std::string& listener : listeners) {
    EMBLA_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(listener));
    is_exposed |= !is_tls && !address.loopback;
  }
  metrics.MakeGauge(MetricNamed("embla_insecure")).Set(is_exposed ? 1.0 : 0.0);
  if (is_exposed) {
    LogWarning("tls", "--insecure: nothing is encrypted, and every machine that reaches these ",
               "ports may do everything. Give --tls-cert and --tls-ca: docs/security.md");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MetricsExposer>> Expose(ExposerOptions options, const TlsPtr& tls,
                                                       Metrics& metrics, ProcessMetrics& process) {
  if (options.listen.empty()) return std::unique_ptr<MetricsExposer>();
  EMBLA_ASSIGN_OR_RETURN(const ListenAddress address,
                         CheckListenAddress(options.listen, options.insecure || tls != nullptr));
  const auto refresh = [tls, &metrics, &process] {
    process.Refresh();
    if (tls == nullptr) return;
    metrics.MakeGauge(MetricNamed("embla_tls_certificate_not_after_seconds"))
        .Set(static_cast<double>(absl::ToUnixSeconds(tls->NotAfter())));
  };
  return MetricsExposer::Start(options.listen, metrics,
                               {.ready = std::move(options.ready),
                                .refresh = refresh,
                                .role = std::move(options.role),
                                .tls = address.loopback ? nullptr : tls,
                                .routes = std::move(options.routes)});
}

}  // namespace embla
