// Hints against a map from units to what is known of them.
#include "client/route/unit_hints.h"

#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/testing/seeds.h"
#include "core/plan/slice_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::client::unit_hints_test {
namespace {

constexpr std::int64_t kRows = 70;
constexpr std::uint32_t kGranules = 10;  // Each has 7 rows.
constexpr std::uint32_t kDim = 8;

// Two column cuts; the rows of the first are on two nodes.
TablePlan MakeTable() {
  TablePlan table;
  table.spec = {.id = TableId{1}, .name = "t", .rows = kRows, .dim = kDim};
  table.spec.row_granules = kGranules;
  table.spec.SetDefaults();
  table.replicas = {{{0, 35, 0, 4, {NodeId{1}, 3}},
                     {35, kRows, 0, 4, {NodeId{2}, 1}},
                     {0, kRows, 4, kDim, {NodeId{1}, 0}}}};
  return table;
}

UnitHint HintOf(std::uint32_t begin, std::uint32_t end, NodeId owner, std::uint64_t epoch) {
  return {.table = TableId{1},
          .row_begin = begin * 7,
          .row_end = end * 7,
          .column_begin = 0,
          .column_end = 4,
          .owner = owner,
          .epoch = epoch};
}

NodeId OwnerOf(const std::vector<Slice>& slices, std::int64_t row, std::uint32_t column) {
  NodeId owner{};
  int found = 0;
  for (const Slice& slice : slices) {
    const bool has = slice.row_begin <= row && row < slice.row_end &&
                     slice.column_begin <= column && column < slice.column_end;
    if (!has) continue;
    owner = slice.device.node;
    ++found;
  }
  EXPECT_EQ(found, 1) << "row " << row << " column " << column;
  return owner;
}

TEST(UnitHintsInclude, KeepsTheHighestEpochOfEveryUnit) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const TablePlan table = MakeTable();
  for (int round = 0; round < 50; ++round) {
    UnitHints hints;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint64_t, NodeId>> model;
    for (int i = 0; i < 20; ++i) {
      const std::uint32_t begin = random() % kGranules;
      const std::uint32_t end = begin + 1 + random() % (kGranules - begin);
      UnitHint hint = HintOf(begin, end, NodeId{1 + static_cast<std::uint32_t>(random() % 3)},
                             1 + random() % 6);
      hint.column_begin = random() % 2 * 4;
      hint.column_end = random() % 4 == 0 ? kDim : hint.column_begin + 4;
      bool is_new = false;
      for (std::uint32_t column = hint.column_begin; column < hint.column_end; column += 4) {
        for (std::uint32_t granule = begin; granule < end; ++granule) {
          auto& known = model[{column, granule}];
          if (known.first >= hint.epoch) continue;
          known = {hint.epoch, hint.owner};
          is_new = true;
        }
      }
      EXPECT_EQ(hints.Include(table, {&hint, 1}), is_new);
      const std::vector<Slice> slices = hints.Applied(table.primary());
      for (std::uint32_t column = 0; column < kDim; column += 4) {
        for (std::int64_t row = 0; row < kRows; ++row) {
          const auto known = model.find({column, static_cast<std::uint32_t>(row / 7)});
          const bool is_known = known != model.end() && known->second.first > 0;
          EXPECT_EQ(OwnerOf(slices, row, column),
                    is_known ? known->second.second : OwnerOf(table.primary(), row, column));
        }
      }
    }
  }
}

TEST(UnitHintsInclude, PassesOverWhatIsNoUnit) {
  const TablePlan table = MakeTable();
  UnitHints hints;
  UnitHint hint = HintOf(2, 3, NodeId{3}, 2);
  const std::pair<const char*, UnitHint> cases[] = {
      {"no rows",
       [=]() mutable {
         hint.row_end = hint.row_begin;
         return hint;
       }()},
      {"a part of a granule",
       [=]() mutable {
         hint.row_end -= 1;
         return hint;
       }()},
      {"rows before the table",
       [=]() mutable {
         hint.row_begin = -7;
         return hint;
       }()},
      {"rows behind the table",
       [=]() mutable {
         hint.row_end = kRows + 7;
         return hint;
       }()},
      {"a part of a cut",
       [=]() mutable {
         hint.column_begin = 1;
         return hint;
       }()},
  };
  for (const auto& [name, bad] : cases) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(hints.Include(table, {&bad, 1}));
    EXPECT_TRUE(hints.empty());
  }
  EXPECT_TRUE(hints.Include(table, {&hint, 1}));
}

TEST(UnitHintsInclude, HasABound) {
  TablePlan table;
  table.spec = {.id = TableId{1}, .name = "t", .rows = 4 * UnitHints::kRunsMax, .dim = 4};
  table.spec.row_granules = static_cast<std::uint32_t>(table.spec.rows);
  table.spec.SetDefaults();
  table.replicas = {{{0, table.spec.rows, 0, 4, {NodeId{1}, 0}}}};
  UnitHints hints;
  std::vector<UnitHint> every_other;
  for (std::size_t i = 0; i < UnitHints::kRunsMax; ++i) {
    const auto row = static_cast<std::int64_t>(2 * i);
    every_other.push_back({.table = TableId{1},
                           .row_begin = row,
                           .row_end = row + 1,
                           .column_end = 4,
                           .owner = NodeId{2},
                           .epoch = 2});
  }
  // In one run at first, so that the test is done soon.
  UnitHint all = every_other.front();
  all.row_end = 2 * UnitHints::kRunsMax;
  all.epoch = 1;
  EXPECT_TRUE(hints.Include(table, {&all, 1}));
  EXPECT_FALSE(hints.Include(table, every_other)) << "twice as many runs";
  EXPECT_THAT(hints.Applied(table.primary()), ::testing::SizeIs(2));
  EXPECT_TRUE(hints.Include(table, std::span(every_other).first(1000)));
}

}  // namespace
}  // namespace embla::client::unit_hints_test
