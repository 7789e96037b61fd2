// Reading a plan that plan_json.h wrote.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"
#include "core/planner/solver/solve.h"

namespace embla::planner {

inline constexpr std::string_view kPlanFormat = "embla-plan-1";

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
  // The canonical problem that the plan was made for; one group's share where replicas > 1.
  Problem problem;
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
