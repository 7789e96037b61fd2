// Sessions: opened, closed, and refused by every node before anything is done on the strength of
// it (session_registry.h).
#include <algorithm>
#include <optional>
#include <span>
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
namespace {

// Most sessions that are open at once: the bound on what the coordinator, and each table, remember
// of them.
constexpr std::size_t kOpenSessionsMax = 65'536;

}  // namespace

absl::StatusOr<SessionId> Coordinator::NextSession() {
  if (leases_.size() < kOpenSessionsMax) return sessions_.Next();
  return absl::ResourceExhaustedError(
      absl::StrCat(leases_.size(), " sessions are open, and at most ", kOpenSessionsMax,
                   " may be: close some; those of clients that are gone end with their leases"));
}

absl::StatusOr<SessionGrant> Coordinator::OpenSession(const SessionRequest& request) {
  EMBLA_RETURN_IF_ERROR(CheckRank(request));
  if (!request.trainer.empty()) return OpenTrainerSession(request);
  EMBLA_ASSIGN_OR_RETURN(const SessionId session, NextSession());
  EMBLA_RETURN_IF_ERROR(DeclareRank(session, request));
  return Grant(session, request);
}

absl::StatusOr<SessionGrant> Coordinator::OpenTrainerSession(const SessionRequest& request) {
  EMBLA_RETURN_IF_ERROR(ValidateName("trainer", request.trainer));
  if (request.client_nonce == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trainer ", request.trainer, ": a client with a trainer's name has a client_nonce"));
  }
  const TrainerSession latest = sessions_.LatestOf(request.trainer);
  if (latest.client_nonce == request.client_nonce) return GrantAgain(latest.session, request);
  // A settled session may have been forgotten since it was asked for.
  const bool is_over = latest.session == SessionId{} && sessions_.IsSettled(request.replaces);
  if (latest.session != request.replaces && !is_over) {
    return SessionGrant{.latest = latest.session};
  }
  EMBLA_RETURN_IF_ERROR(EndSession(latest.session, request));
  EMBLA_ASSIGN_OR_RETURN(const SessionId session, NextSession());
  EMBLA_RETURN_IF_ERROR(DeclareRank(session, request));
  EMBLA_RETURN_IF_ERROR(sessions_.SetLatestOf(request.trainer, {session, request.client_nonce}));
  return Grant(session, request);
}

SessionGrant Coordinator::Grant(SessionId session, const SessionRequest& request) {
  ++sessions_opened_;
  leases_.Hear(session);
  const std::uint64_t turn = turns_.Take(session);
  LogInfo("coordinator", "session opened session=", ToInt(session), " turn=", turn,
          " client=", request.client_name.substr(0, 128), " trainer=", request.trainer);
  return {.session = session, .turn = turn, .proof = ProveSession(*options_.key, session)};
}

absl::StatusOr<SessionGrant> Coordinator::GrantAgain(SessionId session,
                                                     const SessionRequest& request) {
  if (sessions_.IsClosed(session)) {
    return absl::PermissionDeniedError(
        absl::StrCat("session ", ToInt(session), " of trainer ", request.trainer,
                     " is closed: its client ended, or another one took over; connect again"));
  }
  leases_.Hear(session);
  return SessionGrant{.session = session,
                      .turn = turns_.Take(session),
                      .proof = ProveSession(*options_.key, session)};
}

std::vector<std::string> Coordinator::NodesAway() const {
  std::vector<std::string> away;
  for (const NodeView& node : membership_.Views()) {
    if (MayTakeUpdates(node) && !node.live()) away.push_back(node.spec.name);
  }
  return away;
}

// Closing a session that not every node can hear of would end a trainer that trains, for another
// one that cannot begin.
absl::Status Coordinator::EndSession(SessionId session, const SessionRequest& request) {
  if (session == SessionId{}) return absl::OkStatus();
  if (!sessions_.IsClosed(session)) {
    if (const std::vector<std::string> away = NodesAway(); !away.empty()) {
      return absl::UnavailableError(
          absl::StrCat("session ", ToInt(session), " of trainer ", request.trainer,
                       " goes on: to replace it, these nodes have to be there, and are not: ",
                       absl::StrJoin(away, ", "), "; start them, and ask again"));
    }
    EMBLA_RETURN_IF_ERROR(KeepRank(session, request));
    EMBLA_RETURN_IF_ERROR(CloseNow({&session, 1}));
  }
  SettleSessions();  // Perhaps there is no node.
  const std::uint64_t number = sessions_.NewsOf(session);
  if (number == 0) return absl::OkStatus();
  std::vector<std::string> waiting_for;
  for (const NodeView& node : membership_.Views()) {
    if (MayTakeUpdates(node) && HeardBy(node) < number) waiting_for.push_back(node.spec.name);
  }
  return absl::UnavailableError(
      absl::StrCat("session ", ToInt(session), " of trainer ", request.trainer,
                   " is being closed; it is not known yet that these nodes refuse it: ",
                   absl::StrJoin(waiting_for, ", "), "; ask again"));
}

absl::Status Coordinator::CheckProof(SessionId session, const SessionProof& proof) const {
  if (IsProofOf(*options_.key, session, proof)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "session ", ToInt(session),
      " is closed, or joins steps, by who shows its proof: send session_proof as OpenSession "
      "returned it"));
}

absl::Status Coordinator::CloseSession(SessionId session, const SessionProof& proof) {
  EMBLA_RETURN_IF_ERROR(CheckProof(session, proof));
  if (sessions_.IsClosed(session)) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(CloseNow({&session, 1}));
  SettleSessions();  // Perhaps there is no node.
  return absl::OkStatus();
}

absl::Status Coordinator::CloseNow(std::span<const SessionId> sessions) {
  EMBLA_RETURN_IF_ERROR(sessions_.Close(sessions));
  for (const SessionId session : sessions) {
    turns_.Give(session);
    leases_.Drop(session);
    ++sessions_closed_;
    LogInfo("coordinator", "session closed session=", ToInt(session));
  }
  return absl::OkStatus();
}

void Coordinator::HearSession(SessionId session, int watches) {
  if (sessions_.IsClosed(session)) return leases_.Drop(session);
  leases_.Hear(session, watches);
}

std::vector<SessionView> Coordinator::FirstSessions(std::size_t count) const {
  std::vector<SessionView> views;
  for (const auto& [session, watches] : leases_.First(count)) {
    SessionView& view = views.emplace_back(
        SessionView{.session = session, .trainer = sessions_.TrainerOf(session)});
    view.watches = watches;
    if (const RankedSession* const ranked = ranks_.Find(session); ranked != nullptr) {
      view.rank = ranked->rank;
      view.ranks = ranked->ranks;
    }
  }
  return views;
}

void Coordinator::EndLeases(absl::Time now) {
  leases_.Tick(now);
  const std::vector<SessionId> over = leases_.Over(SessionRegistry::kBlocksAtOnceMax);
  if (!over.empty() && CloseNow(over).ok()) {
    sessions_expired_ += over.size();
    LogWarning("coordinator",
               "sessions ended, nothing was heard of their clients sessions=", over.size(),
               " lease=", absl::FormatDuration(options_.session_lease));
  }
  if (leases_.has_run_once() && has_earlier_sessions_) {
    const absl::StatusOr<bool> closed =
        sessions_.CloseSomeEarlier([this](SessionId session) { return leases_.Has(session); });
    if (closed.ok()) has_earlier_sessions_ = *closed;
  }
  // An error is the store's; what is to be deleted is tried again.
  (void)sessions_.TidySome();
}

void Coordinator::PublishSessionNews() {
  if (sessions_.has_news()) effects_.emplace_back(PublishSessions{sessions_.TakeNews()});
}

// A node that is away and has no slices gets some, or units on the move, from this coordinator
// only, and hears of the closed sessions first.
bool Coordinator::MayTakeUpdates(const NodeView& node) const {
  if (IsForgotten(node.spec.id)) return false;
  if (node.live()) return true;
  for (const TablePlan& table : plan_->tables()) {
    if (HoldersOf(table).contains(node.spec.id)) return true;
  }
  return false;
}

// Numbers of other processes' news say nothing.
std::uint64_t Coordinator::HeardBy(const NodeView& node) const {
  return sessions_.IsOwnNews(node.sessions_heard) ? node.sessions_heard : 0;
}

void Coordinator::SettleSessions() {
  std::optional<std::uint64_t> heard;
  for (const NodeView& node : membership_.Views()) {
    if (!MayTakeUpdates(node)) continue;
    heard = std::min(heard.value_or(HeardBy(node)), HeardBy(node));
  }
  sessions_.Settle(heard);
}

}  // namespace embla
