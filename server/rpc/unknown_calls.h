// The answer of a listener to calls of services that it does not have.
#pragma once

#include <string>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>

namespace embla {

// UNIMPLEMENTED, with a sentence that says which port this is, instead of gRPC's empty message: to
// take one port of a program for another is the likeliest mistake of all.
class UnknownCalls final : public grpc::CallbackGenericService {
 public:
  explicit UnknownCalls(std::string port) : port_(std::move(port)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Refusal final : public grpc::ServerGenericBidiReactor {
     public:
      void OnDone() override { delete this; }
    };
    auto* const refusal = new Refusal;
    refusal->Finish({grpc::StatusCode::UNIMPLEMENTED,
                     context->method() + " is not served here: this is " + port_});
    return refusal;
  }

 private:
  const std::string port_;
};

}  // namespace embla
