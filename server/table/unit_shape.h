// Where the units of a table lie: a function of its spec and its column cuts, the same everywhere.
#pragma once

#include <cstdint>

#include "core/plan/plan.h"
#include "server/migration/unit_host.h"
#include "server/storage/row_store.h"

namespace embla {

// The row granule that holds `row`. Requires: 0 <= row < spec.rows.
std::uint32_t RowGranuleOf(const TableSpec& spec, std::int64_t row);

// The unit of `row_granule` in the columns of one cut; a chunk is about 1 MiB of rows with state,
// those of all replica groups, or a bucket of a ZCH table. Requires: row_granule <
// spec.row_granules.
UnitShape ShapeOfUnit(const TableSpec& spec, std::uint32_t row_granule, ColumnRange columns);

}  // namespace embla
