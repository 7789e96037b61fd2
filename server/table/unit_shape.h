// Where the units of a table lie: a function of its spec and its column cuts, the same everywhere.
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

// RowGranuleOf for many rows of one table: a multiplication where that divides.
class GranuleFinder {
 public:
  GranuleFinder() = default;  // Of no table.
  explicit GranuleFinder(const TableSpec& spec);

  // Requires: 0 <= row < spec.rows.
  std::uint32_t GranuleOf(std::int64_t row) const {
    // A granule has a row at least, so that this is off by one at most, to either side.
    auto granule = static_cast<std::uint32_t>(static_cast<double>(row) * granules_per_row_);
    granule -= row < begins_[granule] ? 1 : 0;
    granule += row >= begins_[granule + 1] ? 1 : 0;
    return granule;
  }
  std::size_t granules() const { return begins_.empty() ? 0 : begins_.size() - 1; }

 private:
  double granules_per_row_ = 0;
  std::vector<std::int64_t> begins_;  // The first row of each, and where the last one ends.
};

// The unit of `row_granule` in the columns of one cut; a chunk is about 1 MiB of rows with state,
// those of all replica groups, or a bucket of a ZCH table. Requires: row_granule <
// spec.row_granules.
UnitShape ShapeOfUnit(const TableSpec& spec, std::uint32_t row_granule, ColumnRange columns);

}  // namespace embla
