// Shape of a table's units: a function of its spec and its column cuts, the same everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/plan.h"
#include "server/migration/unit_host.h"
#include "server/storage/row_store.h"

namespace embla {

// The row granule that holds `row`. Requires: 0 <= row < spec.rows.
std::uint32_t RowGranuleOf(const TableSpec& spec, std::int64_t row);

// RowGranuleOf for many rows of one table, without its division: rows are looked up in cells of a
// power of two, of which each meets two granules at most.
class GranuleFinder {
 public:
  GranuleFinder() = default;  // Makes a finder of no table.
  explicit GranuleFinder(const TableSpec& spec);

  // Requires: 0 <= row < spec.rows.
  std::uint32_t GranuleOf(std::int64_t row) const {
    const Cell& cell = cells_[static_cast<std::size_t>(row) >> shift_];
    return cell.granule + (row >= cell.next_begin ? 1 : 0);
  }
  bool empty() const { return cells_.empty(); }

 private:
  struct Cell {
    std::int64_t next_begin = 0;  // The first row of the next granule.
    std::uint32_t granule = 0;    // Granule of the cell's first row.
  };
  int shift_ = 0;
  std::vector<Cell> cells_;
};

// The unit of `row_granule` in the columns of one cut; a chunk is about 1 MiB of rows with state,
// those of all replica groups, or a bucket of a ZCH table. Requires: row_granule <
// spec.row_granules.
UnitShape ShapeOfUnit(const TableSpec& spec, std::uint32_t row_granule, ColumnRange columns);

}  // namespace embla
