// Solved plans by the content of what they were solved for: the same inputs need not be solved
// twice, and a plan that was made for others is told from one that was not.
//   planner/solved/KEY  {"unix_ms", "inputs": {"tables", "topology", "rules", "options"}, "plan"}
// KEY is the four digests joined. The newest kSolvedPlansMax are kept.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/planner/problem/solution.h"
#include "server/state_store/state_store.h"

namespace embla {

inline constexpr std::size_t kSolvedPlansMax = 16;
inline constexpr std::size_t kSolvedPlanBytesMax = std::size_t{3} << 20;

// Keeps `plan_json` for `inputs`, instead of one for the same inputs. InvalidArgument: too long, or
// digests that are none.
absl::Status PutSolvedPlan(StateStore& store, const planner::ProblemDigest& inputs,
                           const std::string& plan_json, absl::Time now);

// The plan for exactly these inputs. FailedPrecondition: there is one whose other inputs are equal,
// and names the input that changed. NotFound: nothing like it.
absl::StatusOr<std::string> FindSolvedPlan(const StateStore& store,
                                           const planner::ProblemDigest& inputs);

}  // namespace embla
