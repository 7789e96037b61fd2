#include "server/table/table_units.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/id_rows.h"

namespace embla {

std::uint64_t TableUnits::NextVersion() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

TableUnits::Cut& TableUnits::CutOf(ColumnRange columns) {
  version_ = NextVersion();
  const auto it = std::find_if(cuts_.begin(), cuts_.end(),
                               [&](const Cut& cut) { return cut.columns == columns; });
  if (it != cuts_.end()) {
    it->rest_is_known = false;
    return *it;
  }
  cuts_.emplace_back();
  cuts_.back().columns = columns;
  return cuts_.back();
}

void TableUnits::FindRest() {
  if (granule_finder_.empty()) granule_finder_ = GranuleFinder(spec_);
  for (Cut& cut : cuts_) {
    if (cut.rest_is_known) continue;
    cut.is_rest.assign(spec_.row_granules, 0);
    for (const RowInterval& rows : cut.present.intervals()) {
      const auto first = cut.is_rest.begin() + GranuleOf(rows.begin);
      std::fill(first, cut.is_rest.begin() + GranuleOf(rows.end - 1) + 1, 1);
    }
    for (const Cut::Gated& unit : cut.gates) {
      if (!unit.is_folded) cut.is_rest[unit.row_granule] = 0;
    }
    cut.rest_is_known = true;
  }
}

void TableUnits::SetGate(std::uint32_t row_granule, const UnitShape& shape,
                         std::shared_ptr<UnitGate> gate) {
  Cut& cut = CutOf({shape.column_begin, shape.column_end});
  cut.gate_of.resize(spec_.row_granules, 0);
  std::uint32_t& number = cut.gate_of[row_granule];
  if (gate == nullptr) {
    RemoveGate(cut, row_granule);
  } else if (number != 0) {
    Cut::Gated& gated = cut.gates[number - 1];
    if (std::exchange(gated.is_folded, false)) --cut.folded;
    gated.gate = std::move(gate);
  } else {
    cut.gates.push_back({row_granule, shape, std::move(gate)});
    number = static_cast<std::uint32_t>(cut.gates.size());
  }
  CountGates();
}

bool TableUnits::Fold(std::uint32_t row_granule, const UnitShape& shape) {
  Cut& cut = CutOf({shape.column_begin, shape.column_end});
  const std::uint32_t gate = cut.GateOf(row_granule);
  if (gate == Cut::kNoGate) return false;
  cut.gates[gate].is_folded = true;
  ++cut.folded;
  CountGates();
  return true;
}

void TableUnits::CountGates() {
  GatesMayHaveChanged();
  const auto is_asked = [](const Cut& cut) { return cut.gates.size() > cut.folded; };
  const auto has_folded = [](const Cut& cut) { return cut.folded > 0; };
  any_gates_.store(std::any_of(cuts_.begin(), cuts_.end(), is_asked), std::memory_order_release);
  if (std::any_of(cuts_.begin(), cuts_.end(), has_folded)) return;
  fold_.TakenApart();
  asks_apart_.store(false, std::memory_order_relaxed);
}

bool TableUnits::Admit(PlanVersion routed_since, PlanVersion installed) {
  if (fold_.Admit(routed_since, installed)) return true;
  asks_apart_.store(true, std::memory_order_relaxed);
  return false;
}

void TableUnits::ForgetSessions(const SessionSet& sessions) {
  for (Cut& cut : cuts_) {
    for (Cut::Gated& gated : cut.gates) gated.gate->ForgetSessions(sessions);
  }
}

// The last gate takes the place of the one that goes.
void TableUnits::RemoveGate(Cut& cut, std::uint32_t row_granule) {
  const std::uint32_t number = cut.gate_of[row_granule];
  if (number == 0) return;
  if (cut.gates[number - 1].is_folded) --cut.folded;
  cut.gates[number - 1] = std::move(cut.gates.back());
  cut.gate_of[cut.gates[number - 1].row_granule] = number;
  cut.gate_of[row_granule] = 0;
  cut.gates.pop_back();
}

void TableUnits::AskWhoServes() {
  for (Cut& cut : cuts_) {
    std::vector<Moved> moved;
    for (const Cut::Gated& gated : cut.gates) {
      if (gated.is_folded) continue;
      const PartAnswer answer = gated.gate->CheckLookup();
      if (answer.status == PartStatus::kApplied) continue;
      moved.push_back({.rows = {gated.shape.row_begin, gated.shape.row_end},
                       .columns = cut.columns,
                       .owner = answer.owner,
                       .epoch = answer.epoch});
    }
    std::ranges::sort(moved, {}, [](const Moved& unit) { return unit.rows.begin; });
    cut.closed = RowIntervals();
    for (const Moved& unit : moved) cut.closed.Insert(unit.rows);
    cut.moved = std::move(moved);
  }
  closed_is_known_ = true;
}

const RowIntervals& TableUnits::ClosedRows(ColumnRange columns) {
  if (!closed_is_known_) AskWhoServes();
  return CutOf(columns).closed;
}

absl::Status TableUnits::CheckServed(std::span<const RowId> ids, ColumnRange columns,
                                     std::vector<Moved>& moved) {
  if (!closed_is_known_) AskWhoServes();
  absl::Status status;
  for (const Cut& cut : cuts_) {
    if (cut.Meets(columns) && !cut.moved.empty()) status.Update(CheckServed(ids, cut, moved));
  }
  return status;
}

absl::Status TableUnits::CheckServed(std::span<const RowId> ids, const Cut& cut,
                                     std::vector<Moved>& moved) const {
  absl::Status status;
  const IdRows id_rows(spec_);
  std::vector<bool> is_named(cut.moved.size(), false);
  for (const RowId id : ids) {
    const std::int64_t row = id_rows.RowOf(id);
    // The last unit that begins at the row or before it.
    const auto after = std::ranges::upper_bound(cut.moved, row, {},
                                                [](const Moved& unit) { return unit.rows.begin; });
    if (after == cut.moved.begin() || !std::prev(after)->rows.Contains(row)) continue;
    if (status.ok()) {
      status = absl::FailedPreconditionError(
          absl::StrCat("table ", spec_.name, " row ", ToInt(id), " has moved to another node"));
    }
    const auto number = static_cast<std::size_t>(after - cut.moved.begin()) - 1;
    if (is_named[number]) continue;
    is_named[number] = true;
    moved.push_back(*std::prev(after));
  }
  return status;
}

}  // namespace embla
