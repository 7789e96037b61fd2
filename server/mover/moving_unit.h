// A mover's record of one unit besides its tracker: the work that its steps ask for, in order, and
// counters.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "server/migration/move_ids.h"
#include "server/migration/move_orders.h"
#include "server/migration/node_step.h"
#include "server/mover/unit_tracker.h"

namespace embla {

inline constexpr PlanVersion kUnknownPlan{UINT64_MAX};

// Rows that have arrived. A ChunkEvent follows when they are staged.
struct StageRows {
  Chunk chunk;
  Buffer rows;
  bool is_urgent = false;  // Writers of the unit wait for them.
};
using UnitWork = std::variant<NodeAction, StageRows>;

// Thread safety: none; of the mover's thread.
struct MovingUnit {
  MovingUnit(const UnitId& id, std::uint32_t chunks, std::shared_ptr<UnitTracker> tracker)
      : id(id), tracker(std::move(tracker)), is_chunk_sent(chunks, false) {}

  const UnitId id;
  const std::shared_ptr<UnitTracker> tracker;  // Touched on the table's lead device only.

  // The epoch under which the unit was here before its tracker, until the tracker knows it.
  std::optional<UnitEpoch> adopts;

  // Its record has joined that of the table's rest, as far as the mover's thread has heard.
  bool is_folded = false;
  // The move that brought it here, and the first plan that is known to have it here since.
  MoveId arrival{};
  PlanVersion here_since = kUnknownPlan;
  // While its gate says who has it instead: the first plan that says so, too.
  std::optional<PlanVersion> left_since;

  // One piece of work at a time, the next when it is done.
  std::deque<UnitWork> work;
  bool is_busy = false;
  bool is_moving_rows = false;  // It changes which rows are here, or on which device.
  bool waits_for_tick = false;  // The front of `work` failed and is tried again then.

  UnitStatus status;                              // After the last step that was heard of.
  absl::Time progress_at = absl::InfinitePast();  // A step or rows that brought the move on.
  absl::Time deadline_told_at = absl::InfinitePast();

  // The target's state, for `target_move`.
  MoveId target_move{};
  std::uint32_t target_device = 0;
  RowRun run;
  std::string refusal;  // Why there is no room.

  // The source's counters, for `counted_move`.
  MoveId counted_move{};
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_reported = 0;
  absl::Time progress_told_at = absl::InfinitePast();
  std::vector<bool> is_chunk_sent;
};

}  // namespace embla
