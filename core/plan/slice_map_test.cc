#include "core/plan/slice_map.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace embla {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::uint32_t kColumns = 24;

Slice MakeSlice(std::int64_t row_begin, std::int64_t row_end, std::uint32_t column_begin,
                std::uint32_t column_end) {
  return {.row_begin = row_begin,
          .row_end = row_end,
          .column_begin = column_begin,
          .column_end = column_end};
}

// Cuts the rectangle at random until `cuts` are used up; some pieces are left out.
void CutAtRandom(Slice piece, int cuts, std::mt19937& random, std::vector<Slice>* slices) {
  const bool by_rows = random() % 2 == 0;
  const std::int64_t begin = by_rows ? piece.row_begin : piece.column_begin;
  const std::int64_t end = by_rows ? piece.row_end : piece.column_end;
  if (cuts == 0 || end - begin < 2) {
    if (random() % 8 != 0) slices->push_back(piece);
    return;
  }
  const std::int64_t cut = begin + 1 + static_cast<std::int64_t>(random() % (end - begin - 1));
  Slice low = piece;
  Slice high = piece;
  if (by_rows) {
    low.row_end = high.row_begin = cut;
  } else {
    low.column_end = high.column_begin = static_cast<std::uint32_t>(cut);
  }
  CutAtRandom(low, cuts - 1, random, slices);
  CutAtRandom(high, cuts - 1, random, slices);
}

std::uint32_t OwnerByMap(const SliceMap& map, std::int64_t row, std::uint32_t column) {
  for (const SliceMap::ColumnBlock& block : map.blocks()) {
    if (column >= block.column_begin && column < block.column_end) return block.OwnerOf(RowId{row});
  }
  return SliceMap::kNotCovered;
}

std::uint32_t OwnerByScan(const std::vector<Slice>& slices, std::int64_t row,
                          std::uint32_t column) {
  for (std::uint32_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    if (row >= slice.row_begin && row < slice.row_end && column >= slice.column_begin &&
        column < slice.column_end) {
      return i;
    }
  }
  return SliceMap::kNotCovered;
}

TEST(SliceMapBuild, FindsTheOwnerThatALinearScanFinds) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<Slice> slices;
    CutAtRandom(MakeSlice(0, kRows, 0, kColumns), static_cast<int>(seed % 6), random, &slices);
    std::shuffle(slices.begin(), slices.end(), random);
    const SliceMap map = SliceMap::Build(slices);
    bool complete = true;
    for (std::int64_t row = -1; row <= kRows; ++row) {
      for (std::uint32_t column = 0; column < kColumns; ++column) {
        const std::uint32_t owner = OwnerByScan(slices, row, column);
        ASSERT_EQ(OwnerByMap(map, row, column), owner) << row << ", " << column;
        if (row >= 0 && row < kRows) complete = complete && owner != SliceMap::kNotCovered;
      }
    }
    EXPECT_EQ(map.Covers(kRows, 0, kColumns), complete);
    for (std::size_t i = 1; i < map.blocks().size(); ++i) {
      EXPECT_GE(map.blocks()[i].column_begin, map.blocks()[i - 1].column_end);
    }
  }
}

TEST(SliceMapBuild, NothingIsNoBlocks) {
  const SliceMap map = SliceMap::Build({});
  EXPECT_TRUE(map.blocks().empty());
  EXPECT_FALSE(map.Covers(1, 0, 1));
}

TEST(SliceMapBuild, JoinsColumnBlocksWithTheSameOwners) {
  // The right half of the second slice is cut elsewhere: three cuts, two of them alike.
  const Slice slices[] = {MakeSlice(0, 10, 0, 16), MakeSlice(10, 20, 0, 16),
                          MakeSlice(0, 20, 16, 24)};
  const SliceMap map = SliceMap::Build(slices);
  ASSERT_EQ(map.blocks().size(), 2u);
  EXPECT_EQ(map.blocks()[0].columns(), 16u);
  EXPECT_EQ(map.blocks()[0].row_borders, (std::vector<std::int64_t>{0, 10, 20}));
}

TEST(SliceMapCovers, LooksOnlyAtTheColumnsAsked) {
  const Slice slices[] = {MakeSlice(0, 20, 0, 8), MakeSlice(5, 20, 8, 16)};
  const SliceMap map = SliceMap::Build(slices);
  EXPECT_TRUE(map.Covers(20, 0, 8));
  EXPECT_TRUE(map.Covers(20, 4, 8));
  EXPECT_FALSE(map.Covers(21, 0, 8));
  EXPECT_FALSE(map.Covers(20, 0, 9));
  EXPECT_FALSE(map.Covers(20, 8, 24));
}

}  // namespace
}  // namespace embla
