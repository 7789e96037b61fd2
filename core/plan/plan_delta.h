// The step from one plan to another: how plans travel and are written down. A whole plan leads from
// the plan of version 0, which has nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"

namespace embla {

struct PlanDelta {
  PlanVersion base{};  // The plan that it leads from.
  PlanVersion version{};
  std::string cluster_id;
  std::vector<NodeSpec> nodes = {};  // New ones, and changed ones.
  std::vector<NodeId> dropped_nodes = {};
  std::vector<TablePtr> tables = {};
  std::vector<TableId> dropped_tables = {};
};

// Tables that the plans do not share have changed, also where they are equal again: somebody may
// have to know that there was a change in between.
PlanDelta DeltaBetween(const Plan& from, const Plan& to);

// The plan that `delta` leads to, which shares the tables that it does not name.
// FailedPrecondition: `from` is not its base. InvalidArgument: the plan would not be valid.
absl::StatusOr<PlanPtr> Apply(const PlanDelta& delta, const Plan& from);

}  // namespace embla
