// GET /metrics, /livez, /readyz and what else a program serves, over HTTP or HTTPS.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/metrics/metrics.h"
#include "core/metrics/web_route.h"
#include "core/tls/tls.h"

namespace httplib {
class Server;
struct Request;
struct Response;
}  // namespace httplib

namespace embla {

class MetricsExposer {
 public:
  // OK: the program can do what it is there for; else what is missing. Asked at every GET /readyz,
  // on any thread.
  using Ready = std::function<absl::Status()>;
  // Brings what is not counted as it happens up to date. Called before every scrape, likewise.
  using Refresh = std::function<void()>;
  // Says more of a program that is ready, for GET /readyz; likewise.
  using Role = std::function<std::string()>;

  struct Options {
    Ready ready = nullptr;              // Null: always.
    Refresh refresh = nullptr;          // Null: nothing to do.
    Role role = nullptr;                // Null: nothing to say.
    TlsPtr tls = nullptr;               // Null: plaintext.
    std::vector<WebRoute> routes = {};  // They decide themselves whom they answer.
  };

  // Serves `metrics`, which outlives this object, on `listen`, "host:port"; port 0 takes a free
  // one. /livez, and /healthz, answers 200 as long as the process does anything; /readyz 200 or,
  // with the reason, 503. A client that is slow is cut off. Over TLS /metrics asks for a
  // certificate or a token of the cluster, of any role, and answers 403 without one; the other two,
  // which name no secrets, ask for none, as probes have none. In plaintext nobody is asked: keep it
  // on loopback. Errors: InvalidArgument (not host:port), Unavailable (cannot listen there).
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(std::string_view listen,
                                                               const Metrics& metrics,
                                                               Options options);
  static absl::StatusOr<std::unique_ptr<MetricsExposer>> Start(std::string_view listen,
                                                               const Metrics& metrics) {
    return Start(listen, metrics, Options());
  }
  ~MetricsExposer();

  // "host:port" with the port in use.
  const std::string& address() const { return address_; }

 private:
  MetricsExposer(const Metrics& metrics, Options options);

  absl::Status Listen(const std::string& host, int port);
  void OnMetrics(const httplib::Request& request, httplib::Response& response) const;
  void OnReady(httplib::Response& response) const;

  const Metrics& metrics_;  // Not owned; outlives this object.
  const Options options_;
  const std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
  std::string address_;
};

}  // namespace embla
