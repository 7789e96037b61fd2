#include "core/metrics/process_metrics.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "core/metrics/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProcessMetrics, SaysWhatTheSystemKnowsOfTheProcess) {
  Metrics metrics;
  ProcessMetrics process(metrics);
  double spun = 0;
  for (int i = 0; i < 20'000'000; ++i) spun += i;
  ASSERT_GT(spun, 0);
  process.Refresh();
  EXPECT_GT(metrics.MakeCounter(MetricNamed("process_cpu_seconds_total")).value(), 0.001);
  EXPECT_GT(metrics.MakeGauge(MetricNamed("process_resident_memory_bytes")).value(), 1 << 20);
  EXPECT_GE(metrics.MakeGauge(MetricNamed("process_open_fds")).value(), 3);
  EXPECT_GE(metrics.MakeGauge(MetricNamed("process_threads")).value(), 1);
  // After 2020, and not in the future.
  EXPECT_GT(metrics.MakeGauge(MetricNamed("process_start_time_seconds")).value(), 1.57e9);
}

TEST(ProcessMetrics, CountsTheFilesOfADirectoryAndItsDisk) {
  const std::string path = ::testing::TempDir() + "process_metrics_test";
  std::filesystem::create_directories(path + "/below");
  std::ofstream(path + "/a") << std::string(1000, 'x');
  std::ofstream(path + "/b") << std::string(24, 'x');
  Metrics metrics;
  ProcessMetrics process(metrics);
  process.Watch("journal", path);
  process.Refresh();
  EXPECT_EQ(metrics.MakeGauge(MetricNamed("embla_directory_bytes"), {"journal"}).value(), 1024);
  EXPECT_GT(metrics.MakeGauge(MetricNamed("embla_disk_free_bytes"), {"journal"}).value(), 0);
  std::filesystem::remove_all(path);
  process.Refresh();
  EXPECT_EQ(metrics.MakeGauge(MetricNamed("embla_directory_bytes"), {"journal"}).value(), 0);
}

TEST(ProcessMetrics, HasOneSeriesOfWhoItIs) {
  Metrics metrics;
  ProcessMetrics process(metrics);
  process.SetNode("n0", "");
  process.SetNode("n0", "c1");
  EXPECT_THAT(metrics.Text(), HasSubstr("embla_node_info{cluster=\"c1\",node=\"n0\"} 1"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("cluster=\"\"")));
}

}  // namespace
}  // namespace embla
