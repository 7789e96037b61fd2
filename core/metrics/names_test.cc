#include "core/metrics/names.h"

#include <fstream>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace embla {
namespace {

std::string KindName(MetricKind kind) {
  return kind == MetricKind::kCounter ? "counter"
         : kind == MetricKind::kGauge ? "gauge"
                                      : "histogram";
}

// "| `name` | kind | `label`, `label` | help |", as docs/metrics.md has it.
std::string RowOf(const MetricInfo& info) {
  std::string labels;
  for (std::size_t i = 0; i < info.label_count(); ++i) {
    if (i > 0) labels += ", ";
    labels += "`" + std::string(info.labels[i]) + "`";
  }
  return "| `" + std::string(info.name) + "` | " + KindName(info.kind) + " | " + labels + " | " +
         std::string(info.help) + " |";
}

// Tests run in the project's root.
std::set<std::string> RowsOfThePage() {
  std::ifstream page("docs/metrics.md");
  std::set<std::string> rows;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `embla_") || line.starts_with("| `process_")) rows.insert(line);
  }
  return rows;
}

TEST(MetricNames, PageListsEveryMetricAsTheHeaderHasIt) {
  std::set<std::string> expected;
  for (const MetricInfo& info : AllMetrics()) expected.insert(RowOf(info));
  EXPECT_EQ(RowsOfThePage(), expected);
}

TEST(MetricNames, AreUnique) {
  std::set<std::string_view> names;
  for (const MetricInfo& info : AllMetrics()) EXPECT_TRUE(names.insert(info.name).second);
}

TEST(MetricNames, SayTheirUnitAndKind) {
  for (const MetricInfo& info : AllMetrics()) {
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(info.name.starts_with("embla_") || info.name.starts_with("process_"));
    EXPECT_EQ(info.name.ends_with("_total"), info.kind == MetricKind::kCounter);
    // Points in time are no durations, and no histograms.
    const bool is_point = info.name == "process_start_time_seconds" ||
                          info.name == "embla_tls_certificate_not_after_seconds";
    EXPECT_EQ(info.name.ends_with("_seconds"), info.kind == MetricKind::kHistogram || is_point);
    EXPECT_TRUE(info.help.ends_with("."));
  }
}

}  // namespace
}  // namespace embla
