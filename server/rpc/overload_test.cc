// What one client cannot do to the others: take the node's memory, or its threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "server/rpc/data_fixture.h"
#include "server/rpc/http2_fixture.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(30);

class DataServiceOverload : public DataFixture {
 protected:
  double held() { return ShardMetrics(&metrics_).held_bytes.value(); }
  double answers(std::string_view method, std::string_view code) {
    return metrics_.MakeCounter(MetricNamed("embla_requests_total"), {method, code}).value();
  }
  // A connection of its own.
  std::unique_ptr<v1::DataService::Stub> AnotherClient() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::DataService::NewStub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
  }
  // A call whose request has just these bytes.
  grpc::Status CallRaw(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Slice slice(bytes);
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }
};

TEST_F(DataServiceOverload, RepliesThatNobodyReadsAreHeldToTheBoundAndGivenBack) {
  Start({.in_flight = {.stranger_bytes_max = std::size_t{4} << 20}});
  {
    const FileDescriptor socket = http2::Connect(server_->address());
    ASSERT_TRUE(http2::Send(socket, http2::Hello(http2::NoWindow())));
    // Each asks for 1 MiB. All of them fit into the 65,535 bytes that a new connection may carry.
    const std::vector<std::int64_t> ids(128, 3);
    const std::string lookup = LookupOf(ids, 2048).SerializeAsString();
    for (std::uint32_t stream = 1; stream <= 79; stream += 2) {
      ASSERT_TRUE(http2::Send(socket, http2::Headers(stream, "/embla.v1.DataService/Lookup") +
                                          http2::Message(stream, lookup)));
    }
    AwaitFor(
        [&] { return answers("Lookup", "OK") + answers("Lookup", "RESOURCE_EXHAUSTED") == 40; },
        kLimit, "all lookups are answered");
    EXPECT_LE(held(), 5e6);  // Four of 1 MiB, and their requests, are too many.
    EXPECT_EQ(answers("Lookup", "OK"), 3);
    v1::LookupReply reply;
    EXPECT_TRUE(Lookup(LookupOf({1}), reply).ok());
  }
  AwaitFor([&] { return held() == 0; }, kLimit, "the end of the connection gives it back");
}

TEST_F(DataServiceOverload, StreamsThatHoldAllTheyCanLeaveRoomForAnother) {
  Start({.in_flight = {.stranger_bytes_max = std::size_t{1} << 20,
                       .strangers_bytes_max = std::size_t{1} << 20}});
  node_.Hold();
  struct Greedy {
    std::unique_ptr<v1::DataService::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>> stream;
  };
  std::vector<std::unique_ptr<Greedy>> greedy;
  v1::StreamRequest request;
  request.set_sequence(1);
  *request.mutable_lookup() = LookupOf(std::vector<std::int64_t>(16, 3), 64);  // 4 KiB of rows.
  for (int i = 0; i < 40; ++i) {
    Greedy& each = *greedy.emplace_back(std::make_unique<Greedy>());
    each.stub = AnotherClient();
    each.stream = each.stub->Stream(&each.context);
    // The first that is refused is answered, and with it everything before it is in the node.
    v1::StreamReply reply;
    for (int n = 0; n < 200; ++n) ASSERT_TRUE(each.stream->Write(request));
    ASSERT_TRUE(each.stream->Read(&reply));
    EXPECT_EQ(reply.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  }
  const auto light = AnotherClient();
  grpc::ClientContext context;
  const auto stream = light->Stream(&context);
  v1::StreamRequest small;
  small.set_sequence(7);
  *small.mutable_lookup() = LookupOf({5});
  std::size_t held_before = 0;
  node_.Await([&](const FakeShardNode& node) {
    held_before = node.held();
    return true;
  });
  ASSERT_TRUE(stream->Write(small));
  EXPECT_TRUE(node_.Await([&](const FakeShardNode& node) { return node.held() > held_before; }))
      << "the light client's lookup is not taken";
  node_.Release();
  v1::StreamReply reply;
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_EQ(reply.code(), 0) << reply.message();
}

TEST_F(DataServiceOverload, ReadersThatTakeNothingDoNotKeepOthersWaiting) {
  Start({.read_threads = 2, .read_stall_beside_others_max = absl::Milliseconds(50)});
  node_.SetBlockBytes(1 << 20);
  v1::ReadRowsRequest all;
  all.set_table_id(1);
  all.set_row_end(1'000'000);
  grpc::ClientContext contexts[2];
  const auto first = stub_->ReadRows(&contexts[0], all);
  const auto second = stub_->ReadRows(&contexts[1], all);
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.blocks_read() >= 4; }));
  const auto light = AnotherClient();
  v1::ReadRowsRequest few = all;
  few.set_row_end(1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto reader = light->ReadRows(&context, few);
  v1::ReadRowsReply reply;
  EXPECT_TRUE(reader->Read(&reply));
  EXPECT_TRUE(reader->Finish().ok());
  for (grpc::ClientContext& each : contexts) each.TryCancel();
}

TEST_F(DataServiceOverload, GzipIsRefused) {
  Start();
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::LookupReply reply;
  const grpc::Status status =
      stub_->Lookup(&context, LookupOf(std::vector<std::int64_t>(10'000, 3)), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_TRUE(Lookup(LookupOf({1}), reply).ok());
}

TEST_F(DataServiceOverload, MessageOfManyFieldsIsRefusedBeforeItIsParsed) {
  Start();
  std::string fields;
  for (int i = 0; i < 100'000; ++i) fields += std::string("\x10\x01", 2);  // table_ids: 1
  const grpc::Status many = CallRaw("/embla.v1.DataService/Sync", fields);
  EXPECT_EQ(many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(many.error_message(), HasSubstr("fields"));
  const grpc::Status large =
      CallRaw("/embla.v1.DataService/Sync", std::string(std::size_t{2} << 20, '\0'));
  EXPECT_EQ(large.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(large.error_message(), HasSubstr("at most 1048576"));
  const grpc::Status junk = CallRaw("/embla.v1.DataService/Sync", "\xff\xff");
  EXPECT_EQ(junk.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace embla
