#include "core/wire/callback_queue.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

namespace embla::wire {
namespace {

// A channel without credentials: every call fails at once and nothing is connected, but the first
// callback call makes the channel one of the queue's users.
class QueueUser {
 public:
  QueueUser() : stub_(grpc::CreateChannel("", nullptr)), request_(&empty_, 1) {
    stub_.UnaryCall(&context_, "/embla.v1.DataService/None", grpc::StubOptions(), &request_,
                    &reply_, [](const grpc::Status&) {});
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::Slice empty_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
};

}  // namespace

void KeepCallbackQueue() {
  // Never destroyed: that is its work. Leak checkers find its contents in static memory.
  alignas(QueueUser) static std::byte memory[sizeof(QueueUser)];
  static const auto* const user = new (memory) QueueUser;
  static_cast<void>(user);
}

void RunLater(absl::Duration delay, std::function<void()> task) {
  KeepCallbackQueue();
  auto* const alarm = new grpc::Alarm;
  alarm->Set(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(delay),
             [alarm, task = std::move(task)](bool) {
               task();
               delete alarm;
             });
}

}  // namespace embla::wire
