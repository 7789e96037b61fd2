// AdminService over a CoordinatorHost: tables, plans, nodes and jobs, for operators.
//
// Most methods are one task of the coordinator's thread: a function in admin_tables.cc or
// admin_jobs.cc, and a line there that marks it. Those that are more are members.
//
// Work that takes time and changes nothing (planning, plans of old, solved ones) runs on threads of
// its own against a plan that does not change, and ends when its caller does not wait any more.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "embla/v1/admin.grpc.pb.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/task_threads.h"

namespace embla {

// Tens of thousands of tables that are asked for at once. Operators show no session: a connection
// of theirs may hold no more than ConnectionShareLimits::stranger_bytes_max, with gRPC's frames.
inline constexpr std::size_t kAdminMessageBytesMax = std::size_t{15} << 20;

// Thread safety: every public method may be called from any thread.
class AdminService final : public v1::AdminService::CallbackService {
 public:
  // `host` is not owned and outlives the service, and the service outlives its RpcServer.
  explicit AdminService(CoordinatorHost& host);

  // Ends slow calls, now and later, with CANCELLED.
  void BeginStop() { is_stopping_ = true; }

  grpc::ServerUnaryReactor* CreateTable(grpc::CallbackServerContext* call,
                                        const v1::CreateTableRequest* request,
                                        v1::TableReply* reply) override;
  grpc::ServerUnaryReactor* CreateTables(grpc::CallbackServerContext* call,
                                         const v1::CreateTablesRequest* request,
                                         v1::CreateTablesReply* reply) override;
  grpc::ServerUnaryReactor* PlanTable(grpc::CallbackServerContext* call,
                                      const v1::PlanTableRequest* request,
                                      v1::TableReply* reply) override;
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* call,
                                    const v1::GetClusterPlanRequest* request,
                                    v1::Plan* reply) override;
  grpc::ServerUnaryReactor* GetPlanHistory(grpc::CallbackServerContext* call,
                                           const v1::GetPlanHistoryRequest* request,
                                           v1::PlanHistory* reply) override;
  grpc::ServerUnaryReactor* GetPlanAt(grpc::CallbackServerContext* call,
                                      const v1::GetPlanAtRequest* request,
                                      v1::Plan* reply) override;
  grpc::ServerUnaryReactor* PutSolvedPlan(grpc::CallbackServerContext* call,
                                          const v1::SolvedPlan* request,
                                          v1::PutSolvedPlanReply* reply) override;
  grpc::ServerUnaryReactor* FindSolvedPlan(grpc::CallbackServerContext* call,
                                           const v1::PlanInputs* request,
                                           v1::SolvedPlan* reply) override;

 private:
  void MarkTableMethods();
  void MarkJobMethods();
  // Starts the creation, and ends the call with its status; before that `fill`, given that it went
  // well, fills the call's reply.
  void Create(grpc::ServerUnaryReactor* reactor, CreateRequest request,
              std::function<void(const CompleteChange& created)> fill);
  // Runs `read`, which fills the call's reply, and ends the call with its status.
  void Read(grpc::CallbackServerContext& call, grpc::ServerUnaryReactor* reactor,
            std::function<absl::Status(const GivenUp& given_up)> read);

  CoordinatorHost& host_;  // Not owned; outlives this object.
  std::atomic<bool> is_stopping_ = false;
  TaskThreads readers_{2, 32};
};

}  // namespace embla
