#include "server/shard/refused_units.h"

#include <algorithm>
#include <tuple>

namespace embla {

PlanVersion PlanThatMoved(const NodeTables& tables, TableId id, ColumnRange columns,
                          RowInterval rows) {
  const PlanVersion version = tables.plan->version();
  const TablePlan* const table = tables.plan->FindTable(id);
  if (table == nullptr) return version;
  const bool is_here =
      std::any_of(table->primary().begin(), table->primary().end(), [&](const Slice& slice) {
        return slice.device.node == tables.self && slice.column_begin <= columns.begin &&
               columns.begin < slice.column_end && slice.row_begin < rows.end &&
               rows.begin < slice.row_end;
      });
  return is_here ? Next(version) : version;
}

RefusedUnit RefusedMoved(const NodeTables& tables, TableId table, const TableUnits::Moved& unit) {
  return {.row_begin = unit.rows.begin,
          .row_end = unit.rows.end,
          .reason = RefusedUnit::Reason::kMoved,
          .plan_version = PlanThatMoved(tables, table, unit.columns, unit.rows),
          .column_begin = unit.columns.begin,
          .column_end = unit.columns.end,
          .owner = unit.owner,
          .epoch = ToInt(unit.epoch)};
}

void JoinNeighbours(std::vector<RefusedUnit>& refused) {
  std::ranges::sort(refused, {}, [](const RefusedUnit& unit) {
    return std::tuple(unit.part, unit.column_begin, unit.row_begin);
  });
  std::vector<RefusedUnit> joined;
  for (const RefusedUnit& unit : refused) {
    if (!joined.empty() && joined.back().row_end == unit.row_begin) {
      RefusedUnit both = unit;
      both.row_begin = joined.back().row_begin;
      joined.back().row_end = unit.row_end;
      if (joined.back() == both) continue;
      joined.back().row_end = unit.row_begin;
    }
    joined.push_back(unit);
  }
  refused = std::move(joined);
}

}  // namespace embla
