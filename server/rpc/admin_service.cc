#include "server/rpc/admin_service.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/plan_json.h"
#include "core/wire/status_codec.h"
#include "server/rpc/bounded_method.h"
#include "server/rpc/coordinator_codec.h"
#include "server/rpc/post_unary.h"

namespace embla {
namespace {

v1::Plan AsJson(const Plan& plan) {
  v1::Plan message;
  message.set_version(ToInt(plan.version()));
  message.set_cluster_id(plan.cluster_id());
  message.set_json(PlanToJson(plan));
  return message;
}

// A creation that waits for nodes ends by this much before its call does.
constexpr absl::Duration kReplyReserve = absl::Seconds(1);
// Deadlines farther away are none.
constexpr absl::Duration kCreateWaitMax = absl::Hours(1);

// How long a creation waits for nodes. Unless the request says, it ends before the call's deadline:
// the answer then says which node it waited for, and nothing is left behind.
absl::Duration WaitOf(std::uint32_t wait_ms, const grpc::CallbackServerContext& call) {
  if (wait_ms != 0) return absl::Milliseconds(wait_ms);
  const absl::Time deadline = absl::FromChrono(call.deadline());
  if (deadline > absl::Now() + kCreateWaitMax) return absl::ZeroDuration();
  const absl::Duration left = std::max(deadline - absl::Now(), absl::Milliseconds(2));
  return std::max(left - kReplyReserve, left / 2);
}
// A solved plan has megabytes, and each of many tables three fields; nothing else that
// operators send comes near one.
constexpr wire::ScanLimits kSolvedPlanLimits{.bytes_max = std::size_t{4} << 20};
constexpr wire::ScanLimits kCreateTablesLimits{.bytes_max = kAdminMessageBytesMax,
                                               .fields_max = 350'000};

}  // namespace

AdminService::AdminService(CoordinatorHost& host) : host_(host) {
  // Numbers are by the order of proto/embla/v1/admin.proto.
  MarkTableMethods();
  MarkJobMethods();
  MarkMethodCallback(2, BoundedUnary(this, &AdminService::CreateTable));
  MarkMethodCallback(3, BoundedUnary(this, &AdminService::CreateTables, kCreateTablesLimits));
  MarkMethodCallback(6, BoundedUnary(this, &AdminService::PlanTable));
  MarkMethodCallback(7, BoundedUnary(this, &AdminService::GetPlan));
  MarkMethodCallback(8, BoundedUnary(this, &AdminService::GetPlanHistory));
  MarkMethodCallback(9, BoundedUnary(this, &AdminService::GetPlanAt));
  MarkMethodCallback(15, BoundedUnary(this, &AdminService::PutSolvedPlan, kSolvedPlanLimits));
  MarkMethodCallback(16, BoundedUnary(this, &AdminService::FindSolvedPlan));
}

void AdminService::Create(grpc::ServerUnaryReactor* reactor, CreateRequest request,
                          std::function<void(const CompleteChange& created)> fill) {
  // Not OK, or the change is awaited, and answers.
  const auto started = std::make_shared<absl::Status>(absl::UnknownError("not run"));
  host_.Post(
      [this, reactor, started, request = std::move(request), fill = std::move(fill)](
          Coordinator& coordinator, absl::Time now) mutable {
        const absl::StatusOr<ChangeId> change =
            coordinator.StartCreateTables(std::move(request), now);
        *started = change.status();
        if (!change.ok()) return;
        host_.AwaitChange(*change, [reactor, fill](const CompleteChange& complete) {
          if (complete.status.ok()) fill(complete);
          reactor->Finish(wire::ToGrpc(complete.status));
        });
      },
      [reactor, started](const absl::Status& durable) {
        if (!started->ok()) reactor->Finish(wire::ToGrpc(durable.ok() ? *started : durable));
      });
}

grpc::ServerUnaryReactor* AdminService::CreateTable(grpc::CallbackServerContext* call,
                                                    const v1::CreateTableRequest* request,
                                                    v1::TableReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  absl::StatusOr<planner::TableToPlace> table = TableFromMessage(*request);
  if (!table.ok()) {
    reactor->Finish(wire::ToGrpc(table.status()));
    return reactor;
  }
  CreateRequest create{.tables = {}, .wait = WaitOf(request->wait_ms(), *call)};
  create.tables.push_back(*std::move(table));
  Create(reactor, std::move(create), [reply](const CompleteChange& created) {
    *reply = ToMessage(*created.tables.front().table, created.plan_version);
    for (const std::string& node : created.left_out) reply->add_left_out(node);
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::CreateTables(grpc::CallbackServerContext* call,
                                                     const v1::CreateTablesRequest* request,
                                                     v1::CreateTablesReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  CreateRequest create{.tables = {},
                       .if_not_exists = request->if_not_exists(),
                       .wait = WaitOf(request->wait_ms(), *call)};
  for (const v1::CreateTableRequest& asked : request->tables()) {
    absl::StatusOr<planner::TableToPlace> table = TableFromMessage(asked);
    if (!table.ok()) {
      reactor->Finish(
          wire::ToGrpc(Annotate(table.status(), absl::StrCat("table ", create.tables.size() + 1,
                                                             " of ", request->tables_size()))));
      return reactor;
    }
    create.tables.push_back(*std::move(table));
  }
  Create(reactor, std::move(create), [reply](const CompleteChange& created) {
    reply->set_plan_version(ToInt(created.plan_version));
    for (const CreatedTable& table : created.tables) {
      if (table.existed) reply->add_existed(table.table->spec.name);
    }
    for (const std::string& node : created.left_out) reply->add_left_out(node);
  });
  return reactor;
}

void AdminService::Read(grpc::CallbackServerContext& call, grpc::ServerUnaryReactor* reactor,
                        std::function<absl::Status(const GivenUp& given_up)> read) {
  const GivenUp given_up = [this, &call] { return is_stopping_ || call.IsCancelled(); };
  const absl::Status accepted = readers_.Post([reactor, given_up, read = std::move(read)] {
    reactor->Finish(wire::ToGrpc(given_up() ? absl::CancelledError("nobody waits for the answer")
                                            : read(given_up)));
  });
  if (!accepted.ok()) reactor->Finish(wire::ToGrpc(accepted));
}

// The host only says what the cluster is like.
grpc::ServerUnaryReactor* AdminService::PlanTable(grpc::CallbackServerContext* call,
                                                  const v1::PlanTableRequest* request,
                                                  v1::TableReply* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  const auto question = std::make_shared<absl::StatusOr<PlacementQuestion>>();
  const auto version = std::make_shared<PlanVersion>();
  host_.Post(
      [request, question, version](Coordinator& coordinator, absl::Time) {
        const absl::StatusOr<planner::TableToPlace> table = TableFromMessage(*request);
        const StatedTopology topology{.nodes = request->nodes(),
                                      .devices_per_node = request->devices_per_node(),
                                      .device_memory_bytes = request->device_memory_bytes()};
        *version = coordinator.GetPlan()->version();
        *question = table.ok() ? coordinator.AskPlacement(table->spec, table->request, topology)
                               : table.status();
      },
      [this, call, reactor, reply, question, version](const absl::Status& status) {
        const absl::Status asked = status.ok() ? question->status() : status;
        if (!asked.ok()) return reactor->Finish(wire::ToGrpc(asked));
        Read(*call, reactor, [reply, question, version](const GivenUp& given_up) -> absl::Status {
          EMBLA_ASSIGN_OR_RETURN(const TablePlan plan, embla::PlanTable(**question, given_up));
          *reply = ToMessage(plan, *version);
          return absl::OkStatus();
        });
      });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetPlan(grpc::CallbackServerContext* call,
                                                const v1::GetClusterPlanRequest*, v1::Plan* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  *reply = AsJson(*host_.plan());
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetPlanHistory(grpc::CallbackServerContext* call,
                                                       const v1::GetPlanHistoryRequest* request,
                                                       v1::PlanHistory* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  Read(*call, reactor, [this, request, reply](const GivenUp&) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(const std::vector<PlanChange> changes,
                           ReadHistory(host_.store(), request->limit()));
    for (const PlanChange& change : changes) *reply->add_changes() = ToMessage(change);
    return absl::OkStatus();
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetPlanAt(grpc::CallbackServerContext* call,
                                                  const v1::GetPlanAtRequest* request,
                                                  v1::Plan* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  Read(*call, reactor, [this, request, reply](const GivenUp&) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(const Plan plan,
                           PlanAt(host_.store(), *host_.plan(), PlanVersion{request->version()}));
    *reply = AsJson(plan);
    return absl::OkStatus();
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::PutSolvedPlan(grpc::CallbackServerContext* call,
                                                      const v1::SolvedPlan* request,
                                                      v1::PutSolvedPlanReply*) {
  return PostUnary(host_, *call, [request](Coordinator& coordinator, absl::Time now) {
    return coordinator.PutSolved(FromMessage(request->inputs()), request->plan_json(), now);
  });
}

grpc::ServerUnaryReactor* AdminService::FindSolvedPlan(grpc::CallbackServerContext* call,
                                                       const v1::PlanInputs* request,
                                                       v1::SolvedPlan* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  Read(*call, reactor, [this, request, reply](const GivenUp&) -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(*reply->mutable_plan_json(),
                           embla::FindSolvedPlan(host_.store(), FromMessage(*request)));
    *reply->mutable_inputs() = *request;
    return absl::OkStatus();
  });
  return reactor;
}

}  // namespace embla
