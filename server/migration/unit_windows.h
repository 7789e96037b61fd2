// The updates of all sessions that one unit has applied: the part of exactly-once that travels with
// the rows. A value: it is copied into the final cut of a move, into log records and checkpoints.
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
  std::vector<SessionWindow> sessions_;  // Ascending by session.
};

}  // namespace embla
