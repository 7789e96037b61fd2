// Which sessions are closed, and whose session is whose. In the store:
//   sessions/closed   {"ranges": [first, last, first, last, ...]}
//   sessions/of/NAME  {"incarnation": i, "session": s}: the latest of the trainer NAME, and its
//                     client
//
// Closing is done in rounds: all that was closed when a round begins is settled when every node has
// said that it refuses that many sessions. What is settled is not in the store: it is found out
// again after a restart.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/migration/session_set.h"
#include "server/state_store/state_store.h"

namespace embla {

using ClosedSessionsPtr = std::shared_ptr<const ClosedSessions>;

struct TrainerSession {
  SessionId session{};
  std::uint64_t incarnation = 0;  // Of the client that it was given to; not 0.
};

// Thread safety: none.
class SessionRegistry {
 public:
  // DataLoss: what is in the store is none. `store` is not owned and outlives this object.
  static absl::StatusOr<SessionRegistry> Load(StateStore& store);

  // Errors: those of the store; nothing has changed.
  absl::Status Close(SessionId session);
  // `latest` is the trainer's from now on. Requires: the session before is closed.
  // Errors: those of the store; nothing has changed.
  absl::Status SetLatestOf(const std::string& trainer, const TrainerSession& latest);
  // 0 and 0: the trainer has had none.
  TrainerSession LatestOf(const std::string& trainer) const;

  // Every node refuses at least `refused` sessions. True: more has settled.
  bool Settle(std::uint64_t refused);

  // What nodes are told; never null.
  ClosedSessionsPtr closed() const { return closed_; }

 private:
  explicit SessionRegistry(StateStore& store) : store_(&store) {}

  void Publish(ClosedSessions closed) {
    closed_ = std::make_shared<const ClosedSessions>(std::move(closed));
  }

  StateStore* store_;  // Not owned; outlives this object.
  ClosedSessionsPtr closed_ = std::make_shared<const ClosedSessions>();
  SessionSet round_;  // What is to be settled next.
  Revision closed_revision_{};
  struct Trainer {
    TrainerSession latest;
    Revision revision{};
  };
  std::map<std::string, Trainer> trainers_;
};

}  // namespace embla
