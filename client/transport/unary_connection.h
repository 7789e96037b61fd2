// Data calls as unary RPCs.
#pragma once

#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/base/thread_annotations.h"
#include "client/transport/data_request.h"
#include "core/base/mutex.h"

namespace embla::client {

// Thread safety: every method may be called from any thread.
class UnaryConnection final : public DataConnection {
 public:
  explicit UnaryConnection(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {}
  ~UnaryConnection() override;

  SocketPtr Send(DataRequest request) override;
  void Close() override;

 private:
  struct Call;
  void Start(Call* call);
  // The same, after a call that shows the session to a node that may not know it.
  void ShowAndStart(Call* call);
  void OnDone(Call* call, const grpc::Status& status);

  grpc::GenericStub stub_;

  Mutex mu_;
  CondVar idle_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // The node has answered on the connection that gRPC has now, as far as is known: gRPC makes
  // another one when a connection breaks, and tells by Unavailable those who call meanwhile.
  bool is_shown_ ABSL_GUARDED_BY(mu_) = false;
  Call* calls_ ABSL_GUARDED_BY(mu_) = nullptr;  // A list of those in flight; each owns itself.
};

}  // namespace embla::client
