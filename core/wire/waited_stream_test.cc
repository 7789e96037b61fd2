#include "core/wire/waited_stream.h"

#include <memory>
#include <string>
#include <thread>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"

namespace embla::wire {
namespace {

using ::embla::testing::IsOk;

using Stream = WaitedStream<grpc::ByteBuffer, grpc::ByteBuffer>;

grpc::ByteBuffer BytesOf(const std::string& text) {
  const grpc::Slice slice(text);
  return {&slice, 1};
}

std::string TextOf(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  EXPECT_THAT(bytes.DumpToSingleSlice(&slice), IsOk());
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

// Sends back every message; ends with ABORTED at the message "end".
class Echo final : public grpc::CallbackGenericService {
  class Answer final : public grpc::ServerGenericBidiReactor {
   public:
    Answer() { StartRead(&message_); }

   private:
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      if (TextOf(message_) == "end") return Finish({grpc::StatusCode::ABORTED, "it was asked to"});
      StartWrite(&message_);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      StartRead(&message_);
    }
    void OnDone() override { delete this; }

    grpc::ByteBuffer message_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Answer;
  }
};

class WaitedStreamTest : public ::testing::Test {
 protected:
  WaitedStreamTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&echo_);
    server_ = builder.BuildAndStart();
  }
  ~WaitedStreamTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  void Open(const std::string& address) {
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    stub_->PrepareBidiStreamingCall(&context_, "/any/Stream", grpc::StubOptions(), &stream_);
    stream_.Begin();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  Echo echo_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  Stream stream_;
};

TEST_F(WaitedStreamTest, WaitsForEachMessageAndEndsWithTheStatus) {
  Open(address());
  grpc::ByteBuffer reply;
  for (const char* const text : {"first", "", "third"}) {
    ASSERT_TRUE(stream_.Write(BytesOf(text)));
    ASSERT_TRUE(stream_.Read(&reply));
    EXPECT_EQ(TextOf(reply), text);
  }
  ASSERT_TRUE(stream_.Write(BytesOf("end")));
  EXPECT_FALSE(stream_.Read(&reply));
  EXPECT_FALSE(stream_.Read(&reply));
  const grpc::Status status = stream_.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "it was asked to");
}

TEST_F(WaitedStreamTest, OneThreadWritesWhileAnotherReads) {
  constexpr int kMessages = 1000;
  Open(address());
  std::thread writer([this] {
    for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(stream_.Write(BytesOf(std::to_string(i))));
    EXPECT_TRUE(stream_.Write(BytesOf("end")));
  });
  grpc::ByteBuffer reply;
  int received = 0;
  while (stream_.Read(&reply)) EXPECT_EQ(TextOf(reply), std::to_string(received++));
  writer.join();
  EXPECT_EQ(received, kMessages);
  EXPECT_EQ(stream_.Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(WaitedStreamTest, WhoReadsIsToldThatTheStreamIsCancelled) {
  Open(address());
  grpc::ByteBuffer reply;
  ASSERT_TRUE(stream_.Write(BytesOf("a")));
  ASSERT_TRUE(stream_.Read(&reply));
  std::thread canceller([this] { context_.TryCancel(); });
  EXPECT_FALSE(stream_.Read(&reply));
  canceller.join();
  EXPECT_FALSE(stream_.Write(BytesOf("b")));
  EXPECT_EQ(stream_.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(WaitedStreamTest, NobodyAtTheAddress) {
  Open("unix:/nobody");
  grpc::ByteBuffer reply;
  EXPECT_FALSE(stream_.Read(&reply));
  EXPECT_EQ(stream_.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace embla::wire
