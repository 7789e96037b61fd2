#include "core/metrics/instruments.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MethodMetrics, ServerCountsByCodeAndBytes) {
  Metrics metrics;
  MethodMetrics lookup(&metrics, MethodMetrics::Side::kServer, "Lookup");
  lookup.Record(absl::StatusCode::kOk, absl::Milliseconds(1), 100, 2000);
  lookup.Record(absl::StatusCode::kOk, absl::Milliseconds(1), 100, 2000);
  lookup.Record(absl::StatusCode::kNotFound, absl::Milliseconds(1), 50, 0);

  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("embla_requests_total{code=\"OK\",method=\"Lookup\"} 2"));
  EXPECT_THAT(text, HasSubstr("embla_requests_total{code=\"NOT_FOUND\",method=\"Lookup\"} 1"));
  EXPECT_THAT(text, HasSubstr("embla_request_bytes_total{method=\"Lookup\"} 250"));
  EXPECT_THAT(text, HasSubstr("embla_reply_bytes_total{method=\"Lookup\"} 4000"));
  EXPECT_THAT(text, HasSubstr("embla_request_latency_seconds_count{method=\"Lookup\"} 3"));
}

TEST(MethodMetrics, CodesNeverSeenHaveNoSeries) {
  Metrics metrics;
  MethodMetrics lookup(&metrics, MethodMetrics::Side::kServer, "Lookup");
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("embla_requests_total{")));
}

TEST(MethodMetrics, ClientHasItsOwnNames) {
  Metrics metrics;
  MethodMetrics update(&metrics, MethodMetrics::Side::kClient, "Update");
  update.Record(absl::StatusCode::kUnavailable, absl::Milliseconds(1), 10, 0);
  update.RecordRetry();

  const std::string text = metrics.Text();
  EXPECT_THAT(text,
              HasSubstr("embla_client_requests_total{code=\"UNAVAILABLE\",method=\"Update\"} 1"));
  EXPECT_THAT(text, HasSubstr("embla_client_retries_total{method=\"Update\"} 1"));
  EXPECT_THAT(text, HasSubstr("embla_client_sent_bytes_total{method=\"Update\"} 10"));
  EXPECT_THAT(text, Not(HasSubstr("embla_requests_total")));
}

TEST(MethodMetrics, CodeOutsideTheListCountsAsUnknown) {
  Metrics metrics;
  MethodMetrics lookup(&metrics, MethodMetrics::Side::kServer, "Lookup");
  lookup.Record(static_cast<absl::StatusCode>(99), absl::ZeroDuration(), 0, 0);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("embla_requests_total{code=\"UNKNOWN\",method=\"Lookup\"} 1"));
}

TEST(Instruments, CountNothingWithoutMetrics) {
  MethodMetrics method(nullptr, MethodMetrics::Side::kServer, "Lookup");
  method.Record(absl::StatusCode::kOk, absl::ZeroDuration(), 1, 1);
  TableMetrics(nullptr, "user").rows_looked_up.Add();
  TableDeviceMetrics(nullptr, "user", 0).rows.Set(1);
  DeviceMetrics(nullptr, 0).queue_depth.Add(1);
  ShardMetrics(nullptr).plan_version.Set(1);
  CoordinatorMetrics(nullptr).tables.Set(1);
  NodeMetrics(nullptr, "n0").live.Set(1);
  ClientMetrics(nullptr).plan_refreshes.Add();
}

TEST(Instruments, LabelTheirSeries) {
  Metrics metrics;
  const TableMetrics table(&metrics, "user");
  table.rows_updated.Add(2);
  TableDeviceMetrics(&metrics, "user", 1).bytes.Set(64);
  DeviceMetrics(&metrics, 1).busy_seconds.Add(0.5);
  NodeMetrics(&metrics, "n0").live.Set(1);
  SetBuildInfo(metrics, "embla-shard");

  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("embla_rows_updated_total{table=\"user\"} 2"));
  EXPECT_THAT(text, HasSubstr("embla_table_bytes{device=\"1\",table=\"user\"} 64"));
  EXPECT_THAT(text, HasSubstr("embla_device_busy_seconds_total{device=\"1\"} 0.5"));
  EXPECT_THAT(text, HasSubstr("embla_node_live{node=\"n0\"} 1"));
  EXPECT_THAT(text, HasSubstr("embla_build_info{program=\"embla-shard\",version=\""));
}

}  // namespace
}  // namespace embla
