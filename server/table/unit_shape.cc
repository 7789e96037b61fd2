#include "server/table/unit_shape.h"

#include <algorithm>
#include <bit>

#include "server/table/row_io.h"

namespace embla {

std::uint32_t RowGranuleOf(const TableSpec& spec, std::int64_t row) {
  // The last granule i with floor(i * rows / G) <= row, which says i * rows / G < row + 1. Below
  // 2^60 by Validate.
  return static_cast<std::uint32_t>(((row + 1) * spec.row_granules - 1) / spec.rows);
}

GranuleFinder::GranuleFinder(const TableSpec& spec) {
  // Fewest rows of a granule.
  const auto rows_min = static_cast<std::uint64_t>(spec.rows / spec.row_granules);
  shift_ = std::bit_width(rows_min) - 1;
  for (std::int64_t row = 0; row < spec.rows; row += std::int64_t{1} << shift_) {
    const std::uint32_t granule = RowGranuleOf(spec, row);
    cells_.push_back({.next_begin = spec.RowGranuleBegin(granule + 1), .granule = granule});
  }
}

UnitShape ShapeOfUnit(const TableSpec& spec, std::uint32_t row_granule, ColumnRange columns) {
  UnitShape shape;
  shape.row_begin = spec.RowGranuleBegin(row_granule);
  shape.row_end = spec.RowGranuleBegin(row_granule + 1);
  shape.column_begin = columns.begin;
  shape.column_end = columns.end;
  shape.chunk_rows = shape.row_end - shape.row_begin;
  if (spec.zch.has_value()) return shape;
  const std::size_t rows = RowsPerBlock(spec, columns, /*with_state=*/true) / spec.replica_groups;
  shape.chunk_rows =
      std::min(shape.chunk_rows, std::max<std::int64_t>(1, static_cast<std::int64_t>(rows)));
  return shape;
}

}  // namespace embla
