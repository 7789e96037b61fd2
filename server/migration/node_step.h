// The protocol of a node for one unit, as pure code: state and event in, state and actions out.
// The source's part is in source_steps.cc, the target's in target_steps.cc, updates and lookups in
// update_steps.cc. docs/migration.md is the protocol; tests/model drives exactly these functions.
//
// Duties of the code that executes the actions of one step:
// - in order; a control LogAction is on disk before the next action starts (that of an OwnRecord in
//   the log), and if the process dies in between, the step did not happen, or what followed was
//   lost: both are harmless;
// - the unit's steps are one at a time (the unit's lock);
// - rows are written in the order of their lsn; then, and only then, WrittenEvent.
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
#include "server/migration/unit_state.h"

namespace embla {

// Facts about the node and the unit that never change.
struct UnitContext {
  NodeId self{};
  std::uint32_t chunks = 1;         // Chunks of the unit; the same on every node.
  std::uint32_t credit_chunks = 8;  // A target lets this many be on their way.
  std::uint32_t behind_max = 0;     // A source freezes when so many chunks are behind,
  std::uint32_t rounds_max = 0;     // or it has sent each so often, on average (0: not then).
  Guards guards = {};
};

// ---- Answers to trainers, per part of a batch.
enum class PartStatus : std::uint8_t {
  kApplied,     // Decided now; acknowledge once `lsn` is written.
  kDuplicate,   // Was decided before: likewise.
  kMoved,       // Not here: ask `owner` (0: unknown), at least at `epoch`.
  kEpochAhead,  // The trainer knows a newer owner than this node: it reads the record, then
                // retries.
  kFrozen,      // Retry in a moment, with the same seq.
  kSeqTooNew,   // Too many updates in flight.
};
struct PartAnswer {
  PartStatus status{};
  Lsn lsn{};
  NodeId owner{};
  UnitEpoch epoch{};
};

struct UnitUpdate {
  SessionId session{};
  UpdateSeq seq{};
  UpdateSeq first_incomplete{1};
  UnitEpoch epoch{};                  // The newest the trainer knows of this unit.
  std::vector<std::uint32_t> chunks;  // Chunks that hold its rows.
};

// The answer that an update would get. Has no effect: it is the first check, before decoding and
// queueing.
PartAnswer CheckUpdate(const UnitState& unit, const UnitUpdate& part);
// Whether a lookup that knows the unit at `epoch` may be served: kApplied stands for yes.
PartAnswer CheckLookup(const UnitState& unit, UnitEpoch epoch);

// ---- Events.
struct WrittenEvent {  // Rows hold every update up to here.
  Lsn lsn{};
};
struct RecordEvent {  // A record from the store, by whatever way, however old.
  UnitRecord record;
  bool source_is_lost = false;  // The source of its last move, for good.
};
struct CancelEvent {  // The coordinator does not want the record's open move any more.
  UnitRecord record;
  bool source_is_lost = false;  // For good: the target's word ends the move.
};
struct FreezeDeadline {};  // The freeze lasts too long.
struct ReleaseSynced {     // The log's RELEASE of that move.
  MoveId move{};
};
struct ReservedEvent {  // Memory and disk for an import.
  MoveId move{};
  bool ok = false;
};
struct OwnSynced {};  // The log's OWN of the unit.
struct NodeTick {};   // Now and then: repeat what may have been lost.
struct PullEvent {
  NodeId from{};
  Pull pull;
};
struct ChunkEvent {  // Its rows have arrived whole.
  Chunk chunk;
};
struct FinalEvent {
  FinalCut cut;
};
struct HoldsEvent {
  NodeId from{};
  Holds holds;
};
struct ReleaseEvent {
  NodeId from{};
  Release release;
};
struct CoveredEvent {
  Covered covered;
};
struct DropAsideEvent {};  // An operator gives up rows that are kept aside.
using NodeEvent =
    std::variant<UnitUpdate, WrittenEvent, RecordEvent, CancelEvent, FreezeDeadline, ReleaseSynced,
                 OwnSynced, ReservedEvent, NodeTick, PullEvent, ChunkEvent, FinalEvent, HoldsEvent,
                 ReleaseEvent, CoveredEvent, DropAsideEvent>;

// ---- Actions.
struct LogAction {  // ReleaseSynced or OwnSynced follows those of their records.
  LogRecord record;
};
struct WriteRows {  // The update's optimizer step; WrittenEvent follows.
  Lsn lsn{};
};
struct SendPull {
  NodeId to{};
  Pull pull;
};
struct SendChunk {  // Rows are read when the action is executed, after the step.
  NodeId to{};
  Chunk chunk;
};
struct SendFinal {
  NodeId to{};
  FinalCut cut;
};
struct SendCovered {
  NodeId to{};
  Covered covered;
};
struct SendReport {
  MoveReport report;
};
struct SendHolds {
  NodeId to{};
  Holds holds;
};
struct SendRelease {
  NodeId to{};
  Release release;
};
struct ReserveImport {
  MoveId move{};
};
struct StageChunk {  // Overlay the chunk's rows on the staged copy.
  Chunk chunk;
};
struct ResetStaged {};    // The staged rows take their initial values.
struct InstallStaged {};  // The staged rows become the unit's.
struct RelocateRows {     // The unit's rows change to the device where room is reserved.
  MoveId move{};
};
struct DiscardStaged {};
struct TrimRows {};
using NodeAction = std::variant<LogAction, WriteRows, SendPull, SendChunk, SendFinal, SendHolds,
                                SendRelease, SendCovered, SendReport, ReserveImport, StageChunk,
                                ResetStaged, InstallStaged, RelocateRows, DiscardStaged, TrimRows>;

struct NodeStep {
  UnitState state;
  std::vector<NodeAction> actions;
  std::optional<PartAnswer> answer;  // To an UnitUpdate.
};

NodeStep StepNode(const UnitContext& context, UnitState state, const NodeEvent& event);

}  // namespace embla
