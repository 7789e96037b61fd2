// CoordinatorService over a CoordinatorHost: links of shard servers, plans and sessions of clients.
//
// Links have their bytes as they came, so that they are scanned before they are parsed; the other
// methods have handlers that do so (bounded_method.h).
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "embla/v1/coordinator.grpc.pb.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/open_calls.h"

namespace embla {

using RawCoordinatorService = v1::CoordinatorService::WithRawCallbackMethod_NodeLink<
    v1::CoordinatorService::WithCallbackMethod_GetPlan<
        v1::CoordinatorService::WithCallbackMethod_WatchPlan<
            v1::CoordinatorService::WithCallbackMethod_OpenSession<
                v1::CoordinatorService::WithCallbackMethod_JoinSteps<
                    v1::CoordinatorService::WithCallbackMethod_CloseSession<
                        v1::CoordinatorService::Service>>>>>>;

// Thread safety: every public method may be called from any thread.
class CoordinatorService final : public RawCoordinatorService {
 public:
  // `host` is not owned and outlives the service, and the service outlives its RpcServer.
  explicit CoordinatorService(CoordinatorHost& host);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NodeLink(
      grpc::CallbackServerContext* call) override;
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* call,
                                    const v1::GetPlanRequest* request,
                                    v1::PlanDelta* reply) override;
  grpc::ServerWriteReactor<v1::PlanDelta>* WatchPlan(grpc::CallbackServerContext* call,
                                                     const v1::GetPlanRequest* request) override;
  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* call,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionReply* reply) override;
  grpc::ServerUnaryReactor* JoinSteps(grpc::CallbackServerContext* call,
                                      const v1::JoinStepsRequest* request,
                                      v1::JoinStepsReply* reply) override;
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* call,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionReply* reply) override;

 private:
  // Keeps the lease of the session that the request names. PermissionDenied: its proof is wrong.
  absl::Status HearOf(const v1::GetPlanRequest& request, int watches);
  PlanVersion BaseOf(const v1::GetPlanRequest& request) const {
    return host_.BaseOf(request.source(), PlanVersion{request.newer_than()});
  }

  CoordinatorHost& host_;  // Not owned; outlives this object.
  OpenCalls watches_{256, 16'384};
};

}  // namespace embla
