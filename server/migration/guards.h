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
  bool unfreeze_by_record = true;      // Only the store's record ends a freeze, no timer does.
  bool freeze_persisted = true;        // FREEZE is in the log before the final cut leaves.
  bool version_is_applied = true;      // A chunk claims what was written, not what was decided.
  bool windows_travel = true;          // The dedup windows are part of the final cut.
  bool source_min_move = true;         // A freeze of an ended move is dropped.
  bool trim_waits_for_cleanup = true;  // A released copy stays until the record says CLEANED.

  // The target.
  bool target_min_move = true;  // An import of an ended move never starts again.
  bool chunk_order = true;      // An older chunk never overwrites a newer one.
  // A delta is applied only to the state that it was computed against.
  bool delta_base = true;
  bool seal_checks_chunks = true;  // SEAL needs every chunk as new as the final cut says.
  bool seal_persisted = true;      // SEAL is in the log before anyone is told.
  bool activate_on_record = true;  // The target serves on the committed record, not on its seal.

  // The coordinator and the record.
  bool compare_and_put = true;          // The record changes only from the value that was read.
  bool commit_needs_open = true;        // An aborted move never commits.
  bool commit_matches_move = true;      // A seal commits the move it was made for.
  bool cleanup_waits_for_cover = true;  // CLEANED only when the new copy survives on its own.
  bool open_waits_for_cleanup = true;   // The next move only after CLEANED.
  bool facts_are_repeated = true;       // Each tick says again what may have been lost.

  // The next process.
  // The log gives out no lsn that an earlier process may have used and lost.
  bool lsns_begin_anew = true;
};

inline constexpr Guards kAllGuards = {};

struct GuardName {
  std::string_view name;
  bool Guards::*guard;
};

inline constexpr std::array kGuardNames = {
    GuardName{"dedup_checked", &Guards::dedup_checked},
    GuardName{"fence_at_apply", &Guards::fence_at_apply},
    GuardName{"unfreeze_by_record", &Guards::unfreeze_by_record},
    GuardName{"freeze_persisted", &Guards::freeze_persisted},
    GuardName{"version_is_applied", &Guards::version_is_applied},
    GuardName{"windows_travel", &Guards::windows_travel},
    GuardName{"source_min_move", &Guards::source_min_move},
    GuardName{"trim_waits_for_cleanup", &Guards::trim_waits_for_cleanup},
    GuardName{"target_min_move", &Guards::target_min_move},
    GuardName{"chunk_order", &Guards::chunk_order},
    GuardName{"delta_base", &Guards::delta_base},
    GuardName{"seal_checks_chunks", &Guards::seal_checks_chunks},
    GuardName{"seal_persisted", &Guards::seal_persisted},
    GuardName{"activate_on_record", &Guards::activate_on_record},
    GuardName{"compare_and_put", &Guards::compare_and_put},
    GuardName{"commit_needs_open", &Guards::commit_needs_open},
    GuardName{"commit_matches_move", &Guards::commit_matches_move},
    GuardName{"cleanup_waits_for_cover", &Guards::cleanup_waits_for_cover},
    GuardName{"open_waits_for_cleanup", &Guards::open_waits_for_cleanup},
    GuardName{"facts_are_repeated", &Guards::facts_are_repeated},
    GuardName{"lsns_begin_anew", &Guards::lsns_begin_anew},
};

}  // namespace embla
