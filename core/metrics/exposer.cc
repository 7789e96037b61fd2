#include "core/metrics/exposer.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "prometheus/exposer.h"
#include "prometheus/registry.h"

namespace embla {
namespace {

constexpr std::size_t kScrapeThreads = 2;

// The host of "host:port", or an error.
absl::StatusOr<std::string> HostOf(std::string_view listen) {
  const std::size_t colon = listen.rfind(':');
  std::uint32_t port = 0;
  if (colon == std::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(ToAbsl(listen.substr(colon + 1)), &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address \"", ToAbsl(listen), "\" is not host:port"));
  }
  // The HTTP server takes numeric addresses only.
  const std::string_view host = listen.substr(0, colon);
  return std::string(host == "localhost" ? "127.0.0.1" : host);
}

}  // namespace

MetricsExposer::MetricsExposer(std::unique_ptr<prometheus::Exposer> exposer, std::string address)
    : exposer_(std::move(exposer)), address_(std::move(address)) {}
MetricsExposer::~MetricsExposer() = default;

absl::StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::Start(std::string_view listen,
                                                                      const Metrics& metrics) {
  absl::StatusOr<std::string> host = HostOf(listen);
  if (!host.ok()) return host.status();
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(
        absl::StrCat(*host, ToAbsl(listen.substr(listen.rfind(':')))), kScrapeThreads);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (ports.empty()) {
      return absl::UnavailableError(absl::StrCat("no port open on ", ToAbsl(listen)));
    }
    exposer->RegisterCollectable(metrics.registry());
    std::string address = absl::StrCat(*host, ":", ports.front());
    return std::unique_ptr<MetricsExposer>(
        new MetricsExposer(std::move(exposer), std::move(address)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", ToAbsl(listen), ": ",
                                               error.what(), "; is the port in use?"));
  }
}

}  // namespace embla
