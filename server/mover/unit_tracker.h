// One unit's state in the protocol of moves, on the thread of its table's lead device, and the gate
// that its updates go through there.
//
// A unit that is not being moved is at rest: only its windows and its owner matter, so an update
// costs one window lookup, and nobody counts lsns or touched chunks. Before a move looks at the
// unit it wakes up: its lsn is raised by one, and every chunk counts as touched at that lsn. This
// covers all updates at rest.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "server/migration/move_ids.h"
#include "server/migration/node_step.h"
#include "server/migration/unit_host.h"
#include "server/migration/unit_state.h"
#include "server/mover/restored_unit.h"

namespace embla {

enum class UnitPhase : std::uint8_t {
  kElsewhere,  // The node has nothing of it.
  kAtRest,     // Owned, and not being moved.
  kSending,
  kFrozen,     // Its updates are refused: it is being handed over.
  kReceiving,  // On its way, or owned, and memory is reserved on another device.
  kHolding,    // Received whole: its source decides.
  kRetained,   // Handed over; the rows are kept until the new owner's are safe.
};

// A unit's state after a step, for other threads.
struct UnitStatus {
  UnitPhase phase = UnitPhase::kElsewhere;
  MoveId move{};                 // The move for which it is sent, received, or retained.
  absl::Time frozen_since = {};  // kFrozen.
  bool is_tired = false;         // A freeze has lasted too long: none before the next tick.
  UnitRecord seen = {};
};

// Thread safety: none; only the table's lead device calls it, inside UnitHost::RunInOrder or as a
// gate.
class UnitTracker final : public UnitGate {
 public:
  struct Stepped {
    std::vector<NodeAction> actions;
    UnitStatus status;
  };

  // Begins with nothing of the unit on the node. `clock` is not owned and outlives the tracker.
  UnitTracker(const UnitContext& context, const Clock& clock);

  // The unit was here before the tracker, under `epoch`; nothing was sent at `lsn` or above.
  void Adopt(UnitEpoch epoch, UnitWindows windows, Lsn lsn);
  // Resumes where an earlier process ended. Requires: nothing was asked of the tracker yet.
  // `folded`: the plan under which the unit joined the rest's record; 0: it has not.
  void Restore(UnitDurable durable, ChunkVersions staged, PlanVersion folded);
  // The unit as the node's log yields it, but for the place of an import's memory. Requires: the
  // records of all steps so far are in the log.
  RestoredUnit Logged(const UnitId& unit) const;

  // The unit goes by the record of its table's rest, which takes in what is returned, until it
  // takes a copy of that one back. It is not stepped in between. Requires: MayFold().
  UnitWindows Fold(PlanVersion plan);
  void TakeBack(UnitWindows windows);
  bool is_folded() const { return folded_ != PlanVersion{}; }
  // At rest, and no answer to any of its steps is on its way.
  bool MayFold() const;

  // Requires: one ReservedEvent for each ReserveImport, in their order.
  Stepped Step(const NodeEvent& event);

  // Whether the rows of `chunk` are worth staging. They count as being staged from then on; a
  // ChunkEvent follows when they are, StagingFailed when they cannot be.
  bool WantsRows(const Chunk& chunk);
  void StagingFailed(const Chunk& chunk);

  PartAnswer Check(const UnitUpdate& update) const override;
  void Apply(const UnitUpdate& update) override;
  void ForgetSessions(const SessionSet& sessions) override {
    state_.durable.windows.Forget(sessions);
  }
  PartAnswer CheckLookup() const override;
  bool IsAtRest() const override;
  bool TakesAveraging() const override { return Owns(state_) && !IsFrozen(state_); }
  void Averaged(bool all) override;
  UnitStepping Stepping() const override;
  UnitStanding Standing() const override { return StandingOf(state_); }

  const UnitState& state() const { return state_; }
  bool is_adopted() const { return is_adopted_; }
  UnitStatus Status();

 private:
  // Whether memory was reserved for a move, or is asked for.
  bool HasRoom() const;
  bool IsAsleep() const { return awake_for_ == MoveId{0}; }
  // If the unit is owned under `epoch`, takes updates, and sleeps as far as `move` goes.
  void WakeFor(UnitEpoch epoch, MoveId move);
  void WakeBefore(const NodeEvent& event);
  // Updates at rest are not counted: a cut from before says nothing of them.
  bool IsOfCutBeforeRest(const NodeEvent& event) const;
  void WakeIfOpened(const UnitRecord& record);
  void RestIfEnded();
  void NoteMemory(std::vector<NodeAction>& actions);
  void RunStep(const NodeEvent& event, std::vector<NodeAction>& actions);

  const UnitContext context_;
  const Clock& clock_;  // Not owned; outlives this object.

  UnitState state_;
  bool is_adopted_ = false;
  PlanVersion folded_{};     // The plan under which it joined the rest; 0: it has not.
  MoveId awake_for_{0};      // 0: at rest.
  Lsn averaged_{0};          // Copies of chunks that were touched no later are equal; 0: not known.
  int reserves_open_ = 0;    // ReserveImports that no ReservedEvent has come for.
  bool has_memory_ = false;  // The last of them has not been discarded or installed.
  // Versions that are being staged for an import, by chunk.
  MoveId staging_for_{0};
  ChunkVersions staging_;
  absl::Time frozen_since_ = absl::InfiniteFuture();
};

}  // namespace embla
