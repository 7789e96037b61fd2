// InspectService over a ShardNode.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "embla/v1/inspect.grpc.pb.h"
#include "server/rpc/task_threads.h"
#include "server/shard/shard_node.h"

namespace embla {

// Thread safety: every public method may be called from any thread.
class InspectService final : public v1::InspectService::CallbackService {
 public:
  // `node` is not owned and outlives the service, and the service outlives its RpcServer.
  explicit InspectService(ShardNode& node) : node_(node) {}

  grpc::ServerUnaryReactor* ExplainId(grpc::CallbackServerContext* call,
                                      const v1::ExplainIdRequest* request,
                                      v1::ExplainIdReply* reply) override;
  grpc::ServerUnaryReactor* SurveyTable(grpc::CallbackServerContext* call,
                                        const v1::SurveyTableRequest* request,
                                        v1::TableSurvey* reply) override;
  grpc::ServerUnaryReactor* SweepTable(grpc::CallbackServerContext* call,
                                       const v1::SweepTableRequest* request,
                                       v1::SweepTableReply* reply) override;
  grpc::ServerWriteReactor<v1::EvictedRows>* ReadEvictions(
      grpc::CallbackServerContext* call, const v1::ReadEvictionsRequest* request) override;
  grpc::ServerUnaryReactor* InspectTable(grpc::CallbackServerContext* call,
                                         const v1::InspectTableRequest* request,
                                         v1::InspectTableReply* reply) override;

 private:
  ShardNode& node_;
  TaskThreads threads_{1, 16};  // Whoever reads all rows of a table.
};

}  // namespace embla
