#include "core/wire/callback_queue.h"

#include <future>
#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <gtest/gtest.h>

namespace embla::wire {
namespace {

// A call that fails, on a channel of its own. Both are gone when the callback is over.
struct Call {
  Call()
      : stub(grpc::CreateCustomChannel("unix:/nobody", grpc::InsecureChannelCredentials(), Own())) {
  }
  static grpc::ChannelArguments Own() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return arguments;
  }

  grpc::GenericStub stub;
  grpc::ClientContext context;
  grpc::Slice empty;
  grpc::ByteBuffer request{&empty, 1};
  grpc::ByteBuffer reply;
  std::promise<grpc::StatusCode> code;
};

// Without the kept queue the last channel takes it down from a thread that serves it, and the
// process dies within a few rounds.
TEST(CallbackQueueTest, TheLastChannelMayGoInACallback) {
  KeepCallbackQueue();
  for (int round = 0; round < 1000; ++round) {
    auto* const call = new Call;
    std::future<grpc::StatusCode> code = call->code.get_future();
    call->stub.UnaryCall(&call->context, "/any", grpc::StubOptions(), &call->request, &call->reply,
                         [call](const grpc::Status& status) {
                           const std::unique_ptr<Call> owned(call);
                           owned->code.set_value(status.error_code());
                         });
    EXPECT_EQ(code.get(), grpc::StatusCode::UNAVAILABLE);
  }
}

}  // namespace
}  // namespace embla::wire
