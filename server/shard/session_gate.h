// Whose updates a node takes no more.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "server/migration/session_set.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class SessionGate {
 public:
  void Close(const ClosedSessions& closed) {
    const MutexLock lock(mu_);
    closed_.refused.Include(closed.refused);
    closed_.settled.Include(closed.settled);
  }

  // PermissionDenied: the session is closed.
  absl::Status Check(SessionId session) const {
    const MutexLock lock(mu_);
    if (!closed_.refused.Has(session)) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("session ", ToInt(session),
                     " is closed: its trainer ended, or another one took over; connect again"));
  }

  ClosedSessions closed() const {
    const MutexLock lock(mu_);
    return closed_;
  }

 private:
  mutable Mutex mu_;
  ClosedSessions closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
