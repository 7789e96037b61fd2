// DataService over a ShardNode: checks, calls, answers. Payloads go between gRPC's slices and
// pooled buffers with one copy in and none out (core/wire).
//
// Handlers run on gRPC's few threads, so they only parse and enqueue; ReadRows, which blocks, has
// threads of its own.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/metrics/metrics.h"
#include "embla/v1/data.grpc.pb.h"
#include "server/mover/move_transport.h"
#include "server/rpc/connection_acceptor.h"
#include "server/rpc/data_context.h"
#include "server/rpc/data_sockets.h"
#include "server/rpc/node_key.h"
#include "server/rpc/peer_gate.h"
#include "server/rpc/stream_call.h"
#include "server/rpc/task_threads.h"
#include "server/shard/shard_node.h"

namespace embla {

using RawDataService = v1::DataService::WithRawCallbackMethod_Lookup<
    v1::DataService::WithRawCallbackMethod_Update<v1::DataService::WithRawCallbackMethod_Stream<
        v1::DataService::WithRawCallbackMethod_ReadRows<
            v1::DataService::WithRawCallbackMethod_Replicate<
                v1::DataService::WithRawCallbackMethod_Move<
                    v1::DataService::WithCallbackMethod_Sync<
                        v1::DataService::WithCallbackMethod_Greet<v1::DataService::Service>>>>>>>>;

// Thread safety: every public method may be called from any thread.
class DataService final : public RawDataService {
 public:
  // `node`, `pool` and `metrics` (may be null) are not owned and outlive the service, and the
  // service outlives its RpcServer. Requires: options.Validate() is OK.
  DataService(ShardNode& node, BufferPool& pool, Metrics* metrics,
              const DataServiceOptions& options);

  // Nodes with the cluster's key may call Replicate and Move from now on; before, nobody may. Call
  // before RpcServer::Start. `key` is not owned and outlives the service.
  void ServePeers(const NodeKey& key) { context_.peers = std::make_unique<PeerGate>(key); }

  // Messages of moves go to `inbox` from now on; before, they are refused with UNIMPLEMENTED. Call
  // before RpcServer::Start.
  void ServeMoves(MoveInbox inbox) { context_.move_inbox = std::move(inbox); }

  // For RpcServerOptions::take_frames.
  ConnectionAcceptor::TakeFrames TakesFrames();

  // How many requests have been taken in so far.
  std::uint64_t requests() const { return context_.in_flight.taken(); }

  // Ends the open streams once their replies are written. Call before RpcServer::Shutdown.
  void Drain() { streams_.DrainAll(); }

  grpc::ServerUnaryReactor* Lookup(grpc::CallbackServerContext* call,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Update(grpc::CallbackServerContext* call,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(
      grpc::CallbackServerContext* call) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* ReadRows(grpc::CallbackServerContext* call,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* call, const v1::SyncRequest* request,
                                 v1::SyncReply* reply) override;
  grpc::ServerUnaryReactor* Greet(grpc::CallbackServerContext* call,
                                  const v1::PeerGreeting* request, v1::PeerWelcome* reply) override;
  grpc::ServerUnaryReactor* Replicate(grpc::CallbackServerContext* call,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Move(grpc::CallbackServerContext* call, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override;

 private:
  absl::Status CheckPeer(const wire::PeerProof& proof,
                         const grpc::CallbackServerContext& call) const;
  absl::Time DeadlineOf(const grpc::CallbackServerContext& call) const;

  DataContext context_;
  OpenStreams streams_;
  std::unique_ptr<DataSockets> sockets_;  // Null: none are offered.
  TaskThreads read_threads_;
};

}  // namespace embla
