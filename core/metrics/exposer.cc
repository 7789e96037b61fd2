#include "core/metrics/exposer.h"

#include <utility>

#include <httplib.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/text.h"

namespace embla {
namespace {

// Slow scrapers: so many are served at once, and each is given up after so long.
constexpr std::size_t kThreads = 8;
constexpr std::time_t kTimeoutSeconds = 2;

struct HostAndPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostAndPort> Parse(std::string_view listen) {
  const std::size_t colon = listen.rfind(':');
  std::uint32_t port = 0;
  if (colon == std::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(ToAbsl(listen.substr(colon + 1)), &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address \"", ToAbsl(listen), "\" is not host:port"));
  }
  const std::string_view host = listen.substr(0, colon);
  // localhost may have two addresses: this is the one that others write out.
  return HostAndPort{std::string(host == "localhost" ? "127.0.0.1" : host), static_cast<int>(port)};
}

std::unique_ptr<httplib::Server> MakeServer(const Tls* tls) {
  if (tls == nullptr) return std::make_unique<httplib::Server>();
  return std::make_unique<httplib::SSLServer>([tls](SSL_CTX& context) {
    tls->SetUpServer(context, nullptr);
    return true;
  });
}

void Answer(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_header("Cache-Control", "no-cache");
  response.set_content(text, "text/plain; version=0.0.4; charset=utf-8");
}

void Answer(httplib::Response& response, const WebAnswer& answer) {
  response.status = answer.status;
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  response.set_content(answer.body, answer.type);
}

// The caller over TLS, by certificate or token.
absl::StatusOr<Identity> CallerOf(const httplib::Request& request, const Tls& tls) {
  if (const auto shown = PeerOf(*request.ssl); shown.has_value()) return *shown;
  return tls.JudgeToken(request.get_header_value("Authorization"));
}

WebRequest Read(const httplib::Request& request, const Tls* tls) {
  WebRequest read{
      .is_over_tls = request.ssl != nullptr,
      .is_loopback = request.local_addr.starts_with("127.") || request.local_addr == "::1",
      .host = request.get_header_value("Host")};
  if (tls != nullptr) {
    absl::StatusOr<Identity> caller = CallerOf(request, *tls);
    if (caller.ok()) {
      read.caller = *std::move(caller);
    } else {
      read.refusal = Message(caller.status());
    }
  }
  for (const auto& [name, value] : request.params) read.parameters.emplace(name, value);
  return read;
}

// The pattern of a path, for httplib, which takes regular expressions.
std::string PatternOf(const std::string& path) { return absl::StrReplaceAll(path, {{".", "\\."}}); }

}  // namespace

MetricsExposer::MetricsExposer(const Metrics& metrics, Options options)
    : metrics_(metrics), options_(std::move(options)), server_(MakeServer(options_.tls.get())) {
  server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server_->set_read_timeout(kTimeoutSeconds);
  server_->set_write_timeout(kTimeoutSeconds);
  server_->set_keep_alive_timeout(kTimeoutSeconds);
  server_->set_keep_alive_max_count(1);
  server_->set_payload_max_length(0);
  // A port that another process has is refused, not shared.
  server_->set_socket_options([](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
  server_->Get("/metrics", [this](const httplib::Request& request, httplib::Response& response) {
    OnMetrics(request, response);
  });
  server_->Get("/(?:healthz|livez)", [](const httplib::Request&, httplib::Response& response) {
    Answer(response, 200, "ok\n");
  });
  server_->Get("/readyz",
               [this](const httplib::Request&, httplib::Response& response) { OnReady(response); });
  for (const WebRoute& route : options_.routes) {
    server_->Get(PatternOf(route.path),
                 [this, &route](const httplib::Request& request, httplib::Response& response) {
                   Answer(response, route.answer(Read(request, options_.tls.get())));
                 });
  }
}

MetricsExposer::~MetricsExposer() {
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
}

absl::StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::Start(std::string_view listen,
                                                                      const Metrics& metrics,
                                                                      Options options) {
  const absl::StatusOr<HostAndPort> wanted = Parse(listen);
  if (!wanted.ok()) return wanted.status();
  std::unique_ptr<MetricsExposer> exposer(new MetricsExposer(metrics, std::move(options)));
  const absl::Status listening = exposer->Listen(wanted->host, wanted->port);
  if (!listening.ok()) return listening;
  return exposer;
}

absl::Status MetricsExposer::Listen(const std::string& host, int port) {
  int bound = port;
  if (port == 0) {
    bound = server_->bind_to_any_port(host);
  } else if (!server_->bind_to_port(host, port)) {
    bound = -1;
  }
  if (bound <= 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", host, ":", port, "; is the port in use?"));
  }
  address_ = absl::StrCat(host, ":", bound);
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  while (!server_->is_running()) std::this_thread::yield();  // Before that, stop() is nothing.
  return absl::OkStatus();
}

void MetricsExposer::OnMetrics(const httplib::Request& request, httplib::Response& response) const {
  if (options_.tls != nullptr) {
    const absl::Status caller = CallerOf(request, *options_.tls).status();
    if (!caller.ok()) {
      return Answer(response, 403,
                    absl::StrCat("metrics ask for a certificate or a token of the cluster, of any "
                                 "role: ",
                                 caller.message(), "\n"));
    }
  }
  if (options_.refresh != nullptr) options_.refresh();
  Answer(response, 200, metrics_.Text());
}

void MetricsExposer::OnReady(httplib::Response& response) const {
  const absl::Status status = options_.ready == nullptr ? absl::OkStatus() : options_.ready();
  const std::string role = options_.role == nullptr ? "" : options_.role();
  if (status.ok()) return Answer(response, 200, role.empty() ? "ready\n" : "ready: " + role + "\n");
  Answer(response, 503, absl::StrCat("not ready: ", status.message(), "\n"));
}

}  // namespace embla
