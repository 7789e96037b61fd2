// The updates of all sessions that one unit has applied: a retried update takes effect exactly once
// (docs/consistency.md). A value: it travels with the rows, in the final cut of a move, in log
// records and in snapshots.
//
// A unit that has moved has its own until it has come to rest (server/migration/record_fold.h); all
// units of a table that have none share one (TableShard::rest).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/migration/session_set.h"
#include "server/migration/session_window.h"

namespace embla {

class UnitWindows {
 public:
  using Verdict = SessionWindow::Verdict;

  UnitWindows() = default;
  // From a list that was received. InvalidArgument: sessions not ascending, or a floor of 0.
  static absl::StatusOr<UnitWindows> FromSessions(std::vector<SessionWindow> sessions);

  // The verdict after the sender's `first_incomplete` has been applied.
  Verdict Classify(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete) const;
  // Whether it has been applied. ResourceExhausted: kTooNew.
  absl::StatusOr<bool> IsApplied(SessionId session, UpdateSeq seq,
                                 UpdateSeq first_incomplete) const;
  // Raises the session's floor to `first_incomplete` and sets the bit of `seq`; one that was set
  // stays. Requires: Classify() != kTooNew.
  void Record(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete);
  // The session's floor; 0: nothing is known of it.
  UpdateSeq FloorOf(SessionId session) const;
  // Has applied what `other` has applied, too.
  void Include(const UnitWindows& other);
  // Forgets sessions. Requires: every node refuses their updates from now on, however late.
  void Forget(const SessionSet& sessions);

  std::span<const SessionWindow> sessions() const { return sessions_; }
  bool operator==(const UnitWindows&) const = default;

 private:
  // A copy, after the sender's `first_incomplete` has been applied.
  SessionWindow WindowOf(SessionId session, UpdateSeq first_incomplete) const;

  std::vector<SessionWindow> sessions_;  // Ascending by session.
};

}  // namespace embla
