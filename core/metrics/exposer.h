// GET /metrics, /healthz and /readyz over HTTP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/metrics/metrics.h"

struct mg_connection;
struct mg_context;

namespace embla {

class MetricsExposer {
 public:
  // OK: the program can do what it is there for; else what is missing. Asked at every GET /readyz,
  // on any thread.
  using Ready = std::function<absl::Status()>;
  // Brings what is not counted as it happens up to date. Called before every scrape, likewise.
  using Refresh = std::function<void()>;

  // Serves `metrics`, which outlives this object, on `listen`, "host:port"; port 0 takes a free
  // one. /healthz answers 200 as long as the process does anything; /readyz 200 or, with the
  // reason, 503. The texts have no secrets but also no authentication: keep them on loopback or on
  // a network of your own. A client that is slow is cut off. Errors: InvalidArgument (not
  // host:port), Unavailable (cannot listen there).
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(std::string_view listen,
                                                               const Metrics& metrics,
                                                               Ready ready = nullptr,
                                                               Refresh refresh = nullptr);
  ~MetricsExposer();

  // "host:port" with the port in use.
  const std::string& address() const { return address_; }

 private:
  MetricsExposer(const Metrics& metrics, Ready ready, Refresh refresh);

  static int OnMetrics(mg_connection* connection, void* self);
  static int OnHealth(mg_connection* connection, void* self);
  static int OnReady(mg_connection* connection, void* self);

  const Metrics& metrics_;  // Not owned; outlives this object.
  const Ready ready_;       // Null: always.
  const Refresh refresh_;   // Null: nothing to do.
  mg_context* server_ = nullptr;
  std::string address_;
};

}  // namespace embla
