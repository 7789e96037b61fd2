// Between the protocol of moves and the tables of a node: where a unit's rows are read and written,
// and who is asked before an update touches a unit that may be on the move.
//
// Everything that decides about a unit runs at one place in the order of its table's updates: on
// the thread of the table's lead device. So a unit's steps need no lock, and an update that was
// admitted before a freeze is in the rows before the cut is read. In a table with replica groups a
// unit has a copy per group, one gate, and one record of updates: devices are those of group 0, the
// other copies lie at the same positions of their groups, and all change together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "server/migration/move_ids.h"
#include "server/migration/node_step.h"
#include "server/migration/unit_standing.h"
#include "server/migration/unit_windows.h"

namespace embla {

// Position of a unit in its table, and how its rows are cut into chunks: the same on every node.
struct UnitShape {
  std::int64_t row_begin = 0;  // ZCH tables: the bucket's slots.
  std::int64_t row_end = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::int64_t chunk_rows =
      0;  // Rows of each chunk; the last may have fewer. A ZCH bucket is one chunk.

  std::uint32_t chunks() const {
    return static_cast<std::uint32_t>((row_end - row_begin + chunk_rows - 1) / chunk_rows);
  }
  bool operator==(const UnitShape&) const = default;
};

// Position of a unit among the synchronous steps of its table (docs/synchronous_steps.md).
struct UnitStepping {
  bool is_here = false;
  bool is_frozen = false;  // Being handed over: it makes no step.
  std::uint64_t next_step = 0;
};

// Asked by updates and lookups. Thread safety: only the lead devices of the table's copies call it,
// one call at a time. Its answer to lookups changes only inside UnitHost::RunInOrder.
class UnitGate {
 public:
  virtual ~UnitGate() = default;

  // The answer that `update` would get; has no effect.
  virtual PartAnswer Check(const UnitUpdate& update) const = 0;
  // Decides it. Requires: Check said kApplied in the same task.
  virtual void Apply(const UnitUpdate& update) = 0;
  // Deletes the records of closed sessions' updates; every node refuses these sessions.
  virtual void ForgetSessions(const SessionSet& sessions) = 0;
  // The answer to a lookup: kApplied, or kMoved.
  virtual PartAnswer CheckLookup() const = 0;
  // Whether the unit is owned here and no move looks at it: its rows may change without an update.
  virtual bool IsAtRest() const = 0;
  // Whether the copies of the unit's rows (replica groups) may be averaged; not while it is being
  // handed over, and when it has gone.
  virtual bool TakesAveraging() const = 0;
  // The copies were averaged, or, after an error, perhaps some of their rows. Requires:
  // TakesAveraging said yes in the same task.
  virtual void Averaged(bool all) = 0;
  // The unit's place among synchronous steps.
  virtual UnitStepping Stepping() const = 0;
  // For the coordinator.
  virtual UnitStanding Standing() const = 0;
};

using HostDone = std::function<void(absl::Status)>;

// When a chunk is read or written.
enum class ChunkTurn : std::uint8_t {
  kWhenIdle,  // Requests go first, for a bounded time: those before it and later ones.
  kNow,       // Before requests whose turn has not come: writers of the unit wait for it.
};

// The tables of a node, as the mover sees them. Every method queues its work behind the requests
// that came before it, chunks as their turn says, and returns; `done` runs once, on a device
// thread, and must not block.
// NotFound: no such table. Thread safety: every method may be called from any thread.
class UnitHost {
 public:
  virtual ~UnitHost() = default;

  // NotFound; InvalidArgument: no unit of the table.
  virtual absl::StatusOr<UnitShape> ShapeOf(const UnitId& unit) const = 0;
  // How long requests waited for a device lately, in the mean; zero: there were none.
  virtual absl::Duration RequestDelay() const = 0;

  // Runs `work` on the thread of the table's lead device, between two updates of any copy.
  virtual void RunInOrder(TableId table, std::function<void()> work) = 0;

  // ---- On that thread only, inside RunInOrder.
  // From now on `gate` is asked before updates and lookups of the unit, and its record of applied
  // updates is the unit's; `gate` null: the unit is no longer tracked, and has no rows here.
  virtual void SetGate(const UnitId& unit, std::shared_ptr<UnitGate> gate) = 0;
  // The windows that have deduplicated the unit's updates so far, for all groups.
  virtual UnitWindows WindowsOf(const UnitId& unit) const = 0;

  // ---- There, too: a unit at rest whose record joins that of the table's rest
  // (server/migration/record_fold.h). A round of the table's fold: it begins, or looks at what is
  // over by now. Nothing is done unless `plan` is the node's current one.
  virtual void StepFold(TableId table, PlanVersion plan) = 0;
  virtual void CancelFold(TableId table) = 0;
  // Unless the fold waits under another plan, or that has the unit elsewhere, or the unit has no
  // gate.
  virtual void NoteForFold(const UnitId& unit, const UnitWindows& windows, PlanVersion plan) = 0;
  // The plan under which the unit may join; 0: it may not.
  virtual PlanVersion MayJoin(const UnitId& unit) const = 0;
  // The rest's record takes in `windows`, and is the unit's until SetGate.
  virtual void JoinRest(const UnitId& unit, const UnitWindows& windows, PlanVersion plan) = 0;

  // Whether an update waits until all units that have joined have records of their own.
  virtual bool AsksApart(TableId table) const = 0;

  // ---- The source.
  // The rows of a chunk with all their state, encoded (docs/row_block.md; a ZCH bucket, and several
  // copies: docs/migration.md), with every update that was decided before this call.
  virtual void ReadChunk(const UnitId& unit, std::uint32_t chunk, ChunkTurn turn,
                         std::function<void(absl::StatusOr<Buffer>)> done) = 0;
  // Forgets the unit's rows; their memory is given back at the latest when all units of their slice
  // are gone.
  virtual void Trim(const UnitId& unit, HostDone done) = 0;

  // ---- The target. Staged rows are invisible until they are installed.
  // Memory for the unit on `device`, for all its copies or for none; what is there already is kept.
  // ResourceExhausted names the device. `run` is the row range that the device will have once all
  // moves of the job are over: one store is made for what of it, around the unit, is not there yet.
  using RowRun = embla::RowRun;
  virtual void Reserve(const UnitId& unit, std::uint32_t device, const RowRun& run,
                       HostDone done) = 0;
  // Overwrites staged rows by those of `block`, as ReadChunk made it. InvalidArgument, DataLoss:
  // nothing was changed.
  virtual void Stage(const UnitId& unit, std::uint32_t chunk, SharedBuffer block, ChunkTurn turn,
                     HostDone done) = 0;
  // Staged rows, all of them, take their initial values.
  virtual void Reset(const UnitId& unit, HostDone done) = 0;
  // The staged rows become the unit's: `gate` (which knows the windows) is asked from now on.
  virtual void Install(const UnitId& unit, std::shared_ptr<UnitGate> gate, HostDone done) = 0;
  virtual void Discard(const UnitId& unit, HostDone done) = 0;

  // ---- A move within the node: Reserve, and Discard if it fails. The unit's rows change to the
  // device where room was reserved, chunk by chunk, each between two requests; nothing if none was.
  // On an error some chunks have changed and some have not: all are served, call again.
  virtual void Relocate(const UnitId& unit, HostDone done) = 0;
};

}  // namespace embla
