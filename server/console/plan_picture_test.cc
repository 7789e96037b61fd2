#include "server/console/plan_picture.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/console/console_fixture.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

TEST(PlanSums, AddUpWhatLiesOnEachDeviceTheLargestTableFirst) {
  const PlanSums sums(ConsolePlan({RowBlocks(1, "small", 100, 1), RowBlocks(2, "large", 1000, 4)}));
  ASSERT_EQ(sums.tables().size(), 2u);
  EXPECT_EQ(sums.tables()[0].table->spec.name, "large");
  EXPECT_EQ(sums.tables()[0].placed.bytes, 1000 * 32);
  EXPECT_EQ(sums.tables()[0].devices, 4u);
  EXPECT_EQ(sums.tables()[0].nodes, 2u);
  const DeviceSum& first = sums.devices().at({NodeId{1}, 0});
  EXPECT_EQ(first.placed.bytes, 350 * 32);
  EXPECT_EQ(first.placed.slices, 2u);
  EXPECT_EQ(first.tables, 2u);
  EXPECT_EQ(sums.devices().at({NodeId{2}, 1}).placed.rows, 250);
  EXPECT_EQ(sums.Find(TableId{1})->placed.rows, 100);
  EXPECT_EQ(sums.Find(TableId{9}), nullptr);
}

TEST(PlanSums, CountEveryCopy) {
  TablePlan table = RowBlocks(1, "t", 100, 1);
  table.replicas.push_back(table.replicas[0]);
  table.replicas[1][0].device = {NodeId{2}, 1};
  const PlanSums sums(ConsolePlan({table}));
  EXPECT_EQ(sums.tables()[0].placed.bytes, 2 * 100 * 32);
  EXPECT_EQ(sums.tables()[0].devices, 2u);
}

TEST(PictureOf, HasTheSlicesThemselvesIfTheyAreFew) {
  const TablePlan table = RowBlocks(1, "t", 1000, 8);
  const TablePicture picture = PictureOf(table, 0, 8);
  EXPECT_TRUE(picture.is_exact);
  EXPECT_EQ(picture.rectangles, table.primary());
}

TEST(PictureOf, IsARasterThatTilesTheTableIfTheyAreMany) {
  std::mt19937 random(7);
  for (const std::size_t max : {1u, 2u, 7u, 96u, 500u}) {
    TablePlan table = RowBlocks(1, "t", 100'003, 4096);
    table.spec.row_granules = 100'003;  // A raster may cut anywhere.
    // In columns of 4, each cut at rows of its own.
    std::vector<Slice> tiling;
    for (const std::uint32_t column : {0u, 4u}) {
      std::int64_t row = 0;
      while (row < table.spec.rows) {
        const std::int64_t end = std::min<std::int64_t>(table.spec.rows, row + 1 + random() % 90);
        tiling.push_back(
            {row, end, column, column + 4, {NodeId{1}, static_cast<std::uint32_t>(random() % 2)}});
        row = end;
      }
    }
    table.replicas[0] = tiling;
    const TablePicture picture = PictureOf(table, 0, max);
    EXPECT_FALSE(picture.is_exact);
    EXPECT_LE(picture.rectangles.size(), max);
    EXPECT_THAT(ValidateTiling(table.spec, picture.rectangles), IsOk()) << max;
  }
}

TEST(PictureOf, ShowsTheDeviceOfTheCentre) {
  TablePlan table = RowBlocks(1, "t", 1000, 1000);
  for (Slice& slice : table.replicas[0]) {
    slice.device = {NodeId{slice.row_begin < 300 ? 1u : 2u}, 0};
  }
  const TablePicture picture = PictureOf(table, 0, 100);
  ASSERT_EQ(picture.rectangles.size(), 2u) << "cells of one device are one";
  EXPECT_EQ(picture.rectangles[0].row_end, 300);
  EXPECT_EQ(picture.rectangles[1].device.node, NodeId{2});
}

TEST(PictureOf, AMillionSlicesTakeNoLongerThanAPoll) {
  const TablePlan table = RowBlocks(1, "t", 1 << 20, 1 << 20);
  const auto begun = std::chrono::steady_clock::now();
  const PlanSums sums(ConsolePlan({table}));
  EXPECT_LE(PictureOf(table, 0, 2048).rectangles.size(), 2048u);
  EXPECT_EQ(TablesOn(*sums.plan(), {NodeId{1}, 0}).front().placed.slices, 1u << 18);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(2));
}

TEST(TablesOn, AreThoseWithASliceThere) {
  const PlanPtr plan = ConsolePlan(
      {RowBlocks(1, "a", 100, 1), RowBlocks(2, "b", 400, 4), RowBlocks(3, "c", 100, 1)});
  EXPECT_EQ(TablesOn(*plan, {NodeId{1}, 0}).size(), 3u);
  const std::vector<TableOnDevice> found = TablesOn(*plan, {NodeId{2}, 1});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].table->spec.name, "b");
  EXPECT_EQ(found[0].placed.rows, 100);
  EXPECT_TRUE(TablesOn(*plan, {NodeId{3}, 0}).empty());
}

}  // namespace
}  // namespace embla
