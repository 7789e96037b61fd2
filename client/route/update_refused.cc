// UpdateRoute's way back: which rows a node left out. See update_route.h for the idea.
#include <algorithm>
#include <utility>

#include "client/route/update_route.h"
#include "core/plan/id_rows.h"

namespace embla::client {

UpdateShare UpdateRoute::Refused(const UpdateShare& share, std::span<const RefusedUnit> refused,
                                 const Routes& routes) const {
  UpdateShare left;
  left.node = share.node;
  left.plan_version = share.plan_version;
  left.hints = share.hints;
  for (std::size_t i = 0; i < share.items.size(); ++i) {
    const UpdateItem& item = share.items[i];
    const TableRoute* const table = routes.Find(tables_[item.table].id);
    const IdRows rows = table == nullptr ? IdRows() : IdRows(table->spec());
    const auto is_refused = [&](std::int64_t id) {
      const std::int64_t row = rows.RowOf(RowId{id});
      return std::any_of(refused.begin(), refused.end(), [&](const RefusedUnit& unit) {
        return unit.part == i && unit.row_begin <= row && row < unit.row_end;
      });
    };
    UpdateItem kept = item;
    if (item.combined()) {
      kept.ranges = KeepRanges(item, is_refused);
      if (!kept.ranges.empty()) left.items.push_back(std::move(kept));
    } else {
      kept = KeepEntries(item, is_refused);
      if (!kept.entries.empty()) left.items.push_back(std::move(kept));
    }
  }
  return left;
}

UpdateShare UpdateRoute::Within(const UnitSet& units, const UpdateShare& share,
                                const Routes& routes) const {
  UpdateShare within;
  within.node = share.node;
  within.plan_version = share.plan_version;
  within.hints = share.hints;
  UnitSet claimed = share.claim->units.And(units);
  const TableRoute* const table = routes.Find(tables_[share.claim->table].id);
  if (claimed.empty()) return within;
  if (table == nullptr) return share;  // Sending the share again reports that the table is gone.
  const IdRows rows(table->spec());
  for (const StepUnits::CutRows& cut : table->step_units()->RowsOf(claimed)) {
    const auto is_within = [&](std::int64_t id) {
      const std::int64_t row = rows.RowOf(RowId{id});
      // Ids outside the table are sent to the owner of row 0.
      return cut.Has(0 <= row && row < table->spec().rows ? row : 0);
    };
    for (const UpdateItem& item : share.items) {
      UpdateItem kept = item;
      kept.column_begin = std::max(item.column_begin, cut.column_begin);
      kept.column_end = std::min(item.column_end, cut.column_end);
      if (kept.column_begin >= kept.column_end) continue;
      kept.ranges = KeepRanges(item, is_within);
      if (!kept.ranges.empty()) within.items.push_back(std::move(kept));
    }
  }
  within.claim = {share.claim->table, std::move(claimed)};
  KeepLearningRate(*table->step_units(), within);
  return within;
}

std::vector<IdRange> UpdateRoute::KeepRanges(const UpdateItem& item, KeepId keep) const {
  const std::span<const std::int64_t> ids = tables_[item.table].combined->ids();
  std::vector<IdRange> kept;
  for (const IdRange& range : item.ranges) {
    for (std::uint32_t i = range.first; i < range.second; ++i) {
      if (!keep(ids[i])) continue;
      if (!kept.empty() && kept.back().second == i) {
        ++kept.back().second;
      } else {
        kept.push_back({i, i + 1});
      }
    }
  }
  return kept;
}

UpdateItem UpdateRoute::KeepEntries(const UpdateItem& item, KeepId keep) const {
  UpdateItem kept;
  VisitEntries(item, [&](const Entry& entry) {
    if (keep(inputs_[item.feature].feature.ids[entry.position])) AddEntry(entry, kept);
  });
  kept.table = item.table;
  kept.feature = item.feature;
  kept.column_begin = item.column_begin;
  kept.column_end = item.column_end;
  return kept;
}

}  // namespace embla::client
