#include "server/table/table_units.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/plan/id_rows.h"

namespace embla {

TableUnits::Cut& TableUnits::CutOf(ColumnRange columns) {
  const auto it = std::find_if(cuts_.begin(), cuts_.end(),
                               [&](const Cut& cut) { return cut.columns == columns; });
  if (it != cuts_.end()) return *it;
  cuts_.emplace_back();
  cuts_.back().columns = columns;
  return cuts_.back();
}

void TableUnits::SetGate(std::uint32_t row_granule, const UnitShape& shape,
                         std::shared_ptr<UnitGate> gate) {
  Cut& cut = CutOf({shape.column_begin, shape.column_end});
  if (gate == nullptr) {
    cut.gated.erase(row_granule);
  } else {
    cut.gated.insert_or_assign(row_granule, Cut::Gated{shape, std::move(gate)});
  }
  const bool any =
      std::any_of(cuts_.begin(), cuts_.end(), [](const Cut& some) { return !some.gated.empty(); });
  any_gates_.store(any, std::memory_order_release);
}

absl::Status TableUnits::CheckServed(std::span<const RowId> ids, ColumnRange columns) const {
  RowIntervals closed;
  for (const Cut& cut : cuts_) {
    if (!cut.Meets(columns)) continue;
    for (const auto& [granule, gated] : cut.gated) {
      if (!gated.gate->ServesLookups()) closed.Insert({gated.shape.row_begin, gated.shape.row_end});
    }
  }
  if (closed.empty()) return absl::OkStatus();
  const IdRows id_rows(spec_);
  for (const RowId id : ids) {
    if (!closed.Contains(id_rows.RowOf(id))) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("table ", spec_.name, " row ", ToInt(id), " has moved to another node"));
  }
  return absl::OkStatus();
}

}  // namespace embla
