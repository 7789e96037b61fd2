// The planner: tables x machines -> plan, lower bound and proof.
//
// 1. Price every cut of every table and drop the beaten ones (options.h).
// 2. Dual bound with the price of each tier's memory (bound.h); one more per set of devices that
//    rules confine tables to. A shard longer than the bound itself is out (deadline).
// 3. For a short schedule of limits: every table takes its cheapest option under the prices, then
//    pack (pack.h) and improve (improve.h) until the plan is within `goal_gap` of the bound.
// 4. Few tables: decide "is there a plan below z" by exhaustive search within a budget
//    (search.h); that moves the plan down and the bound up.
// Deterministic: integers, budgets in operations, no clock, no random numbers; the input's order
// does not matter. Time grows as tables x options x (3 .. 100), plus shards x devices.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"

namespace embla::planner {

struct SolveOptions {
  // Stop when max load <= bound x (1 + goal_gap_ppm / 10^6).
  std::int64_t goal_gap_ppm = 500;
  // Options looked at, devices compared, search nodes: about 1 .. 5 ns each. 0: by size.
  std::int64_t operations_max = 0;
  // Operations of the exhaustive search, at most; 0 turns it off.
  std::int64_t search_operations_max = 60'000'000;
};

struct Planned {
  Problem problem;  // Canonical; the solution's numbers refer to it.
  Solution solution;
  // Replica groups R. With R > 1 `problem` is one group's share: the same hosts with 1 / R of their
  // devices and memory, and `problem.replicas` == R. Its device "h:i" stands for h's devices
  // i x R .. i x R + R - 1, one in each group, so copies of a shard share a host.
  std::uint32_t replicas = 1;
};

// InvalidArgument: the problem is not valid, or its rules leave a table no cut; names both.
// ResourceExhausted: no plan fits; names the tier, the bytes short and the tables that need most of
// it, or, where it is not proven, says that none was found within the budget.
absl::StatusOr<Planned> Solve(Problem problem, const SolveOptions& options = {});

}  // namespace embla::planner
