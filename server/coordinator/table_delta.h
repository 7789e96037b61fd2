// The difference that turns a table's plan back into the one before: the slices that went and those
// that came, and the spec or the members of its steps if they changed. A hand-over of a few units
// of a table of 4,096 slices is a hundred bytes so, and not the table.
//
// JSON: {"spec_before": spec or missing, "steps_before": steps or missing, "tilings": [{"gone":
// [slice*], "came": [slice*]}*]}, where slice = [row begin, row end, column begin, column end,
// node, device].
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/json_fields.h"
#include "core/plan/plan.h"

namespace embla {

struct TableDelta {
  struct Tiling {
    std::vector<Slice> gone;  // Before only; by (first column, first row), like `came`.
    std::vector<Slice> came;  // Afterwards only.
    bool operator==(const Tiling&) const = default;
  };
  std::optional<TableSpec> spec_before;
  std::optional<StepPlan> steps_before;
  std::vector<Tiling> tilings;

  bool operator==(const TableDelta&) const = default;
};

// Returns nothing if the two have different kinds or numbers of tilings: keep all of `before` then.
std::optional<TableDelta> DeltaOf(const TablePlan& before, const TablePlan& after);
// The plan before. InvalidArgument: the delta does not belong to `after`.
absl::StatusOr<TablePlan> Undo(const TableDelta& delta, const TablePlan& after);

Json ToJson(const TableDelta& delta);
absl::StatusOr<TableDelta> TableDeltaFromJson(const Json& json);

}  // namespace embla
