// A new plan that stays close to the old one: hosts came, went or slowed down, tables came or went,
// or the load changed.
//
// Every table keeps its cut and its places where the new problem allows them; what lost its place
// is placed where it adds the least load. Then the most loaded device gives shards away, the most
// load per byte first, until max load is within `target_gap_ppm` of the new problem's bound; swaps
// and other cuts come only where single shards do not help. Covered by replan_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/solver/solve.h"

namespace embla::planner {

struct ReplanOptions {
  // Give up what is near enough: each further step costs bytes.
  std::int64_t target_gap_ppm = 20'000;
  SolveOptions solve;
};

// Bytes of weights and optimizer state that change their device.
struct Move {
  std::uint32_t table = 0;  // Index in the new problem.
  // Shard of the new cut: column block x row blocks + row block. Row-wise tables move by row
  // granules, which keep their slots: there it is the position of `to` among the table's devices.
  std::uint32_t shard = 0;
  std::string from;            // "<host>:<index>" in the old problem; empty: from several.
  std::string to;              // In the new problem.
  std::uint32_t granules = 0;  // Row granules of each column block moved.
  std::int64_t bytes = 0;
  bool forced = false;  // The old place is gone or not allowed any more.
};

struct Replanned {
  Planned planned;
  std::vector<Move> moves;
  std::int64_t total_bytes = 0;  // Weights and state of all tables that were there before.
  std::int64_t moved_bytes = 0;  // Sum over `moves`, forced ones included.
  std::int64_t forced_bytes = 0;
  // No plan with this max load, or the target's if that is higher, that keeps the cuts moves less
  // beyond the forced bytes: every overloaded device must shed its surplus, at its most load per
  // byte.
  std::int64_t shed_bound_bytes = 0;
  Ticks target = 0;       // (1 + target_gap) x bound.
  Ticks load_before = 0;  // Max load of the old plan in the new problem, homeless shards placed.
};

// Errors as Solve. Tables and hosts are recognised by name. `problem.replicas` 0 keeps the
// previous number of groups.
absl::StatusOr<Replanned> Replan(Problem problem, const Planned& previous,
                                 const ReplanOptions& options = {});

}  // namespace embla::planner
