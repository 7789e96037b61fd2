// The sessions whose clients watch the plan: from gRPC's threads, which must not wait, to the
// coordinator's, which asks at each tick.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class SessionWatchers {
 public:
  // `watches`: 1 for a call that begins, -1 for one that ends, 0 for a word of the client.
  void Hear(SessionId session, int watches) {
    const MutexLock lock(mu_);
    heard_[ToInt(session)] += watches;
  }

  // Sessions heard of since the last time.
  std::vector<std::pair<SessionId, int>> Take() {
    const MutexLock lock(mu_);
    std::vector<std::pair<SessionId, int>> all;
    for (const auto& [session, watches] : heard_) all.emplace_back(SessionId{session}, watches);
    heard_.clear();
    return all;
  }

 private:
  Mutex mu_;
  absl::flat_hash_map<std::uint64_t, int> heard_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
