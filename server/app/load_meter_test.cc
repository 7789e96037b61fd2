#include "server/app/load_meter.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/metrics/instruments.h"
#include "core/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

constexpr absl::Duration kWindow = LoadMeter::kWindowMin;

class LoadMeterTest : public ::testing::Test {
 protected:
  Metrics metrics_;
  Histogram lookups_ =
      metrics_.MakeHistogram(MetricNamed("embla_request_latency_seconds"), {"Lookup"});
  Counter busy_ = metrics_.MakeCounter(MetricNamed("embla_device_busy_seconds_total"), {"1"});
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(LoadMeterTest, TellsWhatHappenedBetweenTwoLooks) {
  busy_.Add(100);
  lookups_.Observe(absl::Seconds(10));
  LoadMeter meter(metrics_, 2, now_);
  EXPECT_TRUE(meter.Look(now_ + kWindow / 2).device_busy.empty()) << "too soon";

  busy_.Add(2.5);
  for (int i = 0; i < 98; ++i) lookups_.Observe(absl::Milliseconds(1.2));
  for (int i = 0; i < 2; ++i) lookups_.Observe(absl::Milliseconds(300));
  const NodeLoad& load = meter.Look(now_ + 2 * kWindow);
  ASSERT_EQ(load.device_busy.size(), 2u);
  EXPECT_DOUBLE_EQ(load.device_busy[0], 0);
  EXPECT_DOUBLE_EQ(load.device_busy[1], 0.25);
  ASSERT_EQ(load.calls.size(), 2u);
  EXPECT_EQ(load.calls[0].method, "Lookup");
  EXPECT_DOUBLE_EQ(load.calls[0].per_second, 10);
  // Within the buckets of 1.2 ms, and of 300 ms.
  EXPECT_GT(load.calls[0].p50, absl::Milliseconds(0.8));
  EXPECT_LE(load.calls[0].p50, absl::Milliseconds(1.6));
  EXPECT_GT(load.calls[0].p99, absl::Milliseconds(200));
  EXPECT_LE(load.calls[0].p99, absl::Milliseconds(400));
  EXPECT_DOUBLE_EQ(load.calls[1].per_second, 0);
  EXPECT_EQ(load.calls[1].p99, absl::ZeroDuration());

  EXPECT_DOUBLE_EQ(meter.Look(now_ + 3 * kWindow).calls[0].per_second, 0) << "that was before";
}

TEST_F(LoadMeterTest, TellsTheBusiestTables) {
  std::vector<TableMetrics> tables;
  for (std::size_t t = 0; t < LoadMeter::kTablesMax + 2; ++t) {
    tables.emplace_back(&metrics_, absl::StrCat("t", t)).rows_looked_up.Add(1000);
  }
  LoadMeter meter(metrics_, 1, now_);
  EXPECT_TRUE(meter.Look(now_ + kWindow).tables.empty()) << "that was before";
  const double seconds = absl::ToDoubleSeconds(kWindow);
  // t0 is at rest, and t1 the least busy of those that are not.
  for (std::size_t t = 1; t < tables.size(); ++t) {
    tables[t].rows_looked_up.Add(static_cast<double>(t) * seconds);
    tables[t].rows_updated.Add(2 * seconds);
  }
  const NodeLoad& load = meter.Look(now_ + 2 * kWindow);
  ASSERT_EQ(load.tables.size(), LoadMeter::kTablesMax);
  EXPECT_EQ(load.tables.front().table, absl::StrCat("t", tables.size() - 1));
  EXPECT_DOUBLE_EQ(load.tables.front().rows_looked_up, static_cast<double>(tables.size() - 1));
  EXPECT_DOUBLE_EQ(load.tables.front().rows_updated, 2);
  EXPECT_EQ(load.tables.back().table, "t2");

  // A table that leaves and comes back counts from 0 on.
  tables.back() = TableMetrics();
  tables.back() = TableMetrics(&metrics_, absl::StrCat("t", tables.size() - 1));
  tables.back().rows_looked_up.Add(3 * seconds);
  const NodeLoad& later = meter.Look(now_ + 3 * kWindow);
  ASSERT_EQ(later.tables.size(), 1u);
  EXPECT_DOUBLE_EQ(later.tables.front().rows_looked_up, 3);
}

TEST(QuantileBetween, BeyondTheLastBoundIsThatBound) {
  const std::vector<Histogram::Bucket> before = {{1.0, 0}, {INFINITY, 0}};
  EXPECT_EQ(QuantileBetween(before, {{1.0, 1}, {INFINITY, 10}}, 0.99), absl::Seconds(1));
  EXPECT_EQ(QuantileBetween(before, {{1.0, 10}, {INFINITY, 10}}, 0.5), absl::Seconds(0.5));
  EXPECT_EQ(QuantileBetween(before, before, 0.5), absl::ZeroDuration());
  EXPECT_EQ(QuantileBetween({}, {}, 0.5), absl::ZeroDuration());
}

}  // namespace
}  // namespace embla
