// embla plan solve, embla plan check: the planner without a cluster.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/planner/io/plan_json.h"
#include "core/planner/io/stored_plan.h"
#include "core/planner/solver/solve.h"
#include "tools/embla/output.h"
#include "tools/embla/plan_input.h"

namespace embla::cli {

struct PlanSolveFlags {
  PlanInputFlags input;
  std::string prev;               // A plan as JSON, to start from.
  double target_gap_percent = 2;  // With prev: good enough; less moves more.
  std::string svg;                // File for the picture.
  bool check = false;
  bool all_tables = false;
};

// Solves and prints. `seconds` is a clock for solve_ms. Errors: InvalidArgument for wrong input,
// ResourceExhausted when no plan fits the memory.
absl::Status PlanSolveVerb(const PlanSolveFlags& flags, const std::function<double()>& seconds,
                           const Output& output);

// Prints a solved plan as `flags` say: checked, explained, drawn.
absl::Status ShowPlanned(const planner::Planned& planned, double solve_ms,
                         const PlanSolveFlags& flags, const Output& output);

// The plan in a file. NotFound, or InvalidArgument names file and field.
absl::StatusOr<planner::StoredPlan> ReadPlan(const std::string& path);

// Checks the plan of the file `plan` by code that the solver does not use: against the inputs, or,
// without input.tables, against the problem that stands in the plan. FailedPrecondition says what
// does not hold, or which input the plan was not made for.
absl::Status PlanCheckVerb(const std::string& plan, const PlanInputFlags& input,
                           const Output& output);

}  // namespace embla::cli
