// Sessions: opened, closed, and refused by every node before anything is done on the strength of
// it (session_registry.h).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/table_spec.h"
#include "server/coordinator/coordinator.h"

namespace embla {

absl::StatusOr<SessionGrant> Coordinator::OpenSession(const SessionRequest& request) {
  if (!request.trainer.empty()) return OpenTrainerSession(request);
  EMBLA_ASSIGN_OR_RETURN(const SessionId session, records_.NextSession(store_));
  return Grant(session, request);
}

absl::StatusOr<SessionGrant> Coordinator::OpenTrainerSession(const SessionRequest& request) {
  EMBLA_RETURN_IF_ERROR(ValidateName("trainer", request.trainer));
  if (request.incarnation == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trainer ", request.trainer, ": a client with a trainer's name has an incarnation"));
  }
  const TrainerSession latest = sessions_.LatestOf(request.trainer);
  if (latest.incarnation == request.incarnation) return GrantAgain(latest.session, request);
  if (latest.session != request.replaces) return SessionGrant{.latest = latest.session};
  EMBLA_RETURN_IF_ERROR(EndSession(latest.session, request.trainer));
  EMBLA_ASSIGN_OR_RETURN(const SessionId session, records_.NextSession(store_));
  EMBLA_RETURN_IF_ERROR(sessions_.SetLatestOf(request.trainer, {session, request.incarnation}));
  return Grant(session, request);
}

SessionGrant Coordinator::Grant(SessionId session, const SessionRequest& request) {
  ++sessions_opened_;
  const std::uint64_t turn = turns_.Take(session);
  LogInfo("coordinator", "session opened session=", ToInt(session), " turn=", turn,
          " client=", request.client_name.substr(0, 128), " trainer=", request.trainer);
  return {.session = session, .turn = turn};
}

absl::StatusOr<SessionGrant> Coordinator::GrantAgain(SessionId session,
                                                     const SessionRequest& request) {
  if (sessions_.closed()->refused.Has(session)) {
    return absl::PermissionDeniedError(
        absl::StrCat("session ", ToInt(session), " of trainer ", request.trainer,
                     " is closed: its client ended, or another one took over; connect again"));
  }
  return SessionGrant{.session = session, .turn = turns_.Take(session)};
}

absl::Status Coordinator::EndSession(SessionId session, const std::string& trainer) {
  if (session == SessionId{}) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(CloseSession(session));
  if (sessions_.closed()->settled.Has(session)) return absl::OkStatus();
  std::vector<std::string> waiting_for;
  for (const NodeView& node : membership_.Views()) {
    const bool refuses_all = node.sessions_refused >= sessions_.closed()->refused.size();
    if (MayTakeUpdates(node) && !refuses_all) waiting_for.push_back(node.spec.name);
  }
  return absl::UnavailableError(
      absl::StrCat("session ", ToInt(session), " of trainer ", trainer,
                   " is being closed; it is not known yet that these nodes refuse it: ",
                   absl::StrJoin(waiting_for, ", "), "; ask again"));
}

absl::Status Coordinator::CloseSession(SessionId session) {
  if (!records_.SessionWasGiven(session)) {
    return absl::NotFoundError(absl::StrCat("session ", ToInt(session), " was never given out"));
  }
  if (sessions_.closed()->refused.Has(session)) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(sessions_.Close(session));
  turns_.Give(session);
  ++sessions_closed_;
  LogInfo("coordinator", "session closed session=", ToInt(session));
  effects_.emplace_back(PublishSessions{sessions_.closed()});
  SettleSessions();  // Perhaps there is no node.
  return absl::OkStatus();
}

// A node that is away and has no slices gets some, or units on the move, from this coordinator
// only, and hears of the closed sessions first.
bool Coordinator::MayTakeUpdates(const NodeView& node) const {
  if (node.live()) return true;
  for (const TablePlan& table : plan_->tables()) {
    if (HoldersOf(table).contains(node.spec.id)) return true;
  }
  return false;
}

void Coordinator::SettleSessions() {
  std::uint64_t refused = sessions_.closed()->refused.size();
  for (const NodeView& node : membership_.Views()) {
    if (MayTakeUpdates(node)) refused = std::min(refused, node.sessions_refused);
  }
  bool has_more = false;
  while (sessions_.Settle(refused)) has_more = true;
  if (has_more) effects_.emplace_back(PublishSessions{sessions_.closed()});
}

}  // namespace embla
