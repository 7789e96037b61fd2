// Keeps the history of the plan: one record per version, with the state before it, so that older
// plans can be had again. A record has the differences only (server/coordinator/table_delta.h), so
// it is small however many slices the table has.
//   plan/history/VERSION  {"version", "unix_ms", "cause", "node": id, "node_before": node or null,
//                          "tables": [table*]}; 20 decimal digits
//   table                 {"table": id, "table_before": table plan, "table_delta": what leads back
//   to
//                          the table before, instead}; neither of the two: the table is new. A
//                          record without "tables" has these three fields itself, for one table
// Records are written in the commit of their version. The newest kHistoryMax are kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/plan/plan.h"
#include "server/coordinator/table_delta.h"
#include "server/state_store/state_store.h"

namespace embla {

inline constexpr std::uint64_t kHistoryMax = 1000;

// A table that was made, changed or dropped, and what stood there before.
struct TableBefore {
  TableId table{};
  std::optional<TablePlan> before = {};  // Neither this nor `delta`: the table is new.
  std::optional<TableDelta> delta = {};  // From this version's table to the one before.

  // `before` (null: it is new) became `after` (null: nothing of it is left).
  static TableBefore Of(TableId id, const TablePlan* before, const TablePlan* after);
  bool operator==(const TableBefore&) const = default;
};

// The change that made a version of the plan.
struct PlanChange {
  PlanVersion version{};
  absl::Time at;                        // Whole milliseconds.
  std::string cause;                    // "table clicks created".
  NodeId node{};                        // The node that changed; 0: none.
  std::optional<NodeSpec> node_before;  // None: it is new.
  std::vector<TableBefore> tables;
  bool operator==(const PlanChange&) const = default;
};

std::string PlanChangeToJson(const PlanChange& change);
absl::StatusOr<PlanChange> PlanChangeFromJson(std::string_view json);

// Puts `change`, and deletes the record that is too old then.
void AppendHistoryWrites(const PlanChange& change, std::vector<StateWrite>* writes);

// Deletes the oldest records beyond kHistoryMax; after versions were skipped.
absl::Status TrimHistory(StateStore& store);

// The newest changes first, at most `limit` (0: all that are kept). DataLoss: unreadable.
absl::StatusOr<std::vector<PlanChange>> ReadHistory(const StateStore& store, std::size_t limit);

// The plan as it was at `version`. NotFound says which versions there are.
absl::StatusOr<Plan> PlanAt(const StateStore& store, const Plan& current, PlanVersion version);

}  // namespace embla
