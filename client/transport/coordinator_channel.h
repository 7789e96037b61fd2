// The coordinator, as the client calls it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/base/session_proof.h"
#include "core/plan/plan.h"

namespace embla::client {

struct SessionRequest {
  std::string client_name;  // For people.
  std::string trainer;      // ConnectOptions::trainer
  // Nonce of the client, not 0: asking twice with it gives the same session.
  std::uint64_t client_nonce = 0;
  SessionId replaces{};           // The trainer's latest session; 0: it had none.
  std::optional<Rank> rank = {};  // ConnectOptions::rank, and
  std::uint32_t ranks = 0;        // how many there are.
};

// A session, and its turn among those that are open: it decides about replica groups.
struct SessionGrant {
  SessionId session{};  // 0: none, as SessionRequest::replaces is not
  SessionId latest{};   // the trainer's latest session.
  std::uint64_t turn = 0;
  SessionProof proof{};
};

// Thread safety: every method may be called from any thread.
class CoordinatorChannel {
 public:
  virtual ~CoordinatorChannel() = default;

  // The current plan; null: it is not newer than `have`. Errors: Unavailable, DeadlineExceeded.
  virtual absl::StatusOr<PlanPtr> GetPlan(const PlanPtr& have, absl::Time deadline) = 0;
  // Unavailable also while the session before of the same trainer is being closed.
  // PermissionDenied: the session that this client was given is closed.
  virtual absl::StatusOr<SessionGrant> OpenSession(const SessionRequest& request,
                                                   absl::Time deadline) = 0;
  virtual absl::Status CloseSession(SessionId session, const SessionProof& proof,
                                    absl::Time deadline) = 0;

  // The session's rank wants to be a member of the tables' steps. The coordinator keeps that in
  // mind for seconds: whoever waits for it repeats it.
  virtual absl::Status JoinSteps(SessionId session, const SessionProof& proof,
                                 std::span<const TableId> tables, absl::Time deadline) = 0;

  // Calls `on_plan` with every plan newer than `have`, on a thread of the channel, until
  // StopWatch, and keeps the lease of `session` meanwhile. Reconnects for ever, with jittered
  // backoff. Call once.
  virtual void StartWatch(PlanPtr have, const SessionGrant& session,
                          std::function<void(PlanPtr)> on_plan) = 0;
  // When it returns, on_plan is not running and will not run again.
  virtual void StopWatch() = 0;
};

}  // namespace embla::client
