// The conditions the migration protocol stands on, each by name. docs/migration.md says what breaks
// without each of them; tests/model shows it, by taking one away at a time.
//
// Production runs with all of them, always: nothing but the model checker may clear one.
#pragma once

#include <array>
#include <string_view>

namespace embla {

struct Guards {
  // Every update.
  bool dedup_checked = true;   // An update in the window is acknowledged, not applied.
  bool fence_at_apply = true;  // Owner and freeze are checked again where the update is decided.

  // The source.
  bool version_is_applied = true;  // A chunk claims what was written, not what was decided.
  bool windows_travel = true;      // The dedup windows are part of the cut.
  bool source_min_move = true;     // Late messages of an ended move are dropped.
  bool holds_match_cut = true;     // It lets go only if the target holds the unit as it is now.
  bool release_synced = true;      // RELEASE is on disk before anyone is told.
  bool reads_stop = true;          // Lookups end before the target is told.
  bool abort_synced = true;        // ABORT is on disk before anyone is told.
  bool trim_waits = true;          // The kept rows stay until the target says that it is covered.

  // The target.
  bool target_min_move = true;  // An import of an ended move never starts again.
  bool chunk_order = true;      // An older chunk never overwrites a newer one.
  // A delta is applied only to the state that it was computed against.
  bool delta_base = true;
  bool holds_every_chunk = true;   // It holds a cut when every chunk is as new as that says,
  bool cut_is_newest = true;       // and none is newer.
  bool acquire_waits = true;       // It serves on the source's word, not on what it holds.
  bool acquire_checks_cut = true;  // The source's word is about the very cut that it holds.
  bool cover_synced = true;        // It says that it is covered when its log is on disk.
  bool promise_synced = true;      // So is what it promises of a move whose source is lost.

  // The coordinator and the record.
  bool compare_and_put = true;     // The record changes only from the value that was read.
  bool abort_asks_source = true;   // A move is aborted by the source's word only.
  bool facts_match_move = true;    // The end of a move changes no record of another one.
  bool facts_are_repeated = true;  // Each tick says again what may have been lost.

  // The next process.
  // The log gives out no lsn that an earlier process may have used and lost.
  bool lsns_begin_anew = true;
  // Where the directory was put back, the moves of before end first, by their targets' words.
  bool lost_moves_end = true;
  bool owners_agree = true;  // And it lets go of what is another node's before it serves.
};

inline constexpr Guards kAllGuards = {};

struct GuardName {
  std::string_view name;
  bool Guards::*guard;
};

inline constexpr std::array kGuardNames = {
    GuardName{"dedup_checked", &Guards::dedup_checked},
    GuardName{"fence_at_apply", &Guards::fence_at_apply},
    GuardName{"version_is_applied", &Guards::version_is_applied},
    GuardName{"windows_travel", &Guards::windows_travel},
    GuardName{"source_min_move", &Guards::source_min_move},
    GuardName{"holds_match_cut", &Guards::holds_match_cut},
    GuardName{"release_synced", &Guards::release_synced},
    GuardName{"reads_stop", &Guards::reads_stop},
    GuardName{"abort_synced", &Guards::abort_synced},
    GuardName{"trim_waits", &Guards::trim_waits},
    GuardName{"target_min_move", &Guards::target_min_move},
    GuardName{"chunk_order", &Guards::chunk_order},
    GuardName{"delta_base", &Guards::delta_base},
    GuardName{"holds_every_chunk", &Guards::holds_every_chunk},
    GuardName{"cut_is_newest", &Guards::cut_is_newest},
    GuardName{"acquire_waits", &Guards::acquire_waits},
    GuardName{"acquire_checks_cut", &Guards::acquire_checks_cut},
    GuardName{"cover_synced", &Guards::cover_synced},
    GuardName{"promise_synced", &Guards::promise_synced},
    GuardName{"compare_and_put", &Guards::compare_and_put},
    GuardName{"abort_asks_source", &Guards::abort_asks_source},
    GuardName{"facts_match_move", &Guards::facts_match_move},
    GuardName{"facts_are_repeated", &Guards::facts_are_repeated},
    GuardName{"lsns_begin_anew", &Guards::lsns_begin_anew},
    GuardName{"lost_moves_end", &Guards::lost_moves_end},
    GuardName{"owners_agree", &Guards::owners_agree},
};

}  // namespace embla
