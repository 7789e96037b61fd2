// Units at rest whose records of updates join those of their tables' rest
// (server/migration/record_fold.h). Each copy of a table with replica groups has a record and a
// fold, and a unit joins all of them at one moment.
#include <algorithm>

#include "server/shard/unit_tables.h"

namespace embla {

void UnitTables::StepFold(TableId table, PlanVersion plan) {
  if (node_.tables()->plan->version() != plan) return;
  const auto copies = CopiesOf(table);
  const bool waits = std::all_of(copies.begin(), copies.end(), [](const auto& copy) {
    return copy->units().fold().is_waiting() && copy->units().fold().has_units();
  });
  for (const std::shared_ptr<TableShard>& copy : copies) {
    RecordFold& fold = copy->units().fold();
    waits ? fold.Look(node_.is_over) : fold.Begin(plan, copy->rest());
  }
}

void UnitTables::CancelFold(TableId table) {
  for (const std::shared_ptr<TableShard>& copy : CopiesOf(table)) copy->units().fold().Cancel();
}

void UnitTables::NoteForFold(const UnitId& id, const UnitWindows& windows, PlanVersion plan) {
  const absl::StatusOr<Unit> unit = FindHere(id);
  if (!unit.ok() || unit->owner != unit->tables->self) return;
  if (unit->tables->plan->version() != plan) return;
  // Contributions that wait for a step count on the units that their record covers.
  if (unit->plan->spec.sync.has_value()) return;
  const bool may_be_noted =
      std::all_of(unit->copies.begin(), unit->copies.end(), [&](const auto& copy) {
        const TableUnits::Cut& cut = copy->units().CutOf(unit->columns());
        return copy->units().fold().plan() == plan && cut.present.ContainsAll(unit->rows()) &&
               cut.GateOf(id.row_granule) != TableUnits::Cut::kNoGate;
      });
  if (!may_be_noted) return;
  for (const std::shared_ptr<TableShard>& copy : unit->copies) {
    copy->units().fold().Note(id, windows);
  }
}

PlanVersion UnitTables::MayJoin(const UnitId& id) const {
  const auto copies = CopiesOf(id.table);
  const bool may_join = std::all_of(copies.begin(), copies.end(), [&](const auto& copy) {
    return copy->units().fold().MayJoin(id);
  });
  return may_join && !copies.empty() ? copies.front()->units().fold().plan() : PlanVersion{};
}

void UnitTables::JoinRest(const UnitId& id, const UnitWindows& windows, PlanVersion plan) {
  const absl::StatusOr<Unit> unit = FindHere(id);
  if (!unit.ok()) return;
  for (const std::shared_ptr<TableShard>& copy : unit->copies) {
    RecordFold& fold = copy->units().fold();
    copy->rest().Include(windows);
    // Units that are repeated from the log have no gate yet.
    if (!copy->units().Fold(id.row_granule, unit->shape)) continue;
    fold.MayJoin(id) ? fold.Join(id) : fold.Restore(plan);
  }
}

bool UnitTables::AsksApart(TableId table) const {
  const auto copies = CopiesOf(table);
  return std::any_of(copies.begin(), copies.end(),
                     [](const auto& copy) { return copy->units().asks_apart(); });
}

}  // namespace embla
