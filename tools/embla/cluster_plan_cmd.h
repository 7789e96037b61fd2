// embla plan solve --cluster, apply, diff, explain, history: the planner and the plans of a running
// cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"
#include "tools/embla/plan_solve_cmd.h"

namespace embla::cli {

// Solves for the cluster's live nodes and the memory that other tables leave them: rows in device
// memory, any type but data_parallel unless a table's rules say otherwise. A plan that is kept for
// the same inputs is printed instead; otherwise the new one is kept. Errors as PlanSolveVerb.
absl::Status PlanSolveOnClusterVerb(client::Admin& admin, const PlanSolveFlags& flags,
                                    const std::function<double()>& seconds, const Output& output);

struct PlanApplyFlags {
  std::string plan;           // The output of plan solve -o json.
  std::string half = "bf16";  // dtype of tables with 2-byte elements.
  bool dry_run = false;
};

// Creates the plan's tables where it says. Tables that lie there already stay; when one lies
// elsewhere nothing is created. FailedPrecondition names that table, or the node that is not what
// the plan was made for.
absl::Status PlanApplyVerb(client::Admin& admin, const PlanApplyFlags& flags, const Output& output);

// From version `from` to `to`; 0: the current one, and the one before `to`.
absl::Status PlanDiffVerb(client::Admin& admin, std::uint64_t from, std::uint64_t to,
                          const Output& output);

// Why the planner would, or would not, have cut the table as it is. NotFound; FailedPrecondition
// for tables that the planner does not model.
absl::Status PlanExplainVerb(client::Admin& admin, const std::string& table, const Output& output);

absl::Status PlanHistoryVerb(client::Admin& admin, std::uint32_t limit, const Output& output);

}  // namespace embla::cli
