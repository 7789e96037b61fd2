#include "server/rpc/coordinator_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/session_proof.h"
#include "core/base/status_macros.h"
#include "core/tls/tls.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/bounded_method.h"
#include "server/rpc/node_link_call.h"
#include "server/rpc/post_unary.h"
#include "server/rpc/watch_plan_call.h"

namespace embla {
namespace {

constexpr std::size_t kClientNameBytesMax = 256;

// A proof of another length is nobody's.
SessionProof ProofFrom(const std::string& bytes) {
  SessionProof proof{};
  if (bytes.size() == proof.size()) std::copy(bytes.begin(), bytes.end(), proof.begin());
  return proof;
}

}  // namespace

CoordinatorService::CoordinatorService(CoordinatorHost& host) : host_(host) {
  // In the order of proto/embla/v1/coordinator.proto; NodeLinkCall scans what comes by NodeLink.
  MarkMethodCallback(1, BoundedUnary(this, &CoordinatorService::GetPlan));
  MarkMethodCallback(2, BoundedServerStream(this, &CoordinatorService::WatchPlan));
  MarkMethodCallback(3, BoundedUnary(this, &CoordinatorService::OpenSession));
  MarkMethodCallback(4, BoundedUnary(this, &CoordinatorService::JoinSteps));
  MarkMethodCallback(5, BoundedUnary(this, &CoordinatorService::CloseSession));
}

absl::Status CoordinatorService::HearOf(const v1::GetPlanRequest& request, int watches) {
  const SessionId session{request.session()};
  if (session == SessionId{}) return absl::OkStatus();
  if (!IsProofOf(host_.key(), session, ProofFrom(request.session_proof()))) {
    return absl::PermissionDeniedError(
        absl::StrCat("session ", ToInt(session),
                     " has no valid proof that this cluster granted it: send session and "
                     "session_proof as OpenSession returned them, or connect again"));
  }
  host_.watchers().Hear(session, watches);
  return absl::OkStatus();
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* CoordinatorService::NodeLink(
    grpc::CallbackServerContext* call) {
  return new NodeLinkCall(host_, *call);
}

grpc::ServerUnaryReactor* CoordinatorService::GetPlan(grpc::CallbackServerContext* call,
                                                      const v1::GetPlanRequest* request,
                                                      v1::PlanDelta* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  if (const absl::Status known = HearOf(*request, 0); !known.ok()) {
    reactor->Finish(wire::ToGrpc(known));
    return reactor;
  }
  const PlanPtr plan = host_.plan();
  reply->set_version(ToInt(plan->version()));
  reply->set_cluster_id(plan->cluster_id());
  if (plan->version() > PlanVersion{request->newer_than()}) {
    *reply = *host_.MessageOf(plan, BaseOf(*request));
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<v1::PlanDelta>* CoordinatorService::WatchPlan(
    grpc::CallbackServerContext* call, const v1::GetPlanRequest* request) {
  absl::StatusOr<OpenCalls::Ticket> ticket = watches_.Enter(call->peer());
  if (!ticket.ok()) return new RefusedStream<v1::PlanDelta>(ticket.status());
  const absl::Status known = HearOf(*request, 1);
  const SessionId session{known.ok() ? request->session() : 0};
  return new WatchPlanCall(host_, PlanVersion{request->newer_than()}, BaseOf(*request), session,
                           known, *std::move(ticket));
}

grpc::ServerUnaryReactor* CoordinatorService::OpenSession(grpc::CallbackServerContext* call,
                                                          const v1::OpenSessionRequest* request,
                                                          v1::OpenSessionReply* reply) {
  return PostUnary(host_, *call, [call, request, reply](Coordinator& coordinator, absl::Time) {
    if (!request->trainer().empty()) {
      EMBLA_RETURN_IF_ERROR(CheckName(CallerOf(*call), "trainer", request->trainer()));
    }
    if (request->client_name().size() > kClientNameBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("client_name has ",
                                                     request->client_name().size(),
                                                     " bytes, at most ", kClientNameBytesMax));
    }
    std::optional<Rank> rank;
    if (request->has_rank()) rank = Rank{request->rank()};
    const absl::StatusOr<SessionGrant> grant =
        coordinator.OpenSession({.client_name = request->client_name(),
                                 .trainer = request->trainer(),
                                 .client_nonce = request->client_nonce(),
                                 .replaces = SessionId{request->replaces()},
                                 .rank = rank,
                                 .ranks = request->ranks()});
    if (!grant.ok()) return grant.status();
    reply->set_session(ToInt(grant->session));
    reply->set_latest(ToInt(grant->latest));
    reply->set_turn(grant->turn);
    if (grant->session == SessionId{}) return absl::OkStatus();
    reply->set_proof(grant->proof.data(), grant->proof.size());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* CoordinatorService::JoinSteps(grpc::CallbackServerContext* call,
                                                        const v1::JoinStepsRequest* request,
                                                        v1::JoinStepsReply*) {
  return PostUnary(host_, *call, [request, call](Coordinator& coordinator, absl::Time now) {
    const PlanPtr plan = coordinator.GetPlan();
    std::vector<TableId> tables;
    for (const std::uint32_t id : request->table_ids()) {
      tables.push_back(TableId{id});
      EMBLA_RETURN_IF_ERROR(CheckTable(CallerOf(*call), *plan, tables.back()));
    }
    return coordinator.JoinSteps(SessionId{request->session()}, ProofFrom(request->session_proof()),
                                 tables, now);
  });
}

grpc::ServerUnaryReactor* CoordinatorService::CloseSession(grpc::CallbackServerContext* call,
                                                           const v1::CloseSessionRequest* request,
                                                           v1::CloseSessionReply*) {
  return PostUnary(host_, *call, [request](Coordinator& coordinator, absl::Time) {
    return coordinator.CloseSession(SessionId{request->session()},
                                    ProofFrom(request->session_proof()));
  });
}

}  // namespace embla
