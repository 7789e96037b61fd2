// The coordinator's keys in the state store, and the one commit that changes the plan.
//   cluster         {"cluster_id": ..., "format": 1}
//   plan/head       {"version": v, "next_node_id": n, "next_table_id": t, "generation": g,
//                   "gaps": [...]}, see number_gap.h
//   plan/nodes/ID   a node, docs/plan_format.md; ID is 10 decimal digits
//   plan/tables/ID  a table plan, docs/plan_format.md
//   plan/pending    {"table_id": t, "tables": n, "version": v, "deadline_unix_ms": d}: the n tables
//                   with ids from t on are being created; without "tables", it is one
//   plan/history/   see plan_history.h
//   units/          see unit_records.h
//   jobs/           see move_job.h
//   drained/        see drained_nodes.h
//   forgotten/      see drained_nodes.h
//   sessions/       see session_records.h
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/plan/plan.h"
#include "server/coordinator/number_gap.h"
#include "server/coordinator/plan_history.h"
#include "server/state_store/state_store.h"

namespace embla {

// Tables that are created together and that not all of their nodes have installed.
struct PendingCreate {
  TableId first{};          // The ids of a creation follow one another.
  std::uint32_t count = 1;  // Number of tables.
  PlanVersion version{};    // The plan that brought them.
  absl::Time deadline;      // Whole milliseconds.

  bool Has(TableId table) const { return table >= first && ToInt(table) - ToInt(first) < count; }
  bool operator==(const PendingCreate&) const = default;
};

struct PlanHead {
  PlanVersion version{};
  std::uint32_t next_node_id = 1;
  std::uint32_t next_table_id = 1;
  // Rises by one each time that a node or client was found to have seen a newer store than this
  // one.
  std::uint64_t generation = 1;
  std::vector<NumberGap> gaps = {};  // Ascending.
  bool operator==(const PlanHead&) const = default;
};

// One change of the plan: what to put, what to drop, and what becomes of the pending creation.
struct PlanEdit {
  std::optional<NodeSpec> node = {};   // A new node takes id 0: the next one is given.
  std::vector<TablePlan> tables = {};  // Likewise.
  std::vector<TableId> drop_tables = {};
  std::optional<NodeId> drop_node = {};  // A node that has no slices any more.
  std::optional<PlanHead> jump = {};  // The head that the change makes, but for ids that it gives.
  bool pending_done = false;          // Clears the pending creation.
  std::optional<absl::Time> pending_until = {};  // Makes `tables`, all new, the pending creation.
  std::string cause = {};                        // For the history.
  absl::Time at = absl::UnixEpoch();
  // Conditions and writes that are committed together with it.
  std::vector<StateCompare> compares{};
  std::vector<StateWrite> writes{};
};

// Thread safety: none.
class StateRecords {
 public:
  struct Loaded;
  // Reads everything; an empty store becomes the cluster `new_cluster_id`.
  static absl::StatusOr<Loaded> Load(StateStore& store, const std::string& new_cluster_id);

  // Commits `edit` on top of `plan` with version + 1 and returns the new plan.
  absl::StatusOr<PlanPtr> Commit(StateStore& store, const Plan& plan, PlanEdit edit);
  // Clears the pending creation without a new plan.
  absl::Status ClearPending(StateStore& store);

  const PlanHead& head() const { return head_; }
  Revision head_revision() const { return head_revision_; }  // Revision of the last Commit.
  const std::optional<PendingCreate>& pending() const { return pending_; }

 private:
  // Moves `head` to the next version and gives the ids that `edit` asks for.
  static void GiveIds(PlanEdit* edit, PlanHead* head);
  // The record of `edit`, which has its ids.
  static PlanChange ChangeOf(const Plan& plan, const PlanEdit& edit, PlanVersion version);

  PlanHead head_;
  Revision head_revision_{};
  std::optional<PendingCreate> pending_;
};

struct StateRecords::Loaded {
  StateRecords records;
  PlanPtr plan;
};
using LoadedState = StateRecords::Loaded;

}  // namespace embla
