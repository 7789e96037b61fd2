// Reasons, prices and the picture.
#include "core/planner/explain/explain.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/planner/explain/picture.h"
#include "core/planner/solver/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Problem Make(int hosts, int devices, std::int64_t device_bytes, int tables) {
  Problem problem;
  problem.reservation.fraction = 0;
  for (int h = 0; h < hosts; ++h) {
    Host host{"host" + std::to_string(h), {}, 512 * kGiB, 0};
    host.devices.assign(devices, Device{device_bytes, 1.0, ""});
    problem.topology.hosts.push_back(host);
  }
  for (int t = 0; t < tables; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.rows = 100'000 + 37'000 * (t % 29);
    table.dim = 32u << (t % 4);
    table.lookups_per_sample = 1 + t % 17;
    problem.tables.push_back(table);
  }
  return problem;
}

struct Case {
  Planned planned;
  Explanation explanation;
};
Case SolveAndExplain(Problem problem) {
  absl::StatusOr<Planned> planned = Solve(std::move(problem));
  EXPECT_THAT(planned, IsOk());
  absl::StatusOr<Explanation> explanation = Explain(planned->problem, planned->solution);
  EXPECT_THAT(explanation, IsOk());
  return {*std::move(planned), *std::move(explanation)};
}

// The parts must give the average bound, which is never above the certificate's.
void ExpectPartsGiveBound(const Case& c) {
  const Explanation& e = c.explanation;
  EXPECT_NEAR(e.bound_work_ms + e.bound_memory_charge_ms - e.bound_memory_credit_ms,
              e.average_bound_ms, 1e-6 * (e.bound_work_ms + e.bound_memory_charge_ms));
  const double certified = MsFromTicks(c.planned.solution.certificate.bound);
  EXPECT_LE(e.average_bound_ms, certified * (1 + 1e-3));
}

// Four tables that barely fit: what is proven rests on shards that are too long, not on prices.
TEST(Explain, PricesStaySaneWhereTheProofRestsOnADeadline) {
  Problem problem = Make(1, 2, 10 * kGiB, 0);
  problem.local_batch = 4096;
  const std::int64_t rows[] = {20'000'000, 15'000'000, 10'000'000, 100'000};
  for (int t = 0; t < 4; ++t) {
    Table table;
    table.name = "t" + std::to_string(t);
    table.rows = rows[t];
    table.dim = 128;
    table.lookups_per_sample = 2 + t;
    table.rules.types = {ShardingType::kTableWise, ShardingType::kRowWise};
    table.rules.kernels = {Kernel::kDevice, Kernel::kHostCached};
    problem.tables.push_back(table);
  }
  const Case c = SolveAndExplain(std::move(problem));
  ExpectPartsGiveBound(c);
  EXPECT_LT(c.explanation.average_bound_ms, MsFromTicks(c.planned.solution.certificate.bound));
  EXPECT_LT(c.explanation.ms_per_gib[0], 1);
}

TEST(Explain, LooseMemoryHasNoPriceAndBoundIsWork) {
  const Case c = SolveAndExplain(Make(1, 4, 32 * kGiB, 60));
  EXPECT_EQ(c.explanation.ms_per_gib[0], 0);
  EXPECT_EQ(c.explanation.bound_memory_charge_ms, 0);
  ExpectPartsGiveBound(c);
  EXPECT_GE(c.explanation.imbalance, 1);
  EXPECT_EQ(c.explanation.counts[static_cast<int>(Reason::kMemoryPrice)], 0);
}

TEST(Explain, TightMemoryHasAPriceAndNamesWhatItSaves) {
  Problem problem = Make(1, 4, 2 * kGiB, 60);
  const Case c = SolveAndExplain(std::move(problem));
  EXPECT_GT(c.explanation.ms_per_gib[0], 0);
  ExpectPartsGiveBound(c);
  int priced = 0;
  for (const TableExplanation& table : c.explanation.tables) {
    if (table.reason != Reason::kMemoryPrice) continue;
    ++priced;
    EXPECT_THAT(table.text, HasSubstr("of device memory, worth"));
    ASSERT_TRUE(table.runner_up.has_value());
    EXPECT_GE(table.runner_up->margin_ms, 0);
  }
  EXPECT_GT(priced, 0);
  EXPECT_EQ(priced, c.explanation.counts[static_cast<int>(Reason::kMemoryPrice)]);
}

TEST(Explain, PinAndOnlyOption) {
  Problem problem = Make(1, 2, 32 * kGiB, 8);
  problem.tables[0].rules.pin = "host0:1";
  problem.tables[1].rules.types = {ShardingType::kTableWise};
  problem.tables[1].rules.kernels = {Kernel::kDevice};
  const Case c = SolveAndExplain(std::move(problem));
  EXPECT_EQ(c.explanation.tables[0].reason, Reason::kPinned);
  EXPECT_THAT(c.explanation.tables[0].text, HasSubstr("host0:1"));
  EXPECT_EQ(c.explanation.tables[1].reason, Reason::kOnlyOption);
  EXPECT_FALSE(c.explanation.tables[1].runner_up.has_value());
}

TEST(Explain, TopShardsAreOnTheHottestDeviceAndAscend) {
  const Case c = SolveAndExplain(Make(2, 2, 32 * kGiB, 40));
  const Explanation& e = c.explanation;
  ASSERT_FALSE(e.top.empty());
  EXPECT_EQ(c.planned.solution.devices[e.critical].load, c.planned.solution.max_load);
  for (std::size_t i = 1; i < e.top.size(); ++i) EXPECT_GE(e.top[i - 1].load, e.top[i].load);
}

TEST(Explain, NetworkOfHostsHasItsShareOfTheBound) {
  Problem problem = Make(2, 4, 32 * kGiB, 60);
  problem.cost = CostKind::kEmbla;
  const Case c = SolveAndExplain(std::move(problem));
  ASSERT_TRUE(c.explanation.critical_is_network);
  ExpectPartsGiveBound(c);
  EXPECT_LT(c.explanation.imbalance, 1.1);
  EXPECT_FALSE(c.explanation.top.empty());
}

TEST(Explain, KeptTablesSayWhatMovingWouldSave) {
  const Case c = SolveAndExplain(Make(1, 4, 32 * kGiB, 20));
  Solution solution = c.planned.solution;
  // Simulates an older plan that had kept a costly cut.
  solution.choices[3].cut.kernel = Kernel::kHost;
  const auto explanation = Explain(c.planned.problem, solution, std::vector<bool>(20, true));
  ASSERT_THAT(explanation, IsOk());
  EXPECT_EQ(explanation->tables[3].reason, Reason::kKept);
  EXPECT_THAT(explanation->tables[3].text, HasSubstr("would save"));
}

TEST(BytesText, ThreeDigitsAndAUnit) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1000), "0.977 KiB");
  EXPECT_EQ(BytesText(2.5 * static_cast<double>(kGiB)), "2.5 GiB");
  EXPECT_EQ(BytesText(2048.0 * static_cast<double>(kGiB)), "2 TiB");
}

// Tags open and close in order, attributes are quoted, no bare & or <.
void ExpectWellFormed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '&') {
      const std::size_t end = xml.find(';', at);
      ASSERT_LT(end - at, 8u) << xml.substr(at, 40);
    }
    if (xml[at] != '<') continue;
    const std::size_t end = xml.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    const std::string name = tag.substr(0, tag.find_first_of(" />", 1));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    at = end;
  }
  EXPECT_TRUE(open.empty());
}

TEST(Picture, IsWellFormedAndMarksTheHottest) {
  for (const auto& [hosts, devices] : {std::pair{1, 1}, {1, 8}, {8, 8}, {128, 8}}) {
    Problem problem = Make(hosts, devices, 4 * kGiB, 300);
    problem.topology.hosts[0].name = "a<b>&\"c\"";
    const Case c = SolveAndExplain(std::move(problem));
    const std::string svg = PictureOf(c.planned.problem, c.planned.solution, c.explanation);
    ExpectWellFormed(svg);
    EXPECT_THAT(svg, HasSubstr("hottest: "));
    EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    EXPECT_LT(svg.size(), 3'000'000u);
  }
}

TEST(Picture, SaysWhenNetworksAreTheLimit) {
  Problem problem = Make(2, 4, 32 * kGiB, 60);
  problem.cost = CostKind::kEmbla;
  const Case c = SolveAndExplain(std::move(problem));
  const std::string svg = PictureOf(c.planned.problem, c.planned.solution, c.explanation);
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, HasSubstr("the limit of this plan"));
}

TEST(Picture, OfNoTables) {
  const Case c = SolveAndExplain(Make(1, 2, kGiB, 0));
  const std::string svg = PictureOf(c.planned.problem, c.planned.solution, c.explanation);
  ExpectWellFormed(svg);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace embla::planner
