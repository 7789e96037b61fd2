#include "core/metrics/table_series.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/metrics/gpu_metrics.h"
#include "core/metrics/instruments.h"
#include "core/metrics/testing/series_count.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::SeriesCount;
using ::testing::HasSubstr;
using ::testing::Not;

// All that a node counts with for a table of two devices.
struct AllOfATable {
  AllOfATable(Metrics* metrics, const std::string& name)
      : table(metrics, name),
        steps(metrics, name),
        groups(metrics, name),
        devices{{metrics, name, 0}, {metrics, name, 1}},
        cache(metrics, name, 1) {
    table.rows_looked_up.Add(3);
    steps.wait.Observe(absl::Milliseconds(1));
    groups.divergence_max.Set(0.5);
    for (const TableDeviceMetrics& device : devices) device.bytes.Set(64);
    cache.hits.Add();
  }

  TableMetrics table;
  StepMetrics steps;
  ReplicaGroupMetrics groups;
  std::vector<TableDeviceMetrics> devices;
  RowCacheMetrics cache;
};

TEST(TableSeries, AThousandTablesThatCameAndWentLeaveNoSeries) {
  Metrics metrics;
  const AllOfATable stays(&metrics, "stays");
  const std::size_t before = SeriesCount(metrics);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "t" + std::to_string(i);
    const AllOfATable table(&metrics, name);
    EXPECT_THAT(metrics.Text(), HasSubstr("{table=\"" + name + "\"} 3"));
  }
  EXPECT_EQ(SeriesCount(metrics), before);
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_rows_looked_up_total{table=\"stays\"} 3"));
}

TEST(TableSeries, SeriesStayWithTheLastWhoCountsWithThem) {
  Metrics metrics;
  std::optional<TableMetrics> first(std::in_place, &metrics, "user");
  std::optional<TableMetrics> second(std::in_place, &metrics, "user");
  first->rows_looked_up.Add(3);
  first.reset();
  second->rows_looked_up.Add(4);
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_rows_looked_up_total{table=\"user\"} 7"));
  const std::optional<TableMetrics> copy = second;
  second.reset();
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_rows_looked_up_total{table=\"user\"} 7"));
}

TEST(TableSeries, TablesBeyondTheLimitShareSeriesThatHoldTheirSums) {
  Metrics metrics(/*tables_max=*/2);
  std::vector<AllOfATable> tables;
  tables.reserve(100);
  for (int i = 0; i < 2; ++i) tables.emplace_back(&metrics, "own" + std::to_string(i));
  tables.emplace_back(&metrics, "grouped0");
  const std::size_t series = SeriesCount(metrics);
  for (int i = 1; i < 98; ++i) tables.emplace_back(&metrics, "grouped" + std::to_string(i));

  EXPECT_EQ(SeriesCount(metrics), series);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("embla_rows_looked_up_total{table=\"own1\"} 3"));
  EXPECT_THAT(text, HasSubstr("embla_rows_looked_up_total{table=\"other\"} 294"));
  EXPECT_THAT(text, HasSubstr("embla_table_bytes{device=\"1\",table=\"other\"} 6272"));
  EXPECT_THAT(text, HasSubstr("embla_sync_step_wait_seconds_count{table=\"other\"} 98"));
  EXPECT_THAT(text, Not(HasSubstr("embla_replica_divergence_max{table=\"other\"}")));
  EXPECT_THAT(text, Not(HasSubstr("grouped")));
}

TEST(TableSeries, ATableThatGoesTakesItsPartOfTheSharedGauges) {
  Metrics metrics(/*tables_max=*/0);
  const AllOfATable stays(&metrics, "stays");
  std::optional<AllOfATable> goes(std::in_place, &metrics, "goes");
  goes->devices[0].rows.Set(5);
  goes->devices[0].rows.Add(2);
  EXPECT_EQ(goes->devices[0].rows.value(), 7);
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_table_rows{device=\"0\",table=\"other\"} 7"));
  goes.reset();
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_table_rows{device=\"0\",table=\"other\"} 0"));
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_table_bytes{device=\"0\",table=\"other\"} 64"));
}

TEST(TableSeries, ATableThatGoesMakesRoomForAnother) {
  Metrics metrics(/*tables_max=*/1);
  std::optional<AllOfATable> first(std::in_place, &metrics, "first");
  const AllOfATable other(&metrics, "other");
  first.reset();
  const AllOfATable next(&metrics, "next");
  EXPECT_THAT(metrics.Text(), HasSubstr("{table=\"next\"} 3"));
  EXPECT_THAT(metrics.Text(), HasSubstr("{table=\"other\"} 3"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("\"first\"")));
}

TEST(TableSeries, ThreadsThatComeAndGoCountOnSeriesThatExist) {
  Metrics metrics(/*tables_max=*/1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics, t] {
      for (int i = 0; i < 500; ++i) {
        const AllOfATable table(&metrics, t % 2 == 0 ? "a" : "b");
        table.table.rows_looked_up.Add();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(SeriesCount(metrics), 0u);
}

}  // namespace
}  // namespace embla
