// A node's knowledge of one unit, in two parts: the durable one survives the death of the process,
// the other does not. The durable part changes by log records only, so that replaying them yields
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "server/migration/guards.h"
#include "server/migration/move_ids.h"
#include "server/migration/move_messages.h"
#include "server/migration/unit_record.h"
#include "server/migration/unit_standing.h"
#include "server/migration/unit_windows.h"

namespace embla {

// A copy being received. Invisible to every read until it is installed. For a unit that the node
// owns: room on another of its devices, into which nothing is received; it is never sealed.
struct ImportState {
  MoveId move{};
  NodeId source{};
  UnitEpoch source_epoch{};
  bool is_sealed = false;
  Lsn lsn{};  // From here on once sealed: the cut.
  UnitWindows windows = {};
  bool operator==(const ImportState&) const = default;
};

// In place of a move: another node owns the unit, and this one never handed it over, since its log,
// or the coordinator's store, was restored from an older copy. Updates that only this node has may
// be among the rows.
inline constexpr MoveId kAside{UINT64_MAX};

struct UnitDurable {
  UnitEpoch epoch{0};  // Under which this node owns the unit; 0: it does not.
  MoveId frozen{0};    // The move the unit is write-frozen for; 0: none.
  MoveId min_move{0};  // Messages of earlier moves are dropped; kept when the unit has left.
  // The move that took the unit away while the rows are kept; 0: none are. kAside: an operator has
  // to give them up.
  MoveId retained{0};
  Lsn lsn{0};  // The last update decided here. A node's log names it at freezes only.
  UnitWindows windows = {};
  ChunkVersions
      touched;  // By chunk, the last update of any row in it. May be too high after a replay.
  std::optional<ImportState> import;
  bool operator==(const UnitDurable&) const = default;
};

// Records of the node's log, in the order of the protocol's steps. All but AppliedUpdate are
// control records: synced to disk before the next action of the same step, at every durability
// level.
struct OwnRecord {  // The sealed import becomes the unit.
  UnitEpoch epoch{};
  MoveId move{};
};
struct AppliedUpdate {  // Gradients follow; the bit in the window and the rows are one record.
  Lsn lsn{};
  SessionId session{};
  UpdateSeq seq{};
  UpdateSeq first_incomplete{};
  std::vector<std::uint32_t> chunks;
};
struct FreezeRecord {  // The cut: what the next process sends again, number by number.
  MoveId move{};
  Lsn lsn{};
  ChunkVersions touched = {};
};
struct UnfreezeRecord {
  MoveId move{};
};
struct ReleaseRecord {  // Another node owns the unit; its rows are kept.
  MoveId move{};
};
struct TrimRecord {  // The kept rows are dropped, by the protocol or (kAside) by an operator.
  MoveId move{};
};
struct ImportRecord {
  MoveId move{};
  NodeId source{};
  UnitEpoch source_epoch{};
};
struct SealRecord {  // Also syncs every staged chunk.
  MoveId move{};
  Lsn lsn{};
  UnitWindows windows = {};
};
struct DiscardRecord {  // The staged copy is dropped.
  MoveId move{};
};
struct RelocateRecord {  // The unit lies on the device that has the import's room.
  MoveId move{};
};
using LogRecord =
    std::variant<OwnRecord, AppliedUpdate, FreezeRecord, UnfreezeRecord, ReleaseRecord, TrimRecord,
                 ImportRecord, SealRecord, DiscardRecord, RelocateRecord>;

// Applies one record; the one way the durable part changes, in life and in recovery.
// Requires: records in the order they were logged.
void Replay(const LogRecord& record, UnitDurable& durable);

// A unit that is created here, not moved here.
UnitDurable FreshUnit(std::uint32_t chunks, Lsn lsn = Lsn{1});

// A process begins with what the log yields. Its predecessors may have decided more updates, and
// sent chunk versions that name them, before they lost both: a unit that takes updates goes on 2^40
// lsns above, with every chunk touched there, so that nothing sent before counts as held, nor as
// the base of a delta. A frozen unit keeps its numbers; its FREEZE record was synced, and all
// updates up to the cut with it.
// Requires: no process decides 2^40 updates of one unit.
void BeginProcess(UnitDurable& durable, const Guards& guards = kAllGuards);
inline constexpr int kLsnBitsOfProcess = 40;
// Whether BeginProcess was not called for a unit that takes updates between the two.
inline bool AreOfOneProcess(Lsn a, Lsn b) {
  return ToInt(a) >> kLsnBitsOfProcess == ToInt(b) >> kLsnBitsOfProcess;
}

struct UnitState {
  UnitDurable durable;
  // The rest is lost by a restart, at no harm.
  Lsn written{0};      // Updates up to here are in the rows; durable.lsn is the last one decided.
  MoveId freezing{0};  // No update is decided any more; the cut waits for `written`.
  ChunkVersions sent;  // To the target of the move below, by chunk.
  MoveId sent_move{0};
  bool lacks_sent = false;  // No pull has said yet that it holds all that was sent.
  ChunkVersions staged;     // The import's chunks: durable when sealed, any part of them before.
  MoveId reserving{0};      // An import that waits for memory and disk.
  bool is_covered = false;
  UnitRecord seen;  // The newest record heard of; epoch 0: none.
  bool operator==(const UnitState&) const = default;
};

// After a restart: `durable` from the log, all of whose updates have been replayed into the rows,
// and the chunks of an unsealed import found on disk (empty: none).
UnitState Recovered(UnitDurable durable, ChunkVersions staged, std::uint32_t chunks);

UnitStanding StandingOf(const UnitState& unit);

inline bool Owns(const UnitState& unit) { return unit.durable.epoch != UnitEpoch{0}; }
// Whether rows of `move` are taken in, or have been.
inline bool IsReceiving(const UnitState& unit, MoveId move) {
  const auto& import = unit.durable.import;
  return import.has_value() && import->move == move && !Owns(unit);
}
inline bool IsFrozen(const UnitState& unit) {
  return unit.durable.frozen != MoveId{0} || unit.freezing != MoveId{0};
}

}  // namespace embla
