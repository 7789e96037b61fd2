// Tables while units are given from device to device on paper, with what memory is left: what the
// planners of moves (move_plan.h) write on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator/move_plan.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {

class UnitMoves {
 public:
  // `scope` outlives this object.
  explicit UnitMoves(const MoveScope& scope);

  // Returns the cuts with the changes so far. Requires: a table of the plan that is movable.
  const std::vector<UnitCut>& CutsOf(const TablePlan& table);

  // Gives `count` granules of `from` to `to`: first those that touch runs of `to`, then the
  // smallest runs. Requires: `from` has so many.
  void Give(const TablePlan& table, std::size_t cut, DeviceId from, DeviceId to,
            std::uint32_t count);
  void GiveRun(const TablePlan& table, std::size_t cut, const GranuleRun& run, DeviceId to);

  // Requires: HasCopies(table).
  void ChangeCopy(const TablePlan& table, CopyChange::Kind kind, DeviceId device);

  // Devices that may take units of the table, by id: live, not drained, of group 0.
  std::vector<DeviceId> TakersOf(const TablePlan& table) const;
  // Memory less what the plan has there and what was given so far. Sources keep their copies. With
  // replica groups: the least over the devices that get the copies.
  std::int64_t FreeBytes(const TablePlan& table, DeviceId device) const;
  // Returns the used part of the memory: by the plan, and by what was given; with groups, the most.
  double Fullness(const TablePlan& table, DeviceId device) const;
  // Returns the least full device in `among` that has room for `bytes` of each copy; none: no room.
  std::optional<DeviceId> LeastFull(const TablePlan& table, const std::vector<DeviceId>& among,
                                    std::int64_t bytes) const;
  // ResourceExhausted: none in `among` has room for `bytes` of `table`, or for a part of it.
  absl::Status NoRoom(const TablePlan& table, std::int64_t bytes,
                      const std::vector<DeviceId>& among) const;

  // "node a device 0".
  std::string NameOf(DeviceId device) const;

  // The moves from the plan to here. Unavailable, FailedPrecondition, ResourceExhausted as in
  // move_plan.h.
  absl::StatusOr<MovePlan> Finish() const;

 private:
  struct Room {
    std::int64_t memory_bytes = 0;
    std::int64_t used_bytes = 0;
    std::int64_t given_bytes = 0;

    std::int64_t free_bytes() const { return memory_bytes - used_bytes - given_bytes; }
  };

  std::vector<DeviceId> CopiesOf(const TablePlan& table, DeviceId device) const;
  std::vector<MoveRun> Runs() const;
  absl::Status Check(const MoveRun& run) const;
  absl::Status CheckNode(const TablePlan& table, NodeId node) const;
  absl::Status CheckRoom(DeviceId device) const;

  const MoveScope* scope_;  // Not owned; outlives this object.
  std::map<DeviceId, Room> rooms_;
  std::vector<DeviceId> takers_;
  std::map<TableId, std::vector<UnitCut>> cuts_;
  std::vector<CopyChange> copies_;
};

// Copies of data_parallel tables (copy_plan.cc). Errors as in move_plan.h.
absl::Status DrainCopies(const MoveScope& scope, NodeId node, UnitMoves& moves);
// `node` is lost: its copies go, and where it has the primary another copy inherits, or a new one.
absl::Status ForgetCopies(const MoveScope& scope, NodeId node, UnitMoves& moves);
absl::Status ChangeCopyCount(const MoveScope& scope, const TablePlan& table, std::uint32_t copies,
                             UnitMoves& moves);
void AddMissingCopies(const MoveScope& scope, UnitMoves& moves);

// One column cut to `shards` devices. Errors of PlanReshard.
absl::Status ReshardCut(const MoveScope& scope, const TablePlan& table, std::size_t cut,
                        std::uint32_t shards, UnitMoves& moves);

}  // namespace embla
