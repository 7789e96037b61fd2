#include "core/metrics/exposer.h"

#include <httplib.h>

#include <chrono>
#include <string>

#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/http_get.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/program_metrics.h"
#include "core/tls/certificate.h"
#include "core/tls/testing/test_authority.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::HttpGet;
using ::embla::testing::IsOk;
using ::embla::testing::TestAuthority;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MetricsExposer, ServesTheTextOnAFreePort) {
  Metrics metrics;
  metrics.MakeGauge(MetricNamed("embla_plan_version")).Set(42);
  const auto exposer = MetricsExposer::Start("127.0.0.1:0", metrics);
  ASSERT_THAT(exposer, IsOk());

  EXPECT_THAT((*exposer)->address(), StartsWith("127.0.0.1:"));
  const std::string answer = HttpGet((*exposer)->address(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("embla_plan_version 42"));
}

TEST(MetricsExposer, SaysWhetherTheProgramIsReadyAndWhatIsMissing) {
  Metrics metrics;
  absl::Status ready = absl::UnavailableError("no coordinator yet");
  const auto exposer =
      MetricsExposer::Start("127.0.0.1:0", metrics, {.ready = [&ready] { return ready; }});
  ASSERT_THAT(exposer, IsOk());
  const std::string missing = HttpGet((*exposer)->address(), "/readyz");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(missing, HasSubstr("no coordinator yet"));
  EXPECT_THAT(HttpGet((*exposer)->address(), "/healthz"), StartsWith("HTTP/1.1 200"));
  ready = absl::OkStatus();
  EXPECT_THAT(HttpGet((*exposer)->address(), "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(HttpGet((*exposer)->address(), "/other"), HasSubstr("404 Not Found"));
}

TEST(MetricsExposer, AsksTheRouteOfAPathAndOfNoOther) {
  Metrics metrics;
  std::vector<WebRoute> routes;
  routes.push_back({.path = "/page/a.js", .answer = [](const WebRequest& request) {
                      return WebAnswer{.status = 203,
                                       .type = "text/javascript",
                                       .body = request.Parameter("name") + request.host +
                                               (request.is_loopback ? "near" : "far") +
                                               (request.caller.has_value() ? "known" : ""),
                                       .headers = {{"X-Kind", "page"}}};
                    }});
  const auto exposer = MetricsExposer::Start("127.0.0.1:0", metrics, {.routes = routes});
  ASSERT_THAT(exposer, IsOk());
  const std::string answer = HttpGet((*exposer)->address(), "/page/a.js?name=%3Cb%3E&b=2");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 203"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/javascript"));
  EXPECT_THAT(answer, HasSubstr("X-Kind: page"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n<b>near"));
  for (const char* path : {"/page/a-js", "/page/a.js/", "/page/", "/page/a.jsx"}) {
    EXPECT_THAT(HttpGet((*exposer)->address(), path), StartsWith("HTTP/1.1 404")) << path;
  }
  EXPECT_THAT(HttpGet((*exposer)->address(), "/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST(MetricsExposer, StopsListeningWhenDestroyed) {
  Metrics metrics;
  std::string address;
  {
    const auto exposer = MetricsExposer::Start("127.0.0.1:0", metrics);
    ASSERT_THAT(exposer, IsOk());
    address = (*exposer)->address();
  }
  EXPECT_EQ(HttpGet(address, "/metrics"), "");
}

TEST(ProgramMetrics, ServesWhatItsClientsAndTheProcessCount) {
  const auto program = ProgramMetrics::Start("127.0.0.1:0", "embla-train");
  ASSERT_THAT(program, IsOk());
  (*program)->metrics().MakeCounter(MetricNamed("embla_client_retries_total"), {"Lookup"}).Add(3);
  const std::string answer = HttpGet((*program)->address(), "/metrics");
  EXPECT_THAT(answer, HasSubstr("embla_client_retries_total{method=\"Lookup\"} 3"));
  EXPECT_THAT(answer, HasSubstr("embla_build_info{program=\"embla-train\""));
  EXPECT_THAT(answer, HasSubstr("\nprocess_open_fds "));
  const auto silent = ProgramMetrics::Start("", "embla-train");
  ASSERT_THAT(silent, IsOk());
  EXPECT_EQ((*silent)->address(), "");
}

// Every program waits for this when it ends, also when it cannot start.
TEST(MetricsExposer, StopsAtOnce) {
  Metrics metrics;
  for (const char* listen : {"127.0.0.1:0", "0.0.0.0:0"}) {
    auto exposer = MetricsExposer::Start(listen, metrics);
    ASSERT_THAT(exposer, IsOk());
    const auto begun = std::chrono::steady_clock::now();
    exposer->reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(900)) << listen;
  }
}

TEST(MetricsExposer, PortInUseIsUnavailableAndNamesTheAddress) {
  Metrics metrics;
  const auto first = MetricsExposer::Start("127.0.0.1:0", metrics);
  ASSERT_THAT(first, IsOk());

  const auto second = MetricsExposer::Start((*first)->address(), metrics);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr((*first)->address()));
}

TEST(MetricsExposer, LocalhostIsLoopback) {
  Metrics metrics;
  const auto exposer = MetricsExposer::Start("localhost:0", metrics);
  ASSERT_THAT(exposer, IsOk());
  EXPECT_THAT((*exposer)->address(), StartsWith("127.0.0.1:"));
}

TEST(MetricsExposer, AddressThatIsNotHostAndPortIsRefused) {
  Metrics metrics;
  for (const char* listen : {"", "9090", ":9090", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"}) {
    EXPECT_EQ(MetricsExposer::Start(listen, metrics).status().code(),
              absl::StatusCode::kInvalidArgument)
        << listen;
  }
}

// The status of GET `path` over TLS; 0: the server or the client ended the handshake. Without
// `files` no certificate is shown.
int StatusOverTls(const std::string& address, const std::string& path, const TlsFiles& files) {
  const int port = std::atoi(address.c_str() + address.rfind(':') + 1);
  httplib::SSLClient client("127.0.0.1", port, files.certificate, files.certificate);
  client.enable_server_certificate_verification(false);  // It names no hosts.
  const httplib::Result result = client.Get(path);
  return result ? result->status : 0;
}

TEST(MetricsExposerOverTls, ShowsMetricsToWhoHasACertificateAndReadinessToAll) {
  const TestAuthority authority;
  authority.Revoke({});
  Metrics metrics;
  TlsFiles own = authority.Issue(Role::kNode, "n0");
  own.revoked = authority.revoked();
  const auto tls = Tls::Load(own);
  ASSERT_THAT(tls, IsOk());
  const auto exposer = MetricsExposer::Start("127.0.0.1:0", metrics, {.tls = *tls});
  ASSERT_THAT(exposer, IsOk());
  const std::string address = (*exposer)->address();

  const TlsFiles reader = authority.Issue(Role::kReader, "prometheus");
  EXPECT_EQ(StatusOverTls(address, "/metrics", reader), 200);
  EXPECT_EQ(StatusOverTls(address, "/metrics", {}), 403);
  EXPECT_EQ(StatusOverTls(address, "/readyz", {}), 200);
  EXPECT_EQ(StatusOverTls(address, "/healthz", {}), 200);
  EXPECT_EQ(StatusOverTls(address, "/livez", {}), 200);
  EXPECT_EQ(HttpGet(address, "/metrics"), "") << "in plaintext";

  const TestAuthority foreign;
  const TestAuthority another_cluster("another");
  for (const TlsFiles& files : {foreign.Issue(Role::kReader, "prometheus"),
                                another_cluster.Issue(Role::kReader, "prometheus"),
                                authority.Issue(Role::kReader, "late", -absl::Hours(1))}) {
    EXPECT_EQ(StatusOverTls(address, "/metrics", files), 0) << files.certificate;
    EXPECT_EQ(StatusOverTls(address, "/readyz", files), 0) << files.certificate;
  }
  const TlsFiles revoked = authority.Issue(Role::kReader, "revoked");
  EXPECT_EQ(StatusOverTls(address, "/metrics", revoked), 200);
  authority.Revoke({ReadCertificate(*ReadFile(revoked.certificate))->serial});
  EXPECT_TRUE(testing::AwaitFor([&] { return StatusOverTls(address, "/metrics", revoked) == 0; },
                                absl::Seconds(20), "the list is read"));
  EXPECT_EQ(StatusOverTls(address, "/metrics", reader), 200);
}

TEST(MetricsExposerOverTls, TakesATokenForACertificate) {
  const TestAuthority authority;
  const Identity prometheus{.cluster = "test", .role = Role::kReader, .name = "prometheus"};
  const std::string token = *NewToken(prometheus);
  const std::string late = *NewToken(prometheus);
  TlsFiles own = authority.Issue(Role::kNode, "n0");
  own.tokens = authority.directory() + "/tokens";
  ASSERT_THAT(
      AtomicWriteFile(own.tokens, LineOfToken(prometheus, token, absl::InfiniteFuture()) + "\n" +
                                      LineOfToken(prometheus, late, absl::UnixEpoch()) + "\n"),
      IsOk());
  const auto tls = Tls::Load(own);
  ASSERT_THAT(tls, IsOk());
  Metrics metrics;
  const std::vector<WebRoute> routes = {{.path = "/page", .answer = [](const WebRequest& request) {
                                           return WebAnswer{.body = request.caller.has_value()
                                                                        ? UriOf(*request.caller)
                                                                        : request.refusal};
                                         }}};
  const auto exposer =
      MetricsExposer::Start("127.0.0.1:0", metrics, {.tls = *tls, .routes = routes});
  ASSERT_THAT(exposer, IsOk());
  const auto get = [&](const std::string& path, const std::string& authorization) {
    const std::string address = (*exposer)->address();
    httplib::SSLClient client("127.0.0.1", std::atoi(address.c_str() + address.rfind(':') + 1));
    client.enable_server_certificate_verification(false);
    const httplib::Result result = client.Get(path, {{"Authorization", authorization}});
    return result ? std::to_string(result->status) + " " + result->body : "";
  };
  EXPECT_THAT(get("/metrics", "Bearer " + token), ::testing::StartsWith("200"));
  EXPECT_THAT(get("/metrics", "Bearer " + late),
              ::testing::AllOf(::testing::StartsWith("403"), HasSubstr("ended at 1970-01-01")));
  EXPECT_THAT(
      get("/metrics", "Bearer " + *NewToken(prometheus)),
      ::testing::AllOf(::testing::StartsWith("403"), HasSubstr("not one that is accepted")));
  EXPECT_THAT(get("/metrics", "Basic " + token),
              ::testing::AllOf(::testing::StartsWith("403"), HasSubstr("nor a token")));
  EXPECT_EQ(get("/page", "Bearer " + token), "200 spiffe://test/reader/prometheus");
  EXPECT_THAT(get("/page", "Bearer " + late), HasSubstr("ended at"));
}

TEST(MetricsExposerOverTls, TellsARouteWhoAsks) {
  const TestAuthority authority;
  Metrics metrics;
  const auto tls = Tls::Load(authority.Issue(Role::kCoordinator, "c0"));
  ASSERT_THAT(tls, IsOk());
  std::vector<WebRoute> routes;
  routes.push_back({.path = "/page", .answer = [](const WebRequest& request) {
                      EXPECT_TRUE(request.is_over_tls);
                      if (!request.caller.has_value()) return WebAnswer{.status = 401};
                      EXPECT_EQ(request.caller->name, "ann");
                      const bool is_operator = request.caller->role == Role::kOperator;
                      return WebAnswer{.status = is_operator ? 200 : 403};
                    }});
  const auto exposer =
      MetricsExposer::Start("127.0.0.1:0", metrics, {.tls = *tls, .routes = routes});
  ASSERT_THAT(exposer, IsOk());
  const std::string address = (*exposer)->address();
  EXPECT_EQ(StatusOverTls(address, "/page", authority.Issue(Role::kOperator, "ann")), 200);
  EXPECT_EQ(StatusOverTls(address, "/page", authority.Issue(Role::kReader, "ann")), 403);
  EXPECT_EQ(StatusOverTls(address, "/page", {}), 401);
}

TEST(MetricsExposerOverTls, ShowsTheCertificateThatIsInTheFileNow) {
  const TestAuthority authority;
  Metrics metrics;
  const TlsFiles own = authority.Issue(Role::kNode, "n0");
  const auto tls = Tls::Load(own);
  ASSERT_THAT(tls, IsOk());
  const auto exposer = MetricsExposer::Start("127.0.0.1:0", metrics, {.tls = *tls});
  ASSERT_THAT(exposer, IsOk());
  ASSERT_THAT(AtomicWriteFile(own.certificate, "half a file"), IsOk());
  EXPECT_EQ(StatusOverTls((*exposer)->address(), "/readyz", {}), 0);
  authority.Issue(Role::kNode, "n0");
  EXPECT_EQ(StatusOverTls((*exposer)->address(), "/readyz", {}), 200);
}

}  // namespace
}  // namespace embla
