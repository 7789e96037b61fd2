// Turns of sessions: the smallest number that no open session has. They decide which replica group
// a trainer gets, so groups have equally many trainers as long as sessions are closed when they
// end. Turns live as long as the coordinator: after its restart they begin again from 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "core/base/ids.h"

namespace embla {

class SessionTurns {
 public:
  // The turn that the session has, if it has one.
  std::uint64_t Take(SessionId session) {
    if (const auto known = turns_.find(session); known != turns_.end()) return known->second;
    std::uint64_t turn = turns_.size();
    if (!free_.empty()) {
      turn = *free_.begin();
      free_.erase(free_.begin());
    }
    turns_.emplace(session, turn);
    return turn;
  }

  // Sessions without a turn are ignored.
  void Give(SessionId session) {
    const auto found = turns_.find(session);
    if (found == turns_.end()) return;
    free_.insert(found->second);
    turns_.erase(found);
  }

 private:
  // Invariant: turns_ and free_ together have every number below their joint size once.
  std::map<SessionId, std::uint64_t> turns_;
  std::set<std::uint64_t> free_;
};

}  // namespace embla
