// A cluster as the planner sees it: nodes as hosts, tables as tables with a cut and places, and the
// planner's choices as placements that the cluster understands.
//
// Costs are Embla's own model. Rows live in device memory only, so that is the only kernel. A
// data_parallel table of the planner has a copy on every device, a cluster's has one per node: it
// is never chosen here. Tables that the planner cannot express (data_parallel, replica groups,
// tilings that live moves have made uneven) are taken off the devices' memory instead.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "core/planner/placement.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/solve.h"

namespace embla::planner {

// A target gap for Replan under which nothing moves.
inline constexpr std::int64_t kNoMoves = 1'000'000'000'000;

// One host per node; devices with the memory that `tables` leave them.
Topology TopologyOf(const std::vector<NodeSpec>& nodes, const TableList& tables);

// Without rules about places: types that the table's optimizer and granules allow.
Table TableOf(const TableSpec& spec);

// How the table is cut and where it lies, in numbers of `canonical`; none: see above.
std::optional<Choice> ChoiceOf(const TablePlan& table, const std::vector<NodeSpec>& nodes,
                               const Problem& canonical);

// All tables that the planner can express, where they are.
struct Cluster {
  Problem problem;  // Canonical. Every table is held to its type, and to its devices if it is
                    // spread over all it may use.
  std::vector<Choice> choices;
};
Cluster ClusterOf(const std::vector<NodeSpec>& nodes, const TableList& tables);

// Returns the request that puts `spec` where `choice` says. FailedPrecondition: a choice that a
// cluster does not support (a kernel other than device, data_parallel).
absl::StatusOr<PlacementRequest> PlacementOf(const Problem& canonical, const std::string& table,
                                             const Choice& choice);

// The cluster's plan as it is, with the planner's proof of how good it is. Tables that the planner
// cannot express are left out. Errors as Solve.
absl::StatusOr<Planned> PlannedOf(const Plan& plan);

}  // namespace embla::planner
