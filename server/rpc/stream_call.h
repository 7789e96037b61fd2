// One open DataService.Stream.
#pragma once

#include <optional>
#include <string>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/rpc/data_sockets.h"
#include "server/rpc/request_stream.h"

namespace embla {

// gRPC never runs a reactor's callback inside Start* or Finish, so they may be called under mu_.
class StreamCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         private RequestStream {
 public:
  // `sockets` may be null: none are offered. Otherwise it is not owned, and outlives the call, as
  // `context` and `open` do.
  StreamCall(DataContext& context, OpenStreams& open, DataSockets* sockets,
             const grpc::CallbackServerContext& call);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override {
    sent_.Clear();  // There may not be another write for long.
    Written(ok);
  }
  void OnCancel() override;
  void OnDone() override;

 private:
  ~StreamCall() override = default;

  void StartRead() override { Reactor::StartRead(&received_); }
  void StartWrite(wire::SplitMessage message) override;
  void Finish(const absl::Status& why) override;
  std::optional<wire::DataSocketOffer> OfferDataSocket() override;
  void Withdraw(bool at_once);

  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  DataSockets* const sockets_;  // Not owned; may be null.
  Mutex offer_mu_;
  std::string ticket_ ABSL_GUARDED_BY(offer_mu_);  // Empty: nothing is offered.
  grpc::ByteBuffer received_;                      // Message of the read in progress.
  grpc::ByteBuffer sent_;                          // Message of the write in progress.
};

}  // namespace embla
