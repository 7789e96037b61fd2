// Does a plan hold, and is it as good as it says? Recomputed from the problem alone.
//
// Shares no code with the solver: only the statement (problem, machine, prices of cuts) is common
// to both. Covered by checker_test.cc, which tampers with every field of a plan.
//
// The checks:
//   - every table has one choice whose cut and places its rules allow; the cut covers every row
//     and column exactly once;
//   - the shards fit every device's memory and every host's memory and SSD;
//   - the loads that the plan states are those that its shards make;
//   - the certificate proves its bound: the argument in solution.h, in 128-bit integers.
#pragma once

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"

namespace embla::planner {

struct CheckReport {
  Ticks max_load = 0;
  Ticks proven_bound = 0;  // The bound that the certificate proves.
  // max_load / proven_bound - 1; 0 when both are 0, infinite when only the bound is.
  double proven_gap = 0;
  // The plan's own lower bound when it rests on exhaustive search, which leaves no certificate to
  // check; else 0.
  Ticks claimed_search_bound = 0;
};

// `canonical` as Canonical() makes it. FailedPrecondition names what does not hold: the table,
// device, host or number. InvalidArgument: the problem itself is not valid.
absl::StatusOr<CheckReport> Check(const Problem& canonical, const Solution& solution);

}  // namespace embla::planner
