// The bytes model by hand, and the ids of the published workload.
#include "bench/gpu/workload.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace embla::bench {
namespace {

Workload Small() {
  Workload small;
  small.tables = 2;
  small.rows = 10;
  small.dim =
      6;  // 24 bytes: rows 0, 4 and 8 lie in one sector, rows 1, 2 and 3 partly in a second.
  small.bags = 2;
  small.bag_length = 2;
  return small;
}

constexpr std::uint32_t kSlots[] = {0, 1, 0, 1, 10, 10, 10, 14};

TEST(WorkloadBytes, LookupsReadEachRowOnceAtLeast) {
  const MovedBytes bytes = LookupBytes(Small(), kSlots);
  const double rest = 8 * 4 + (4 + 1) * 4 + 4 * 6 * 4;
  // Row 0: bytes 0..23; 1: 24..47; 10: 240..263; 14: 336..359.
  EXPECT_EQ(bytes.floor, rest + 32 + 64 + 64 + 64);
  EXPECT_EQ(bytes.nominal, rest + 8 * 24);
}

TEST(WorkloadBytes, UpdatesReadAndWriteRowsAndState) {
  const MovedBytes sgd = UpdateBytes(Small(), OptimizerKind::kSgd, kSlots);
  EXPECT_EQ(sgd.floor, 8 * 4 + 4 * 24 + 2 * (32 + 64 + 64 + 64));
  EXPECT_EQ(sgd.nominal, 8 * 4 + 8 * 24 + 2 * 8 * 24);
  const MovedBytes rowwise = UpdateBytes(Small(), OptimizerKind::kRowwiseAdagrad, kSlots);
  EXPECT_EQ(rowwise.floor, sgd.floor + 2 * 4 * 32) << "a sector of row state each";
  const MovedBytes adagrad = UpdateBytes(Small(), OptimizerKind::kAdagrad, kSlots);
  EXPECT_EQ(adagrad.nominal, sgd.nominal + 2 * 8 * 24);
}

TEST(WorkloadBytes, GatheredRowsAreTheirOwnOutputs) {
  Workload gathered = Small();
  gathered.bag_length = 0;
  gathered.bags = 4;
  EXPECT_EQ(gathered.ids(), 8u);
  EXPECT_EQ(gathered.outputs(), 8u);
}

// Ten tables of 1,677,721 rows, alpha 1.05: 350,280 of 1,048,570 ids differ, as its authors say.
TEST(WorkloadIds, ThePowerLawIsThePublishedOne) {
  Workload published;
  published.tables = 10;
  published.rows = 1'677'721;
  published.bags = 104'857;
  published.alpha = 1.05;
  const std::vector<std::uint32_t> slots = DrawSlots(published, 1);
  EXPECT_NEAR(static_cast<double>(Unique(slots).size()), 350'280.0, 3'500.0);
  EXPECT_LT(*std::max_element(slots.begin(), slots.end()), published.slots());
}

TEST(WorkloadIds, AShareOfThemIsHotAndAllAreOfTheirTable) {
  Workload workload = Small();
  workload.bags = 1000;
  workload.hot_share = 0.5;
  const std::vector<std::uint32_t> slots = DrawSlots(workload, 2);
  const std::size_t half = slots.size() / 2;
  EXPECT_LT(*std::max_element(slots.begin(), slots.begin() + half), 10u);
  EXPECT_GE(*std::min_element(slots.begin() + half, slots.end()), 10u);
  const auto hot = std::count(slots.begin(), slots.end(), 0u);
  EXPECT_NEAR(static_cast<double>(hot), 0.55 * static_cast<double>(half), 100.0);
}

}  // namespace
}  // namespace embla::bench
