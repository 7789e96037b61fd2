// Limits on a client's harm to others: it can take neither the node's memory nor its threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "server/rpc/data_fixture.h"
#include "server/rpc/http2_fixture.h"
#include "server/rpc/http2_sender.h"

namespace embla::overload_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
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
  double refused() { return answers("Update", "RESOURCE_EXHAUSTED"); }
  // A rank's contribution to a step of table 1, with about as many bytes.
  v1::UpdateRequest ContributionOf(std::uint64_t session, std::uint32_t rank, std::size_t bytes) {
    v1::UpdateRequest request = UpdateOf(1, bytes / 16);
    const SessionProof proof = ProveSession(*cluster_key_, SessionId{session});
    request.set_session(session);
    request.set_session_proof(proof.data(), proof.size());
    request.mutable_parts(0)->set_clipped(true);
    request.mutable_claim()->set_table_id(1);
    request.mutable_claim()->set_rank(rank);
    v1::UnitRun& run = *request.mutable_claim()->add_units();
    run.set_granule_end(1);
    return request;
  }
  struct Contribution {
    grpc::ClientContext context;
    v1::UpdateRequest request;
    v1::UpdateReply reply;
    std::promise<grpc::Status> status;
  };
  static constexpr std::size_t kInt8Rows = 128;
  static v1::LookupRequest Int8Lookup() {
    v1::LookupRequest request = LookupOf(std::vector<std::int64_t>(kInt8Rows, 3), 2048);
    request.set_wire_dtype(v1::WIRE_DTYPE_INT8);
    return request;
  }
  // The lookup has arrived: its reply is held for it, and the same rows as fp32.
  void ExpectStagedRowsHeld() {
    ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
    const double rows = kInt8Rows * (2048 + 8) + kInt8Rows * 2048 * 4;
    EXPECT_GE(held(), rows);
    EXPECT_LE(held(), rows + 4096);
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
    EXPECT_THAT(Lookup(LookupOf({1}), reply), IsOk());
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

// A client that opens more calls than it was told is cut off.
TEST_F(DataServiceOverload, CallsOfAConnectionAreBounded) {
  constexpr std::uint16_t kMaxConcurrentStreams = 3;
  Start({}, {.connections = {.open_calls_max = 5}});
  http2::Sender sender(server_->address());
  ASSERT_TRUE(
      AwaitFor([&] { return sender.Setting(kMaxConcurrentStreams) == 5; }, kLimit, "the bound"));
  v1::StreamRequest request;
  *request.mutable_lookup() = LookupOf({1});
  for (std::uint32_t stream = 1; stream <= 9; stream += 2) {
    sender.Open(stream, "/embla.v1.DataService/Stream");
    request.set_sequence(stream);
    sender.SendMessage(stream, request.SerializeAsString());
    EXPECT_TRUE(AwaitFor([&] { return sender.Answers(stream); }, kLimit, "it is served"));
  }
  sender.Open(11, "/embla.v1.DataService/Stream");
  AwaitFor(
      [&] {
        sender.Read();
        return sender.is_closed();
      },
      kLimit, "the sixth call ends the connection");
}

// The shares of connections allow each client all that it can send here; gRPC's own bound does not.
TEST_F(DataServiceOverload, MemoryOfGrpcIsBounded) {
  constexpr std::size_t kMuch = std::size_t{1} << 30;
  Start({}, {.shares = {.stranger_bytes_max = kMuch, .strangers_bytes_max = kMuch},
             .grpc_bytes_max = std::size_t{4} << 20});
  std::vector<std::unique_ptr<http2::Sender>> senders;
  for (int i = 0; i < 16; ++i) {
    http2::Sender& sender =
        *senders.emplace_back(std::make_unique<http2::Sender>(server_->address()));
    sender.Begin(1, "/embla.v1.DataService/Lookup", 61 << 20);
    sender.SendMore(1, 4 << 20, {}, absl::Seconds(2));
  }
  const auto ended = [&] {
    return std::count_if(senders.begin(), senders.end(), [](auto& sender) {
      sender->Read();
      return sender->is_closed();
    });
  };
  EXPECT_TRUE(AwaitFor([&] { return ended() >= 12; }, kLimit, "those that hold too much are ended"))
      << ended() << " of 16 connections have been ended";
  senders.clear();
  v1::LookupReply reply;
  EXPECT_TRUE(AwaitFor([&] { return Lookup(LookupOf({1}), reply).ok(); }, kLimit,
                       "another client is served"));
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
  EXPECT_THAT(reader->Finish(), IsOk());
  for (grpc::ClientContext& each : contexts) each.TryCancel();
}

// The node holds what it is given, as a table holds contributions until all ranks have sent theirs.
TEST_F(DataServiceOverload, ContributionsThatWaitAreChargedAndLetTheMissingRankIn) {
  constexpr std::size_t kBytes = 100'000;
  Start({.in_flight = {.bytes_max = 11 * kBytes}});
  node_.Hold();
  const auto stub = AnotherClient();
  std::vector<std::unique_ptr<Contribution>> sent;
  const auto contribute = [&](std::uint64_t session, std::uint32_t rank) {
    sent.push_back(std::make_unique<Contribution>());
    Contribution& one = *sent.back();
    one.request = ContributionOf(session, rank, kBytes);
    const double before = held() + refused();
    stub->async()->Update(&one.context, &one.request, &one.reply,
                          [&one](const grpc::Status& status) { one.status.set_value(status); });
    AwaitFor([&] { return held() + refused() > before; }, kLimit, "it is held or refused");
  };
  const auto refused_by = [&](std::uint64_t session, std::uint32_t rank) {
    const double before = refused();
    contribute(session, rank);
    return refused() > before;
  };
  // Three ranks send contributions to this step and later ones until they are refused.
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(refused_by(100 + rank, rank));
    while (!refused_by(100 + rank, rank)) {
    }
  }
  EXPECT_GE(held(), 7.0 * kBytes);
  EXPECT_LE(held(), 8.0 * kBytes) << "each is charged as long as it waits";

  EXPECT_FALSE(refused_by(103, 3)) << "the rank that all wait for";

  node_.Release();
  for (const std::unique_ptr<Contribution>& each : sent) {
    const grpc::Status status = each->status.get_future().get();
    if (status.ok()) continue;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("wait until steps are made"));
  }
  AwaitFor([&] { return held() == 0; }, kLimit, "what was made is given back");
}

// A lookup of int8 rows takes their bytes as fp32, too: rows of cut columns are gathered so.
TEST_F(DataServiceOverload, RowsThatAreStagedAreChargedWithTheirLookup) {
  Start();
  node_.Hold();
  const v1::LookupRequest request = Int8Lookup();
  grpc::ClientContext context;
  v1::LookupReply reply;
  std::promise<grpc::Status> done;
  stub_->async()->Lookup(&context, &request, &reply,
                         [&done](const grpc::Status& status) { done.set_value(status); });
  ExpectStagedRowsHeld();
  node_.Release();
  EXPECT_THAT(done.get_future().get(), IsOk());
  AwaitFor([&] { return held() == 0; }, kLimit, "it is given back");
}

TEST_F(DataServiceOverload, RowsThatAreStagedAreChargedWithTheirLookupOnAStream) {
  Start();
  node_.Hold();
  grpc::ClientContext context;
  const auto stream = stub_->Stream(&context);
  v1::StreamRequest request;
  request.set_sequence(1);
  *request.mutable_lookup() = Int8Lookup();
  ASSERT_TRUE(stream->Write(request));
  ExpectStagedRowsHeld();
  node_.Release();
  v1::StreamReply reply;
  EXPECT_TRUE(stream->Read(&reply));
  AwaitFor([&] { return held() == 0; }, kLimit, "it is given back");
}

TEST_F(DataServiceOverload, GzipIsRefused) {
  Start();
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::LookupReply reply;
  const grpc::Status status =
      stub_->Lookup(&context, LookupOf(std::vector<std::int64_t>(10'000, 3)), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_THAT(Lookup(LookupOf({1}), reply), IsOk());
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
}  // namespace embla::overload_test
