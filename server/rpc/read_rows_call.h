// One DataService.ReadRows: a task thread reads the node's rows, at most kAhead blocks ahead of the
// network.
//
// Lives until gRPC and the task are done with it, then deletes itself.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "core/base/mutex.h"
#include "server/rpc/data_context.h"
#include "server/rpc/task_threads.h"

namespace embla {

// gRPC never runs a reactor's callback inside Start* or Finish, so those are called under mu_.
class ReadRowsCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // `context` is not owned and outlives the call.
  static ReadRowsCall* Start(DataContext& context, TaskThreads& threads,
                             const grpc::ByteBuffer& request, const std::optional<Identity>& caller,
                             const InFlightHolder& holder, absl::Time deadline);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  static constexpr std::size_t kAhead = 2;

  ReadRowsCall(DataContext& context, const TaskThreads& threads, std::size_t request_bytes,
               absl::Time deadline);
  ~ReadRowsCall() override = default;

  void Read(const ShardNode::RowsQuery& query);
  // Queues a block; waits while kAhead are queued. A reader that takes nothing is cut off: soon
  // when others wait for its thread.
  absl::Status Send(Buffer row_block);
  void End(const absl::Status& status);
  void WriteOrFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // gRPC or the task is done with this. The second deletes it.
  void Unref();

  DataContext& context_;        // Not owned; outlives this object.
  const TaskThreads& threads_;  // Likewise.
  const std::size_t request_bytes_;
  Hold hold_;  // Set before the task begins.
  const absl::Time start_;
  const absl::Time deadline_;

  Mutex mu_;
  CondVar changed_;
  std::deque<grpc::ByteBuffer> writes_ ABSL_GUARDED_BY(mu_);
  std::size_t reply_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // The client reads no more.
  bool ended_ ABSL_GUARDED_BY(mu_) = false;   // result_ is set; no more blocks come.
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  int references_ ABSL_GUARDED_BY(mu_) = 2;
};

}  // namespace embla
