// id -> owner for one tiling: clients route with it, and shard servers find their own slices.
//
// The columns are cut at every slice border; inside such a column block the rows are a sorted list
// of intervals. All seven sharding types, and anything that live moves make of them, fit this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/plan/plan.h"

namespace embla {

// The slices that hold the columns [column_begin, column_end), by row_begin.
struct ColumnCut {
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::vector<std::uint32_t> slices;  // Index into the slices given; never empty.
};

// Cuts the columns at every slice border; ascending, columns without a slice left out. Overlapping
// slices are allowed.
std::vector<ColumnCut> CutColumns(std::span<const Slice> slices);

class SliceMap {
 public:
  static constexpr std::uint32_t kNotCovered = 0xffffffff;

  // Rows of one column block. owner(i) covers rows [border(i), border(i+1)).
  struct ColumnBlock {
    std::uint32_t column_begin = 0;
    std::uint32_t column_end = 0;
    std::vector<std::int64_t> row_borders;  // owners.size() + 1 entries, or empty.
    std::vector<std::uint32_t> owners;      // Index into the slices given to Build, or kNotCovered.

    std::uint32_t columns() const { return column_end - column_begin; }
    // The slice that holds `row`, or kNotCovered.
    std::uint32_t OwnerOf(RowId row) const;
  };

  // `slices` may cover the table partly (a node's own slices) but may not overlap.
  static SliceMap Build(std::span<const Slice> slices);

  // Ascending, disjoint. Adjacent blocks with the same row cuts and the same owners are one block.
  const std::vector<ColumnBlock>& blocks() const { return blocks_; }

  // Whether every row of 0..rows-1 has an owner in every column of [column_begin, column_end).
  bool Covers(std::int64_t rows, std::uint32_t column_begin, std::uint32_t column_end) const;

 private:
  std::vector<ColumnBlock> blocks_;
};

}  // namespace embla
