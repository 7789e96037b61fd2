#include "core/metrics/exposer.h"

#include <chrono>
#include <string>

#include "core/base/testing/http_get.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/program_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::HttpGet;
using ::embla::testing::IsOk;
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
  const auto exposer = MetricsExposer::Start("127.0.0.1:0", metrics, [&ready] { return ready; });
  ASSERT_THAT(exposer, IsOk());
  const std::string missing = HttpGet((*exposer)->address(), "/readyz");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(missing, HasSubstr("no coordinator yet"));
  EXPECT_THAT(HttpGet((*exposer)->address(), "/healthz"), StartsWith("HTTP/1.1 200"));
  ready = absl::OkStatus();
  EXPECT_THAT(HttpGet((*exposer)->address(), "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(HttpGet((*exposer)->address(), "/other"), HasSubstr("404 Not Found"));
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

}  // namespace
}  // namespace embla
