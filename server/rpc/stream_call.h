// One open DataService.Stream: many requests in flight on one connection.
//
// Requests go to the node in the order in which they arrive; replies are written as they finish.
// The stream is read on only while the requests in flight, from arrival until their reply is
// written, are within the limits: a client that does not read its replies is not read either, and
// gRPC's flow control stops it.
//
// Lives until gRPC is done with it and the last reply has come from the node, then deletes itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <variant>
#include <vector>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "core/base/mutex.h"
#include "core/wire/request_codec.h"
#include "server/rpc/connection_shares.h"
#include "server/rpc/data_context.h"

namespace embla {

class StreamCall;

// The open streams of a service, so that it can end them.
// Lock order: mu_, then StreamCall::mu_.
class OpenStreams {
 public:
  void Add(StreamCall* stream);
  void Remove(StreamCall* stream);
  // Every stream, also one that opens later: takes no more requests and ends with UNAVAILABLE once
  // its replies are written.
  void DrainAll();

 private:
  Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<StreamCall*> streams_ ABSL_GUARDED_BY(mu_);
};

// gRPC never runs a reactor's callback inside Start* or Finish, so those are called under mu_.
class StreamCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `context` and `open` are not owned and outlive the call.
  StreamCall(DataContext& context, OpenStreams& open, const grpc::CallbackServerContext& call);

  void Drain();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // A request on its way, from its arrival until its reply is written.
  struct InFlight {
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;  // Counted against stream_bytes_max.
    // Shared by the copies of this; released with the reply.
    std::shared_ptr<Admission> admission;
    std::size_t request_bytes = 0;
    absl::Time start;
    std::size_t sent_bytes = 0;  // Rows that went before the end of the request.
    RequestTracePtr trace = nullptr;
  };
  struct Write {
    grpc::ByteBuffer message;
    std::size_t released_bytes = 0;  // Once written.
    std::shared_ptr<Admission> admission = nullptr;
    bool last = false;  // True: last message of its request.
  };

  ~StreamCall() override = default;

  void Execute(wire::StreamRequest request, std::size_t request_bytes);
  // Counts a request as in flight; RESOURCE_EXHAUSTED: see DataContext::Admit.
  absl::Status Admit(InFlight& request, const InFlightHolder& holder, std::size_t rows,
                     std::size_t bytes_beside);
  // A lookup's session is 0 afterwards unless it is open (request_origin.h).
  absl::Status CheckOrigin(std::variant<wire::LookupCall, wire::UpdateCall>& call);
  // Returns the holder charged for a call whose origin is right; the connection has shown its
  // session.
  InFlightHolder ShownHolder(const std::variant<wire::LookupCall, wire::UpdateCall>& call);
  void ExecuteLookup(wire::LookupCall call, const InFlight& request, absl::Time deadline);
  void ExecuteUpdate(wire::UpdateCall call, const InFlight& request, absl::Time deadline);
  // Messages of a request that is still being executed.
  void Send(const std::vector<grpc::ByteBuffer>& messages);
  // The request is executed. May delete this.
  void Reply(const InFlight& request, MethodMetrics& method, const absl::Status& status,
             const std::vector<grpc::ByteBuffer>& messages);

  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Release(const Write& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  DataContext& context_;  // Not owned; outlives this object.
  OpenStreams& open_;     // Not owned; outlives this object.
  const ConnectionId connection_;
  // Streams are open to more callers than updates are.
  const std::optional<Identity> caller_;
  const absl::Status may_update_;
  grpc::ByteBuffer received_;  // Message of the read in progress.

  Mutex mu_;
  grpc::Status result_ ABSL_GUARDED_BY(mu_);
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool reads_done_ ABSL_GUARDED_BY(mu_) = false;  // No more requests will be taken.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // The client reads no more replies.
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;  // gRPC holds no reference any more.
  std::uint32_t executing_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint32_t in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t in_flight_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Write> writes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
