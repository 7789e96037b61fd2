#include "core/metrics/metrics.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, TextHasNameHelpTypeLabelsAndValue) {
  Metrics metrics;
  metrics.MakeCounter(MetricNamed("embla_rows_looked_up_total"), {"user"}).Add(3);

  EXPECT_THAT(metrics.Text(),
              HasSubstr("# HELP embla_rows_looked_up_total Ids of lookups served."));
  EXPECT_THAT(metrics.Text(), HasSubstr("# TYPE embla_rows_looked_up_total counter"));
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_rows_looked_up_total{table=\"user\"} 3"));
}

TEST(Metrics, SameLabelsGiveTheSameSeries) {
  Metrics metrics;
  metrics.MakeGauge(MetricNamed("embla_table_rows"), {"user", "0"}).Set(5);
  metrics.MakeGauge(MetricNamed("embla_table_rows"), {"user", "1"}).Set(7);

  EXPECT_EQ(metrics.MakeGauge(MetricNamed("embla_table_rows"), {"user", "0"}).value(), 5);
  EXPECT_EQ(metrics.MakeGauge(MetricNamed("embla_table_rows"), {"user", "1"}).value(), 7);
}

TEST(Metrics, LabelValuesAreEscaped) {
  Metrics metrics;
  metrics.MakeGauge(MetricNamed("embla_node_live"), {"a\"b\\c\nd"}).Set(1);
  EXPECT_THAT(metrics.Text(), HasSubstr(R"(embla_node_live{node="a\"b\\c\nd"} 1)"));
}

TEST(Metrics, HistogramCountsIntoBuckets) {
  Metrics metrics;
  const Histogram latency =
      metrics.MakeHistogram(MetricNamed("embla_request_latency_seconds"), {"Lookup"});
  latency.Observe(absl::Microseconds(150));
  latency.Observe(absl::Seconds(60));

  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("embla_request_latency_seconds_count{method=\"Lookup\"} 2"));
  EXPECT_THAT(text, HasSubstr("{method=\"Lookup\",le=\"0.0001\"} 0"));
  EXPECT_THAT(text, HasSubstr("{method=\"Lookup\",le=\"0.0002\"} 1"));
  EXPECT_THAT(text, HasSubstr("{method=\"Lookup\",le=\"12.8\"} 1"));
  EXPECT_THAT(text, HasSubstr("{method=\"Lookup\",le=\"+Inf\"} 2"));
}

TEST(Metrics, DefaultMadeHandlesCountNothing) {
  const Counter counter;
  const Gauge gauge;
  counter.Add();
  gauge.Set(4);
  Histogram().Observe(absl::Seconds(1));

  EXPECT_EQ(counter.value(), 0);
  EXPECT_EQ(gauge.value(), 0);
  EXPECT_FALSE(counter.counts());
}

TEST(Metrics, ConcurrentCountsAreNotLost) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      const Counter counter = metrics.MakeCounter(MetricNamed("embla_updates_replayed_total"));
      for (int i = 0; i < 1000; ++i) counter.Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metrics.MakeCounter(MetricNamed("embla_updates_replayed_total")).value(), 4000);
}

TEST(MetricsDeathTest, WrongKindOrLabelsIsOurBug) {
  Metrics metrics;
  EXPECT_DEATH(metrics.MakeGauge(MetricNamed("embla_requests_total"), {"Lookup", "OK"}),
               "info.kind == kind");
  EXPECT_DEATH(metrics.MakeCounter(MetricNamed("embla_requests_total"), {"Lookup"}), "label_count");
}

}  // namespace
}  // namespace embla
