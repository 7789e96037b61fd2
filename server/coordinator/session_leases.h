// How long open sessions are kept without a word of their clients.
//
// A client keeps its session by a WatchPlan call that names it. While at least one is open, and for
// the length of a lease after the last one has ended, the session lives. Time counts only while
// this coordinator runs: its ticks add up, and one that comes late, after a pause of the process or
// a step of the clock, adds no more than kStepMax. So no outage of the coordinator ends a session,
// and after a restart all leases begin anew.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/base/ids.h"

namespace embla {

// Thread safety: none.
class SessionLeases {
 public:
  static constexpr absl::Duration kStepMax = absl::Seconds(1);

  SessionLeases(absl::Duration lease, absl::Time now) : lease_(lease), ticked_(now) {}

  void Tick(absl::Time now) {
    uptime_ += std::clamp(now - ticked_, absl::ZeroDuration(), kStepMax);
    ticked_ = now;
  }

  // Its client has said something, and has opened `watches` calls since the last time, or closed
  // them, if negative.
  void Hear(SessionId session, int watches = 0) {
    Lease& lease = leases_[session];
    waiting_.erase({lease.until, session});
    lease.watches += watches;
    lease.until = uptime_ + lease_;
    if (lease.watches <= 0) waiting_.insert({lease.until, session});
  }

  // The session is closed.
  void Drop(SessionId session) {
    const auto known = leases_.find(session);
    if (known == leases_.end()) return;
    waiting_.erase({known->second.until, session});
    leases_.erase(known);
  }

  // Sessions whose leases are over, at most `count`.
  std::vector<SessionId> Over(std::size_t count) const {
    std::vector<SessionId> over;
    for (const auto& [until, session] : waiting_) {
      if (until > uptime_ || over.size() == count) break;
      over.push_back(session);
    }
    return over;
  }

  // Whether sessions of which nothing was heard in this process's life are over.
  bool has_run_once() const { return uptime_ >= lease_; }
  bool Has(SessionId session) const { return leases_.contains(session); }
  // The first `count` sessions by id, and how many calls of their clients are open.
  std::vector<std::pair<SessionId, int>> First(std::size_t count) const {
    std::vector<std::pair<SessionId, int>> first;
    for (const auto& [session, lease] : leases_) {
      if (first.size() == count) break;
      first.emplace_back(session, lease.watches);
    }
    return first;
  }
  std::size_t size() const { return leases_.size(); }

 private:
  struct Lease {
    int watches = 0;
    absl::Duration until;  // End of the lease on uptime_; unused while there are watches.
  };

  const absl::Duration lease_;
  absl::Time ticked_;
  absl::Duration uptime_;
  std::map<SessionId, Lease> leases_;
  std::set<std::pair<absl::Duration, SessionId>> waiting_;  // Without watches, the first to end.
};

}  // namespace embla
