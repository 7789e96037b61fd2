// The answer of a listener to calls of services that it does not have.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/status.h>

namespace embla {

// UNIMPLEMENTED, with a sentence that says which port this is, instead of gRPC's empty message: to
// take one port of a program for another is the likeliest mistake of all.
class UnknownCalls final : public grpc::CallbackGenericService {
 public:
  // `answer`, where it is not empty, gives the answers instead, on any thread.
  explicit UnknownCalls(std::string port, std::function<grpc::Status()> answer = {})
      : port_(std::move(port)), answer_(std::move(answer)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Refusal final : public grpc::ServerGenericBidiReactor {
     public:
      void OnDone() override { delete this; }
    };
    auto* const refusal = new Refusal;
    if (answer_) {
      refusal->Finish(answer_());
      return refusal;
    }
    refusal->Finish({grpc::StatusCode::UNIMPLEMENTED,
                     context->method() + " is not served here: this is " + port_});
    return refusal;
  }

 private:
  const std::string port_;
  const std::function<grpc::Status()> answer_;
};

}  // namespace embla
