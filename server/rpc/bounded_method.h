// Methods of generated services that look at a request before protobuf parses it.
//
// gRPC parses first and calls the service then: a message with millions of empty submessages has
// taken a gigabyte by the time that anybody could refuse it. A BoundedHandler stands between
// the two: it scans the bytes (core/wire/message_scan.h), and answers INVALID_ARGUMENT itself where
// they are too many, too deep, or no message at all.
//
//   MarkMethodCallback(0, BoundedUnary(this, &InspectService::ExplainId));
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/wire/message_scan.h"

namespace embla {

// Inner is gRPC's handler of the method, CallbackUnaryHandler or CallbackServerStreamingHandler.
template <typename Request, typename Inner>
class BoundedHandler final : public grpc::internal::MethodHandler {
 public:
  template <typename Handle>
  BoundedHandler(Handle handle, const wire::ScanLimits& limits)
      : limits_(limits), inner_(std::move(handle)), refuse_(&Refuse) {}

  // A status that is not OK tells RunHandler that refuse_ has the call.
  void* Deserialize(grpc_call* call, grpc_byte_buffer* bytes, grpc::Status* status,
                    void** handler_data) override {
    const absl::Status scanned = Scan(bytes);
    if (scanned.ok()) return inner_.Deserialize(call, bytes, status, handler_data);
    if (bytes != nullptr) grpc_byte_buffer_destroy(bytes);
    grpc_slice reason =
        grpc_slice_from_copied_buffer(scanned.message().data(), scanned.message().size());
    grpc_byte_buffer* const request = grpc_raw_byte_buffer_create(&reason, 1);
    grpc_slice_unref(reason);
    auto refused = std::make_unique<Refused>();
    refused->text = refuse_.Deserialize(call, request, status, &refused->data);
    *handler_data = refused.release();
    *status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "");
    return nullptr;  // There is no request, neither for interceptors.
  }

  void RunHandler(const HandlerParameter& call) override {
    if (call.status.error_code() != grpc::StatusCode::INVALID_ARGUMENT) {
      inner_.RunHandler(call);
    } else {
      const std::unique_ptr<Refused> refused(static_cast<Refused*>(call.internal_data));
      refuse_.RunHandler(HandlerParameter(call.call, call.server_context, refused->text,
                                          grpc::Status::OK, refused->data, call.call_requester));
    }
  }

 private:
  // Arguments of refuse_'s handler, for a message that is refused.
  struct Refused {
    void* text = nullptr;
    void* data = nullptr;
  };

  absl::Status Scan(grpc_byte_buffer* bytes) const {
    if (bytes == nullptr) return absl::InvalidArgumentError("malformed message: no bytes");
    if (const std::size_t size = grpc_byte_buffer_length(bytes); size > limits_.bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("message of ", size, " bytes, at most ", limits_.bytes_max, " allowed"));
    }
    grpc_byte_buffer_reader reader;
    if (grpc_byte_buffer_reader_init(&reader, bytes) == 0) {
      return absl::InvalidArgumentError("malformed message: compressed");
    }
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    const std::string_view text(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(all)),
                                GRPC_SLICE_LENGTH(all));
    const absl::Status scanned = wire::ScanMessage(text, *Request::descriptor(), limits_);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return scanned;
  }

  // `reason` is in place of the request.
  static grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* reason, grpc::ByteBuffer*) {
    grpc::Slice text;
    (void)reason->DumpToSingleSlice(&text);
    grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
    reactor->Finish(
        grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                     std::string(reinterpret_cast<const char*>(text.begin()), text.size())));
    return reactor;
  }

  const wire::ScanLimits limits_;
  Inner inner_;
  grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer> refuse_;
};

// A handler for MarkMethodCallback, which owns it.
template <typename Request, typename Reply, typename Service>
grpc::internal::MethodHandler* BoundedUnary(
    Service* service,
    grpc::ServerUnaryReactor* (Service::*method)(grpc::CallbackServerContext*, const Request*,
                                                 Reply*),
    const wire::ScanLimits& limits = {}) {
  return new BoundedHandler<Request, grpc::internal::CallbackUnaryHandler<Request, Reply>>(
      [service, method](grpc::CallbackServerContext* call, const Request* request, Reply* reply) {
        return (service->*method)(call, request, reply);
      },
      limits);
}
template <typename Request, typename Reply, typename Service>
grpc::internal::MethodHandler* BoundedServerStream(
    Service* service,
    grpc::ServerWriteReactor<Reply>* (Service::*method)(grpc::CallbackServerContext*,
                                                        const Request*),
    const wire::ScanLimits& limits = {}) {
  return new BoundedHandler<Request,
                            grpc::internal::CallbackServerStreamingHandler<Request, Reply>>(
      [service, method](grpc::CallbackServerContext* call, const Request* request) {
        return (service->*method)(call, request);
      },
      limits);
}

}  // namespace embla
