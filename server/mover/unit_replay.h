// Reads the records of a MoveLog back: what the node knew of each of its units when it died.
//
// The replayer of a log calls one method per record, in their order, and does with the tables what
// the record stands for:
//
//   record                 tables (UnitHost)                 UnitReplay
//   a process begins       -                                 BeginProcess
//   an update              its rows, as they were decided    Apply, per unit that applied it
//   Adopted                -                                 Adopt
//   Folded                 JoinRest                          Fold
//   Reserved               Discard if told to, then Reserve  Reserve
//   Chunk                  Stage                             Stage
//   Own                    Reset if it begins anew; Install  Control
//   Trim, Discard          Trim, Discard                     Control
//   Relocate               Relocate                          Control
//   other control records  -                                 Control
//   a table is dropped     its rows go                       DropTable
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/migration/move_ids.h"
#include "server/migration/unit_state.h"
#include "server/migration/unit_windows.h"
#include "server/mover/restored_unit.h"

namespace embla {

// Errors, all DataLoss: the record cannot follow those before it.
// Thread safety: none.
class UnitReplay {
 public:
  // Begins with what a process, the one of that number, knew of its units. Requires: nothing was
  // replayed.
  void Restore(std::uint64_t log_process, std::vector<RestoredUnit> units);
  // A process opened the log. Also called for the one that replays, at the end.
  void BeginProcess();
  std::uint64_t log_process() const { return log_process_; }

  // `windows` are those of the table's rest at this point; `chunks` are the unit's. A unit that was
  // folded back has a record of its own again.
  void Adopt(const UnitId& unit, std::uint32_t chunks, UnitEpoch epoch, UnitWindows windows);
  absl::Status Apply(const UnitId& unit, SessionId session, UpdateSeq seq,
                     UpdateSeq first_incomplete);
  // Returns the windows that join those of the table's rest.
  absl::StatusOr<UnitWindows> Fold(const UnitId& unit, PlanVersion plan);
  // Whether the unit has windows of its own, and they have the update.
  bool HasApplied(const UnitId& unit, SessionId session, UpdateSeq seq) const;
  // True: the host still has memory that was given back without a record; Discard comes first.
  bool Reserve(const UnitId& unit, std::uint32_t chunks, std::uint32_t device, const RowRun& run);
  absl::Status Stage(const UnitId& unit, const Chunk& chunk);
  absl::Status Control(const UnitId& unit, const LogRecord& record);
  void DropTable(TableId table);
  void ForgetSessions(const SessionSet& sessions);

  // Whether the unit has windows of its own. False for a unit that is not on this node.
  bool Owns(const UnitId& unit) const;

  std::vector<RestoredUnit> Take() &&;

 private:
  RestoredUnit& At(const UnitId& unit, std::uint32_t chunks);

  std::uint64_t log_process_ = 0;
  std::map<UnitId, RestoredUnit> units_;
};

}  // namespace embla
