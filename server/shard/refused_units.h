// Refusals of units that are not on this node, or not for now: where their rows are to be sent.
#pragma once

#include <vector>

#include "core/base/ids.h"
#include "core/rows/refused_unit.h"
#include "server/shard/node_tables.h"
#include "server/table/table_units.h"

namespace embla {

// Lowest plan version that can name the new owner of units that have left this node: the installed
// plan, or the next one while the installed plan still places some of them here.
PlanVersion PlanThatMoved(const NodeTables& tables, TableId table, ColumnRange columns,
                          RowInterval rows);

// The refusal of `unit`, in part 0 of a request.
RefusedUnit RefusedMoved(const NodeTables& tables, TableId table, const TableUnits::Moved& unit);

// Joins neighbours that are refused for the same. The order changes.
void JoinNeighbours(std::vector<RefusedUnit>& refused);

}  // namespace embla
