// InspectService over a ShardNode.
//
// Questions about a node wait here, a bounded number of them, and few are asked of the node at a
// time: whatever operators ask, trainers hardly notice. A request whose caller has left is dropped.
#pragma once

#include <atomic>
#include <memory>

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
  explicit InspectService(ShardNode& node);

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
  // Takes a place among the readers of evictions, until the result is destroyed; null: too many
  // read.
  std::shared_ptr<void> TakeReaderSlot();
  // CheckTable, by the node's plan.
  absl::Status MayUse(const grpc::CallbackServerContext& call, std::uint32_t table) const;

  static constexpr int kEvictionReadersMax = 64;

  ShardNode& node_;
  std::atomic<int> eviction_readers_ = 0;
  TaskThreads questions_{1, 64};  // Each waits for the node's answer.
  TaskThreads readers_{1, 16};    // Threads for calls that read all rows of a table.
};

}  // namespace embla
