// Plans as JSON: what `embla plan solve -o json` prints, with the proof and the reasons, and
// reading it back. docs/planner.md has the fields.
//
// The problem stands in it too: whoever has the file can check the proof and plan anew from it.
// A plan names tables, hosts and devices, so that it can be bound to a problem whose numbers
// differ. Times that decide are written twice: in ms for people, in ticks exactly.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/explain/explain.h"
#include "core/planner/io/fields.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/replan.h"
#include "core/planner/solver/solve.h"

namespace embla::planner {

// `explanation` is Explain() of the same plan.
Document PlanToJson(const Planned& planned, const Explanation& explanation, double solve_ms);

// The same after Replan, with the list of moves and their bytes against the bounds.
Document ReplanToJson(const Replanned& replanned, const Explanation& explanation, double solve_ms);

struct StoredChoice {
  std::string table;
  Cut cut;
  Placement placement = Placement::kShards;
  std::vector<std::string> targets;  // Names of devices or hosts.
};

// A plan as it was written; nothing in it is trusted.
struct StoredPlan {
  std::string plan_hash;
  ProblemDigest inputs;
  Problem problem;  // What it was made for, canonical; one group's share where replicas > 1.
  std::uint32_t replicas = 1;
  std::vector<std::string> devices, hosts;  // Names, in the order of solution.devices and hosts.
  std::vector<StoredChoice> tables;
  Solution solution;  // All but its choices.
};

// InvalidArgument names the field that is missing, unknown where it matters, or out of range.
absl::StatusOr<StoredPlan> PlanFromJson(std::string_view text);

// The stored plan as a solution of `canonical` (one group's share where replicas > 1).
// FailedPrecondition names the table, device or host that one of the two lacks.
absl::StatusOr<Solution> BindPlan(const StoredPlan& plan, const Problem& canonical);
// The stored plan as Replan wants it, bound to the problem that stands in it.
absl::StatusOr<Planned> PlannedOf(const StoredPlan& plan);

}  // namespace embla::planner
