// Plans which units have to move, and where to, for a table to lie as an operator wants it. Pure: a
// plan in, moves out; server/coordinator/move_jobs.h carries them out.
//
// - Rows move in whole granules, and columns stay cut as they are. The number of granules that move
//   is the least that balances the chosen devices to one granule; runs stay contiguous where that
//   costs nothing.
// - Units go to other devices of the same node before they go to other nodes.
// - A target needs room for all it gets while the sources still have their copies.
// - Of a table with replica groups, devices are those of group 0; the other copies go along, to the
//   same positions of their groups. A node whose devices cannot be divided takes none.
// Tests: move_plan_test.cc (random plans: exact tilings, least moves, balance, memory).
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"
#include "server/coordinator/copy_change.h"

namespace embla {

// Units of one table and one column cut, of adjacent row granules, with one way to go.
struct MoveRun {
  TableId table{};
  std::uint32_t column_granule = 0;  // The cut's first.
  std::uint32_t granule_begin = 0;   // Row granules [granule_begin, granule_end).
  std::uint32_t granule_end = 0;
  DeviceId from;
  DeviceId to;
  std::int64_t bytes = 0;  // Weights and optimizer state, of all copies.

  std::uint32_t units() const { return granule_end - granule_begin; }
  bool operator==(const MoveRun&) const = default;
};

// A device that gives or takes, in bytes.
struct DeviceRoom {
  DeviceId device;
  std::int64_t memory_bytes = 0;
  std::int64_t used_bytes = 0;  // By the plan, now.
  std::int64_t peak_bytes = 0;  // While the moves are carried out, at most.
  bool operator==(const DeviceRoom&) const = default;
};

struct MovePlan {
  std::vector<MoveRun> runs;      // By table, cut and granule.
  std::vector<DeviceRoom> rooms;  // By device.
  // Changes of data_parallel tables' copies, in order, to be made before the runs.
  std::vector<CopyChange> copies = {};

  // A change of a copy counts as a unit.
  std::uint64_t units() const;
  std::int64_t bytes() const;
};

struct MoveScope {
  const Plan& plan;          // Not owned; outlives this object.
  std::set<NodeId> live;     // Only these give or take.
  std::set<NodeId> drained;  // These take nothing.
  NodeId forgotten{};        // Gives what it has, though it is down; 0: none.
};

// Errors of all: NotFound (table, node), InvalidArgument (a number out of range),
// FailedPrecondition (units of the table do not move), Unavailable (a node that would give or take
// is down: names it), ResourceExhausted (no room: names a device, the bytes needed and free). No
// moves at all is no error.

// To `shards` devices, of each column cut: devices stay that have much, new ones are on nodes that
// have few. A data_parallel table has `shards` copies in the end, its primary among them.
absl::StatusOr<MovePlan> PlanReshard(const MoveScope& scope, std::string_view table,
                                     std::uint32_t shards);

// Row granules [granule_begin, granule_end), all columns, to `to`.
absl::StatusOr<MovePlan> PlanMove(const MoveScope& scope, std::string_view table,
                                  std::uint32_t granule_begin, std::uint32_t granule_end,
                                  DeviceId to);

// Everything off `node`, to the devices that are least full. `node` counts as drained. Its copies
// of data_parallel tables go: if one is the primary, another copy is so first, and if it is the
// only one, another is made first.
absl::StatusOr<MovePlan> PlanDrain(const MoveScope& scope, NodeId node);

// Everything off `node`, which is lost: its rows are to begin anew elsewhere, its copies go.
// FailedPrecondition: rows would be lost, and `lose_rows` is not said.
absl::StatusOr<MovePlan> PlanForget(const MoveScope& scope, NodeId node, bool lose_rows);

// Every table balanced over its devices, and whole cuts of columns off the fullest devices, as far
// as the planner's bound (core/planner/solver/replan.h) says that it is worth its bytes. Tables
// with replica groups are only balanced; data_parallel ones get a copy on every node that has room.
absl::StatusOr<MovePlan> PlanRebalance(const MoveScope& scope);

// The tiling with the runs' units where they go to. Requires: runs of valid units of `table`.
std::vector<Slice> TilingAfter(const TablePlan& table, const std::vector<MoveRun>& runs);

// FailedPrecondition if the table is data_parallel: whole copies come and go instead.
absl::Status CheckMovable(const TablePlan& table);
// The table called `name`. NotFound, FailedPrecondition as CheckMovable.
absl::StatusOr<const TablePlan*> FindMovable(const Plan& plan, std::string_view name);

}  // namespace embla
