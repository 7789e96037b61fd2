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
// owns: room on another of its devices, into which nothing is received.
struct ImportState {
  MoveId move{};
  NodeId source{};  // 0: no node has the rows any more, they take their initial values.
  UnitEpoch source_epoch{};
  bool operator==(const ImportState&) const = default;
};

// In place of a move: another node owns the unit, and this one never handed it over, since its log,
// or the coordinator's store, was restored from an older copy. Updates that only this node has may
// be among the rows.
inline constexpr MoveId kAside{UINT64_MAX};

// A unit that this node has handed over, and whose rows it keeps until the new owner's are safe.
struct ReleasedState {
  MoveId move{};      // kAside: an operator has to give the rows up.
  NodeId to{};        // The owner instead,
  UnitEpoch epoch{};  // and under which epoch.
  bool operator==(const ReleasedState&) const = default;
};

struct UnitDurable {
  UnitEpoch epoch{0};   // Under which this node owns the unit; 0: it does not.
  MoveId min_move{0};   // Messages of earlier moves are dropped; kept when the unit has left.
  MoveId relocated{0};  // The last move that brought the unit to another device of the node.
  Lsn lsn{0};           // The last update decided here. The log names it at hand-overs only.
  UnitWindows windows = {};
  // By chunk, the last update of any row in it. May be too high after a replay.
  ChunkVersions touched = {};
  std::optional<ImportState> import = {};
  std::optional<ReleasedState> released = {};
  std::optional<ReleasedState> left = {};  // After `released`, when the rows are gone: a hint.
  bool operator==(const UnitDurable&) const = default;
};

// Records of the node's log, in the order of the protocol's steps. All but AppliedUpdate are
// control records: synced to disk before the next action of the same step, at every durability
// level. OwnRecord alone need only be in the log: whatever is told of the unit from then on comes
// behind it there.
struct OwnRecord {  // The staged copy becomes the unit.
  UnitEpoch epoch{};
  MoveId move{};
  Lsn lsn{};  // The cut that it is.
  UnitWindows windows = {};
};
struct AppliedUpdate {  // Gradients follow; the bit in the window and the rows are one record.
  Lsn lsn{};
  SessionId session{};
  UpdateSeq seq{};
  UpdateSeq first_incomplete{};
  std::vector<std::uint32_t> chunks;
};
// The unit is another node's. Synced, this is the hand-over: the one commit point of a move between
// nodes. The rows are kept, and the cut that they are.
struct ReleaseRecord {
  ReleasedState released = {};
  Lsn lsn{};
  ChunkVersions touched = {};
};
struct AbortRecord {  // The move, and all before it, will not take place.
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
struct DiscardRecord {  // The staged copy is dropped, and its move will not take place.
  MoveId move{};
};
struct RelocateRecord {  // The unit lies on the device that has the import's room.
  MoveId move{};
};
using LogRecord = std::variant<OwnRecord, AppliedUpdate, ReleaseRecord, AbortRecord, TrimRecord,
                               ImportRecord, DiscardRecord, RelocateRecord>;

// Applies one record; the one way the durable part changes, in life and in recovery.
// Requires: records in the order they were logged.
void Replay(const LogRecord& record, UnitDurable& durable);

// The lsn of initial rows; that of a cut is higher.
inline constexpr Lsn kFirstLsn{1};

// A unit that is created here, not moved here.
UnitDurable FreshUnit(std::uint32_t chunks, Lsn lsn = kFirstLsn);

// A process begins with what the log yields. Its predecessors may have decided more updates, and
// sent chunk versions that name them, before they lost both: a unit that takes updates goes on 2^40
// lsns above, with every chunk touched there, so that nothing sent before counts as held, nor as
// the base of a delta, and no cut that a target holds is the unit's.
// Requires: no process decides 2^40 updates of one unit.
void BeginProcess(UnitDurable& durable, const Guards& guards = kAllGuards);
inline constexpr int kLsnBitsOfProcess = 40;
// Whether BeginProcess was not called for a unit that takes updates between the two.
inline bool AreOfOneProcess(Lsn a, Lsn b) {
  return ToInt(a) >> kLsnBitsOfProcess == ToInt(b) >> kLsnBitsOfProcess;
}

// The cut that a target holds whole: the staged rows are exactly it.
struct HeldCut {
  Lsn lsn{};
  UnitWindows windows = {};
  bool operator==(const HeldCut&) const = default;
};

struct UnitState {
  UnitDurable durable;
  // The rest is lost by a restart, at no harm.
  Lsn written{0};         // Updates up to here are in the rows; durable.lsn is the last decided.
  MoveId freezing{0};     // No update is decided any more; the cut waits for `written`.
  MoveId frozen{0};       // The move whose cut is being sent; no update is decided. 0: none.
  bool is_tired = false;  // A freeze has lasted too long: none before the next tick.
  bool is_releasing = false;  // durable.released is not synced yet: lookups are served.
  ChunkVersions sent;         // To the target of the move below, by chunk.
  MoveId sent_move{0};
  bool lacks_sent = false;      // No pull has said yet that it holds all that was sent.
  std::uint32_t sends = 0;      // Chunks sent since the move, or the last freeze, began.
  ChunkVersions staged;         // The import's chunks; a death may lose any part of them.
  std::optional<FinalCut> cut;  // The import lacks chunks of it, which are on their way.
  std::optional<HeldCut> held;  // The import is whole, until another chunk comes.
  MoveId reserving{0};          // An import that waits for memory and disk.
  bool is_covered = false;
  UnitRecord seen;  // The newest record heard of; epoch 0: none.
  bool operator==(const UnitState&) const = default;
};

// After a restart: `durable` from the log, all of whose updates have been replayed into the rows,
// and the chunks of an import found on disk (empty: none).
UnitState Recovered(UnitDurable durable, ChunkVersions staged, std::uint32_t chunks);

UnitStanding StandingOf(const UnitState& unit);

inline bool Owns(const UnitState& unit) { return unit.durable.epoch != UnitEpoch{0}; }
// Whether rows of `move` are taken in, or have been.
inline bool IsReceiving(const UnitState& unit, MoveId move) {
  const auto& import = unit.durable.import;
  return import.has_value() && import->move == move && !Owns(unit);
}
// The owner instead of this node, as far as its log knows.
inline const std::optional<ReleasedState>& HandedTo(const UnitDurable& unit) {
  return unit.released.has_value() ? unit.released : unit.left;
}
// Whether rows are kept that only an operator gives up.
inline bool IsAside(const UnitDurable& unit) {
  return unit.released.has_value() && unit.released->move == kAside;
}
inline bool IsFrozen(const UnitState& unit) {
  return unit.frozen != MoveId{0} || unit.freezing != MoveId{0};
}

}  // namespace embla
