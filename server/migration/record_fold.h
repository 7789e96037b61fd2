// Decides when the record of updates of a unit that came to rest can join that of the table's other
// units, "the rest" (docs/consistency.md, "Units that came to rest"). One object for a copy of a
// table on one node; pure.
//
// One record for two sets of rows is right if no update has rows in both that reach the node in two
// requests. A sender makes two requests of them only where some plan that it routed the update by,
// or a hint of a node, had put them on different nodes, or where one request had some of its rows
// left out. So:
//
//   Begin    under a plan that has the unit here; what the rest has applied is noted. The plan is
//            newer than the unit's arrival: an older one may have had it here at an earlier time
//   Note     so is what the unit has applied: any of it may be one half of an update
//   Look     senders have said of all that was noted that it is over
//   Join     the unit's record joins the rest's
//
// In between, whatever may begin another update in two halves ends the wait (Cancel): a request
// that was routed by an older plan, rows that were left out, a unit that is not at rest. After
// Join, an update that was first routed by an older plan, which may come in halves, is not decided:
// the units that have joined are taken apart before it, with a copy of the rest's record each. It
// is in no record then, or its halves would have been waited for.
//
// tests/model/fold_world.h drives this code through every order of events, and takes each condition
// away once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "core/base/ids.h"
#include "server/migration/move_ids.h"
#include "server/migration/unit_windows.h"

namespace embla {

// The conditions above, by name; nothing but the model checker may clear one.
struct FoldGuards {
  bool noted_is_over = true;      // Join waits until all that was noted is over.
  bool stale_cancels = true;      // A request routed by an older plan ends the wait.
  bool stale_takes_apart = true;  // After Join, units are taken apart before such an update.

  // Guards of the code that executes it.
  bool since_is_first = true;      // Senders name the first plan of all attempts, not the last one,
  bool hints_are_dated = true;     // or that of a node whose hints they go by, if it is older.
  bool hints_are_asked = true;     // A node names places of units that it was asked for only.
  bool plan_has_unit = true;       // A fold begins under a plan that has the unit here,
  bool plan_after_arrival = true;  // that came later than the news that the unit is here,
  bool plan_was_sent = true;       // and that this process was sent, not its log.
  bool left_out_cancels = true;    // Rows that are left out of an update end the wait,
  bool unrest_cancels = true;      // and so does a unit that moves or leaves.
  bool records_join = true;        // The rest's record takes in the unit's,
  bool apart_with_record = true;   // and a unit that is taken apart takes a copy of it along.
  bool fold_is_logged = true;      // The next process knows which records are one.
};

struct FoldGuardName {
  std::string_view name;
  bool FoldGuards::*guard;
};

inline constexpr std::array kFoldGuardNames = {
    FoldGuardName{"noted_is_over", &FoldGuards::noted_is_over},
    FoldGuardName{"stale_cancels", &FoldGuards::stale_cancels},
    FoldGuardName{"stale_takes_apart", &FoldGuards::stale_takes_apart},
    FoldGuardName{"since_is_first", &FoldGuards::since_is_first},
    FoldGuardName{"hints_are_dated", &FoldGuards::hints_are_dated},
    FoldGuardName{"hints_are_asked", &FoldGuards::hints_are_asked},
    FoldGuardName{"plan_has_unit", &FoldGuards::plan_has_unit},
    FoldGuardName{"plan_after_arrival", &FoldGuards::plan_after_arrival},
    FoldGuardName{"plan_was_sent", &FoldGuards::plan_was_sent},
    FoldGuardName{"left_out_cancels", &FoldGuards::left_out_cancels},
    FoldGuardName{"unrest_cancels", &FoldGuards::unrest_cancels},
    FoldGuardName{"records_join", &FoldGuards::records_join},
    FoldGuardName{"apart_with_record", &FoldGuards::apart_with_record},
    FoldGuardName{"fold_is_logged", &FoldGuards::fold_is_logged},
};

// A value. Thread safety: none; of the table's lead device.
class RecordFold {
 public:
  // Whether an update up to `seq` of the session can be on its way no more.
  using IsOver = std::function<bool(SessionId session, UpdateSeq seq)>;

  RecordFold() = default;
  explicit RecordFold(const FoldGuards& guards) : guards_(guards) {}

  // A plan so far beyond the node's may come from a coordinator that was put back in time, and have
  // units elsewhere that are here (docs/decisions/0016-going-back-in-time.md: it jumps by 1,000).
  static constexpr std::uint64_t kPlansAheadMax = 500;

  // Asked before an update is decided that was first routed by plan `routed_since` (0: not known),
  // on a node that goes by plan `installed`. False: units have to be taken apart before it;
  // asks_apart() says so, too.
  bool Admit(PlanVersion routed_since, PlanVersion installed);
  void Cancel();

  // Requires: plan is not 0, and is the node's current one.
  void Begin(PlanVersion plan, const UnitWindows& rest);
  // Requires: is_waiting(); `unit` is at rest, has a record of its own, and is here by plan().
  void Note(const UnitId& unit, const UnitWindows& windows);
  void Look(const IsOver& is_over);
  bool MayJoin(const UnitId& unit) const { return is_ready_ && HasNoted(unit); }
  // Requires: MayJoin(unit).
  void Join(const UnitId& unit);
  // For a unit that has joined in an earlier process.
  void Restore(PlanVersion folded);
  // Every unit has a record of its own again.
  void TakenApart();

  bool is_waiting() const { return plan_ != PlanVersion{}; }
  bool has_units() const { return !units_.empty(); }  // Whether any unit was noted.
  // The plan under which the fold waits; 0: it does not wait.
  PlanVersion plan() const { return plan_; }
  PlanVersion folded() const { return folded_; }  // The newest of a unit that has joined; 0: none.
  bool asks_apart() const { return asks_apart_; }
  bool HasNoted(const UnitId& unit) const { return units_.count(unit) != 0; }
  // Sessions that are waited for.
  const std::map<SessionId, UpdateSeq>& noted() const { return noted_; }

 private:
  void Note(const UnitWindows& windows);

  FoldGuards guards_;
  PlanVersion plan_{};
  std::map<SessionId, UpdateSeq> noted_;  // The highest seq.
  std::set<UnitId> units_;                // Units that were noted.
  bool is_ready_ = false;
  PlanVersion folded_{};
  bool asks_apart_ = false;
};

}  // namespace embla
