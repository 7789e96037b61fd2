#include "core/metrics/exposer.h"

#include <civetweb.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla {
namespace {

// Slow scrapers: so many are served at once, and each is given up after so long.
constexpr char kThreads[] = "8";
constexpr char kRequestTimeoutMs[] = "2000";

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

int Answer(mg_connection* connection, const char* status, const std::string& text) {
  mg_printf(connection,
            "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: %zu\r\nCache-Control: no-cache\r\n\r\n",
            status, text.size());
  mg_write(connection, text.data(), text.size());
  return 200;  // Handled.
}

// Its own messages go nowhere: they are about clients.
int LogNothing(const mg_connection*, const char*) { return 1; }

}  // namespace

MetricsExposer::MetricsExposer(const Metrics& metrics, Ready ready, Refresh refresh)
    : metrics_(metrics), ready_(std::move(ready)), refresh_(std::move(refresh)) {}

// The server looks at its stop flag when somebody connects, or every two seconds.
MetricsExposer::~MetricsExposer() {
  if (server_ == nullptr) return;
  std::promise<void> stopped;
  std::future<void> is_stopped = stopped.get_future();
  std::thread stopping([this, &stopped] {
    mg_stop(server_);
    stopped.set_value();
  });
  const std::size_t colon = address_.rfind(':');
  const std::string host = address_.substr(0, std::min(colon, address_.size()));
  const int port = std::atoi(address_.c_str() + std::min(colon + 1, address_.size()));
  char error[128];
  do {
    mg_connection* const visit = mg_connect_client(host.c_str(), port, 0, error, sizeof(error));
    if (visit != nullptr) mg_close_connection(visit);
  } while (is_stopped.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready);
  stopping.join();
}

absl::StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::Start(std::string_view listen,
                                                                      const Metrics& metrics,
                                                                      Ready ready,
                                                                      Refresh refresh) {
  const absl::StatusOr<std::string> host = HostOf(listen);
  if (!host.ok()) return host.status();
  std::unique_ptr<MetricsExposer> exposer(
      new MetricsExposer(metrics, std::move(ready), std::move(refresh)));
  const std::string address = absl::StrCat(*host, ToAbsl(listen.substr(listen.rfind(':'))));
  const char* options[] = {"listening_ports",    address.c_str(),   "num_threads", kThreads,
                           "request_timeout_ms", kRequestTimeoutMs, nullptr};
  mg_callbacks callbacks = {};
  callbacks.log_message = &LogNothing;
  exposer->server_ = mg_start(&callbacks, exposer.get(), options);
  mg_server_port port = {};
  if (exposer->server_ == nullptr || mg_get_server_ports(exposer->server_, 1, &port) != 1) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", ToAbsl(listen), "; is the port in use?"));
  }
  exposer->address_ = absl::StrCat(*host, ":", port.port);
  mg_set_request_handler(exposer->server_, "/metrics$", &OnMetrics, exposer.get());
  mg_set_request_handler(exposer->server_, "/healthz$", &OnHealth, exposer.get());
  mg_set_request_handler(exposer->server_, "/readyz$", &OnReady, exposer.get());
  return exposer;
}

int MetricsExposer::OnMetrics(mg_connection* connection, void* self) {
  const MetricsExposer& exposer = *static_cast<MetricsExposer*>(self);
  if (exposer.refresh_ != nullptr) exposer.refresh_();
  return Answer(connection, "200 OK", exposer.metrics_.Text());
}

int MetricsExposer::OnHealth(mg_connection* connection, void*) {
  return Answer(connection, "200 OK", "ok\n");
}

int MetricsExposer::OnReady(mg_connection* connection, void* self) {
  const Ready& ready = static_cast<MetricsExposer*>(self)->ready_;
  const absl::Status status = ready == nullptr ? absl::OkStatus() : ready();
  if (status.ok()) return Answer(connection, "200 OK", "ready\n");
  return Answer(connection, "503 Service Unavailable",
                absl::StrCat("not ready: ", status.message(), "\n"));
}

}  // namespace embla
