#include "core/plan/slice_map.h"

#include <algorithm>

#include "core/base/check.h"

namespace embla {
namespace {

std::vector<std::uint32_t> ColumnBorders(std::span<const Slice> slices) {
  std::vector<std::uint32_t> borders;
  borders.reserve(2 * slices.size());
  for (const Slice& slice : slices) {
    borders.push_back(slice.column_begin);
    borders.push_back(slice.column_end);
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

// The row intervals of one cut; rows between two slices have no owner.
SliceMap::ColumnBlock ToBlock(std::span<const Slice> slices, const ColumnCut& cut) {
  SliceMap::ColumnBlock block;
  block.column_begin = cut.column_begin;
  block.column_end = cut.column_end;
  std::int64_t covered_to = slices[cut.slices.front()].row_begin;
  block.row_borders.push_back(covered_to);
  for (const std::uint32_t index : cut.slices) {
    const Slice& slice = slices[index];
    EMBLA_CHECK(slice.row_begin >= covered_to);  // Overlapping slices.
    if (slice.row_begin > covered_to) {
      block.owners.push_back(SliceMap::kNotCovered);
      block.row_borders.push_back(slice.row_begin);
    }
    block.owners.push_back(index);
    block.row_borders.push_back(slice.row_end);
    covered_to = slice.row_end;
  }
  return block;
}

}  // namespace

std::vector<ColumnCut> CutColumns(std::span<const Slice> slices) {
  const std::vector<std::uint32_t> borders = ColumnBorders(slices);
  if (borders.empty()) return {};
  std::vector<ColumnCut> cuts(borders.size() - 1);
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    cuts[i].column_begin = borders[i];
    cuts[i].column_end = borders[i + 1];
  }
  std::vector<std::uint32_t> by_row(slices.size());
  for (std::uint32_t i = 0; i < by_row.size(); ++i) by_row[i] = i;
  std::stable_sort(by_row.begin(), by_row.end(), [&](std::uint32_t a, std::uint32_t b) {
    return slices[a].row_begin < slices[b].row_begin;
  });
  for (const std::uint32_t index : by_row) {
    const Slice& slice = slices[index];
    const auto first = std::lower_bound(borders.begin(), borders.end(), slice.column_begin);
    for (auto it = first; it != borders.end() && *it < slice.column_end; ++it) {
      cuts[it - borders.begin()].slices.push_back(index);
    }
  }
  std::erase_if(cuts, [](const ColumnCut& cut) { return cut.slices.empty(); });
  return cuts;
}

std::uint32_t SliceMap::ColumnBlock::OwnerOf(RowId row) const {
  const auto after = std::upper_bound(row_borders.begin(), row_borders.end(), ToInt(row));
  if (after == row_borders.begin() || after == row_borders.end()) return kNotCovered;
  return owners[after - row_borders.begin() - 1];
}

SliceMap SliceMap::Build(std::span<const Slice> slices) {
  SliceMap map;
  for (const ColumnCut& cut : CutColumns(slices)) {
    ColumnBlock block = ToBlock(slices, cut);
    if (!map.blocks_.empty()) {
      ColumnBlock& last = map.blocks_.back();
      if (last.column_end == block.column_begin && last.row_borders == block.row_borders &&
          last.owners == block.owners) {
        last.column_end = block.column_end;
        continue;
      }
    }
    map.blocks_.push_back(std::move(block));
  }
  return map;
}

bool SliceMap::Covers(std::int64_t rows, std::uint32_t column_begin,
                      std::uint32_t column_end) const {
  std::uint32_t covered_to = column_begin;
  for (const ColumnBlock& block : blocks_) {
    if (block.column_end <= covered_to) continue;
    if (covered_to >= column_end) break;
    if (block.column_begin > covered_to) return false;
    if (block.row_borders.front() != 0 || block.row_borders.back() != rows) return false;
    if (std::count(block.owners.begin(), block.owners.end(), kNotCovered) != 0) return false;
    covered_to = block.column_end;
  }
  return covered_to >= column_end;
}

}  // namespace embla
