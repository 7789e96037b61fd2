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

  void Send(DataRequest request) override;
  void Close() override;

 private:
  struct Call;
  void OnDone(Call* call, const grpc::Status& status);

  grpc::GenericStub stub_;

  Mutex mu_;
  CondVar idle_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  Call* calls_ ABSL_GUARDED_BY(mu_) = nullptr;  // A list of those in flight; each owns itself.
};

}  // namespace embla::client
