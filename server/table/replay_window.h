// The updates of all sessions that a table has applied: a retried update takes effect exactly once
// (docs/consistency.md).
//
// One record for all units of a table that have not moved. A unit that moves takes a copy along
// (server/migration/unit_windows.h) and has its own record until it has come to rest
// (server/migration/record_fold.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "server/migration/session_set.h"
#include "server/migration/session_window.h"
#include "server/migration/unit_windows.h"

namespace embla {

// All sessions of one table.
// Thread safety: every method may be called from any thread.
class ReplayWindows {
 public:
  struct Options {
    std::size_t sessions_max = 4096;
    // A session that has been silent this long has no update in flight: longer than any request's
    // deadline. Only such sessions make room for new ones.
    absl::Duration idle_min = absl::Hours(1);
  };
  ReplayWindows() : ReplayWindows(Options{}) {}
  explicit ReplayWindows(Options options) : options_(options) {}

  // Whether (session, seq) has been applied. Also raises the session's floor.
  // ResourceExhausted: too many updates in flight, or too many sessions; never of kStepSession,
  // whose record stays.
  absl::StatusOr<bool> IsApplied(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete,
                                 absl::Time now);
  // Requires: IsApplied answered false, and nobody recorded it since.
  void Record(SessionId session, UpdateSeq seq);

  // The session's floor; 0: nothing is known of it.
  UpdateSeq FloorOf(SessionId session) const;

  // Forgets sessions. Requires: every node refuses their updates from now on, however late.
  void Forget(const SessionSet& sessions);

  // Becomes what was exported elsewhere: whatever was known here is forgotten. Takes all of it,
  // also more sessions than the limit, each as used `now`.
  void Import(const UnitWindows& windows, absl::Time now);
  // Has applied what `windows` have applied, too; sessions as for Import.
  void Include(const UnitWindows& windows, absl::Time now);
  // All of it, to travel with a unit.
  UnitWindows Export() const;

  std::size_t sessions() const;
  // How often a session was looked at to find one that makes room: the work that limits cost.
  std::uint64_t looks() const;

 private:
  struct Session {
    SessionWindow window;
    absl::Time last_used;
  };

  absl::Status MakeRoom(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::uint64_t, Session> sessions_ ABSL_GUARDED_BY(mu_);
  std::uint64_t looks_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace embla
