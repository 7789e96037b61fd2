#include "server/table/row_intervals.h"

#include <random>
#include <set>

#include "core/base/testing/seeds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::ElementsAre;

TEST(RowIntervalsInsert, NeighboursBecomeOne) {
  RowIntervals rows({0, 10});
  rows.Insert({20, 30});
  rows.Insert({10, 20});
  EXPECT_THAT(rows.intervals(), ElementsAre(RowInterval{0, 30}));
  rows.Erase({5, 25});
  EXPECT_THAT(rows.intervals(), ElementsAre(RowInterval{0, 5}, RowInterval{25, 30}));
}

TEST(RowIntervals, AgreeWithASet) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    RowIntervals rows;
    std::set<std::int64_t> model;
    for (int step = 0; step < 60; ++step) {
      const auto begin = static_cast<std::int64_t>(random() % 40);
      const RowInterval change{begin, begin + static_cast<std::int64_t>(random() % 8)};
      const bool insert = random() % 2 == 0;
      insert ? rows.Insert(change) : rows.Erase(change);
      for (std::int64_t row = change.begin; row < change.end; ++row) {
        if (insert) model.insert(row);
        if (!insert) model.erase(row);
      }
      bool all = true, any = false;
      for (std::int64_t row = change.begin; row < change.end; ++row) {
        all = all && model.contains(row);
        any = any || model.contains(row);
      }
      ASSERT_EQ(rows.Intersects(change), any);
      if (change.begin < change.end) {
        ASSERT_EQ(rows.ContainsAll(change), all);
      }
      ASSERT_EQ(rows.empty(), model.empty());
      for (std::int64_t row = -1; row < 50; ++row) {
        ASSERT_EQ(rows.Contains(row), model.contains(row)) << "row " << row;
      }
      for (std::size_t i = 1; i < rows.intervals().size(); ++i) {
        ASSERT_LT(rows.intervals()[i - 1].end, rows.intervals()[i].begin);
      }
    }
  }
}

TEST(RowIntervalsCommonWith, KeepsTheRowsOfBoth) {
  RowIntervals a({0, 10}), b({5, 12});
  a.Insert({20, 30});
  b.Insert({14, 22});
  b.Insert({25, 26});
  RowIntervals common({5, 10});
  common.Insert({20, 22});
  common.Insert({25, 26});
  EXPECT_EQ(a.CommonWith(b), common);
  EXPECT_EQ(b.CommonWith(a), common);
  EXPECT_TRUE(a.CommonWith(RowIntervals()).empty());
}

}  // namespace
}  // namespace embla
