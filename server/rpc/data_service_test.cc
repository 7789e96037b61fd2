#include "server/rpc/data_service.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/base/retry_hint.h"
#include "core/base/testing/status_matchers.h"
#include "core/wire/status_codec.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "server/rpc/data_fixture.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

using DataServiceUnary = DataFixture;

TEST_F(DataServiceUnary, AGeneratedClientLooksUpAndUpdates) {
  Start();
  v1::LookupReply reply;
  const std::vector<std::int64_t> ids = {5, 9, 5};
  ASSERT_THAT(Lookup(LookupOf(ids), reply), IsOk());
  EXPECT_EQ(reply.rows(), RowsOf(ids));
  EXPECT_EQ(reply.plan_version(), 3u);

  for (const std::uint64_t seq : {6, 7}) {
    grpc::ClientContext context;
    v1::UpdateReply update;
    ASSERT_THAT(stub_->Update(&context, UpdateOf(seq, 3), &update), IsOk());
    EXPECT_EQ(update.duplicate(), seq == 7);
  }
  EXPECT_EQ(node_.updated_rows(), 6u);
}

// By either way, and in pieces: the last number may be the bad one.
TEST_F(DataServiceUnary, GradientsAreLookedAtAsTheyCome) {
  Start();
  constexpr std::size_t kRows = 20'000;
  v1::UpdateRequest finite = UpdateOf(1, kRows);
  v1::UpdateRequest bad = finite;
  bad.mutable_gradients()->replace(8 * kRows - 4, 4, "\xff\xff\xff\xff");
  // These bytes would be finite numbers as fp32.
  v1::UpdateRequest halves = UpdateOf(1, kRows);
  halves.set_wire_dtype(v1::WIRE_DTYPE_FP16);
  halves.set_gradients(std::string(4 * kRows, '\0'));
  const auto unary = [&](const v1::UpdateRequest& request) {
    grpc::ClientContext context;
    v1::UpdateReply reply;
    EXPECT_THAT(stub_->Update(&context, request, &reply), IsOk());
    return node_.finite_updates();
  };
  EXPECT_EQ(unary(finite), 1u);
  EXPECT_EQ(unary(bad), 1u);  // Its table's policy decides.
  EXPECT_EQ(unary(halves), 1u);

  grpc::ClientContext context;
  const auto stream = stub_->Stream(&context);
  const auto streamed = [&](const v1::UpdateRequest& request) {
    v1::StreamRequest message;
    *message.mutable_update() = request;
    EXPECT_TRUE(stream->Write(message));
    v1::StreamReply reply;
    EXPECT_TRUE(stream->Read(&reply) && reply.has_update()) << reply.ShortDebugString();
    return node_.finite_updates();
  };
  EXPECT_EQ(streamed(bad), 1u);
  EXPECT_EQ(streamed(finite), 2u);
  EXPECT_EQ(streamed(halves), 2u);
  stream->WritesDone();
  EXPECT_THAT(stream->Finish(), IsOk());
}

TEST_F(DataServiceUnary, AveragesReplicaGroups) {
  Start();
  v1::SyncRequest request;
  request.add_table_ids(4);
  request.add_table_ids(7);
  v1::SyncReply reply;
  {
    grpc::ClientContext context;
    ASSERT_THAT(stub_->Sync(&context, request, &reply), IsOk());
  }
  EXPECT_EQ(reply.plan_version(), 3u);
  ASSERT_EQ(reply.tables_size(), 2);
  EXPECT_EQ(reply.tables(1).table_id(), 7u);
  EXPECT_EQ(reply.tables(1).replica_groups(), 2u);
  EXPECT_EQ(reply.tables(1).values(), 8u);
  EXPECT_EQ(reply.tables(1).divergence_max(), 0.5);
  EXPECT_EQ(reply.tables(1).squares(), 2.0);
  request.add_table_ids(404);
  grpc::ClientContext unknown, none;
  EXPECT_EQ(stub_->Sync(&unknown, request, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(stub_->Sync(&none, {}, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(DataServiceUnary, ServesUnixSockets) {
  const std::string path = ::testing::TempDir() + "embla_data_service_test.sock";
  Start({}, {.listen = "unix:" + path});
  EXPECT_EQ(server_->address(), "unix:" + path);
  v1::LookupReply reply;
  EXPECT_THAT(Lookup(LookupOf({1}), reply), IsOk());
}

// grpc.health.v1: an empty HealthCheckRequest is answered with {status: SERVING}.
TEST_F(DataServiceUnary, TheHealthServiceSaysServing) {
  Start();
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(nullptr, 0), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_THAT(status, IsOk());
  std::vector<grpc::Slice> slices;
  ASSERT_THAT(reply.Dump(&slices), IsOk());
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(std::string(slices[0].begin(), slices[0].end()), std::string("\x08\x01"));
}

TEST_F(DataServiceUnary, RepliesOfManyMegabytesArrive) {
  Start();
  std::vector<std::int64_t> ids(20'000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 7 % 1000);
  v1::LookupReply reply;
  ASSERT_THAT(Lookup(LookupOf(ids, 128), reply), IsOk());
  EXPECT_TRUE(reply.rows() == RowsOf(ids, 128));
}

TEST_F(DataServiceUnary, MalformedRequestsAreRefusedAndTheNextIsServed) {
  Start();
  v1::LookupRequest bad = LookupOf({1, 2});
  bad.mutable_ids()->resize(9);
  v1::LookupReply reply;
  const grpc::Status status = Lookup(bad, reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("`ids` has 9 bytes"));
  EXPECT_EQ(node_.taken(), 0u);
  EXPECT_THAT(Lookup(LookupOf({1}), reply), IsOk());
}

TEST_F(DataServiceUnary, ErrorsOfTheNodePassThrough) {
  Start();
  v1::LookupRequest unknown = LookupOf({1});
  unknown.mutable_parts(0)->set_table_id(404);
  v1::LookupReply reply;
  const grpc::Status status = Lookup(unknown, reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("table 404"));
}

TEST_F(DataServiceUnary, AGiganticRequestIsRefused) {
  Start({}, {.message_bytes_max = 1 << 20});
  v1::LookupReply reply;
  const grpc::Status status = Lookup(LookupOf(std::vector<std::int64_t>(200'000)), reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(Lookup(LookupOf({1}), reply), IsOk());
}

TEST_F(DataServiceUnary, ARefusalForWantOfRoomSaysWhenToComeAgain) {
  Start({.in_flight = {.strangers_bytes_max = 1}});
  v1::LookupReply reply;
  const absl::Status status = wire::FromGrpc(Lookup(LookupOf({1}), reply));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_GE(RetryAfterOf(status), absl::Milliseconds(10));
  EXPECT_LE(RetryAfterOf(status), absl::Seconds(1));
}

TEST_F(DataServiceUnary, TheNodeGetsTheCallersDeadlineOrTheDefault) {
  Start({.deadline_default = absl::Hours(1)});
  v1::LookupReply reply;
  ASSERT_THAT(Lookup(LookupOf({1}), reply), IsOk());
  EXPECT_GT(node_.last_deadline(), Clock::Real().Now() + absl::Minutes(50));
  EXPECT_LT(node_.last_deadline(), Clock::Real().Now() + absl::Minutes(61));

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(5));
  ASSERT_THAT(stub_->Lookup(&context, LookupOf({1}), &reply), IsOk());
  EXPECT_LT(node_.last_deadline(), Clock::Real().Now() + absl::Minutes(6));
}

TEST_F(DataServiceUnary, CallsAreCountedByMethodAndCode) {
  Start();
  v1::LookupReply reply;
  ASSERT_THAT(Lookup(LookupOf({1}), reply), IsOk());
  v1::LookupRequest unknown = LookupOf({1});
  unknown.mutable_parts(0)->set_table_id(404);
  ASSERT_THAT(Lookup(unknown, reply), StatusIs(absl::StatusCode::kNotFound, HasSubstr("404")));
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("embla_requests_total{code=\"OK\",method=\"Lookup\"} 1"));
  EXPECT_THAT(text, HasSubstr("embla_requests_total{code=\"NOT_FOUND\",method=\"Lookup\"} 1"));
}

TEST_F(DataServiceUnary, ShutdownWaitsForCallsInFlight) {
  Start();
  node_.Hold();
  v1::LookupReply reply;
  grpc::Status status;
  std::thread caller([&] { status = Lookup(LookupOf({4}), reply); });
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  std::thread stopper([&] { server_->Shutdown(kTestWaitMax); });
  node_.Release();
  stopper.join();
  caller.join();
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(reply.rows(), RowsOf({4}));
}

using DataServiceReadRows = DataFixture;

v1::ReadRowsRequest Range(std::int64_t begin, std::int64_t end) {
  v1::ReadRowsRequest request;
  request.set_table_id(1);
  request.set_row_begin(begin);
  request.set_row_end(end);
  return request;
}

TEST_F(DataServiceReadRows, StreamsEveryBlockInOrder) {
  Start();
  grpc::ClientContext context;
  const auto reader = stub_->ReadRows(&context, Range(3, 60));
  v1::ReadRowsReply reply;
  std::string first_bytes;
  while (reader->Read(&reply)) first_bytes += reply.row_block()[0];
  EXPECT_THAT(reader->Finish(), IsOk());
  ASSERT_EQ(first_bytes.size(), 57u);
  for (std::size_t i = 0; i < first_bytes.size(); ++i) {
    EXPECT_EQ(first_bytes[i], static_cast<char>(i + 3));
  }
}

TEST_F(DataServiceReadRows, RefusesWhatIsNoRange) {
  Start();
  for (const auto& [begin, end] : {std::pair(5, 4), std::pair(-1, 4)}) {
    grpc::ClientContext context;
    const auto reader = stub_->ReadRows(&context, Range(begin, end));
    v1::ReadRowsReply reply;
    EXPECT_FALSE(reader->Read(&reply));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(DataServiceReadRows, ErrorsOfTheNodePassThrough) {
  Start();
  v1::ReadRowsRequest request = Range(0, 10);
  request.set_table_id(404);
  grpc::ClientContext context;
  const auto reader = stub_->ReadRows(&context, request);
  v1::ReadRowsReply reply;
  EXPECT_FALSE(reader->Read(&reply));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(DataServiceReadRows, AReaderThatGoesAwayEndsTheReading) {
  Start();
  node_.SetBlockBytes(1 << 20);
  grpc::ClientContext context;
  const auto reader = stub_->ReadRows(&context, Range(0, 1'000'000));
  v1::ReadRowsReply reply;
  ASSERT_TRUE(reader->Read(&reply));
  context.TryCancel();
  EXPECT_TRUE(node_.Await([](const FakeShardNode& node) { return !node.last_read().ok(); }));
  // A terabyte was asked for; flow control let only a little of it be read.
  EXPECT_LT(node_.blocks_read(), 1000);
}

TEST_F(DataServiceReadRows, AReaderThatTakesNothingIsCutOff) {
  Start({.read_stall_max = absl::Milliseconds(50)});
  node_.SetBlockBytes(1 << 20);
  grpc::ClientContext context;
  const auto reader = stub_->ReadRows(&context, Range(0, 1'000'000));
  EXPECT_TRUE(node_.Await([](const FakeShardNode& node) {
    return node.last_read().code() == absl::StatusCode::kDeadlineExceeded;
  }));
  context.TryCancel();
}

using RpcServerStart = DataFixture;

TEST_F(RpcServerStart, RefusesOtherMachinesUnlessInsecure) {
  Start();
  DataService service(node_, pool_, nullptr, {});
  grpc::Service* const services[] = {&service};
  const auto refused = RpcServer::Start({.listen = "0.0.0.0:0"}, services);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--insecure"));
  const auto insecure = RpcServer::Start({.listen = "0.0.0.0:0", .insecure = true}, services);
  EXPECT_THAT(insecure, IsOk());
}

TEST_F(RpcServerStart, CallsOfOtherServicesAreToldWhichPortThisIs) {
  Start({}, {.listen = "127.0.0.1:0", .port = "the data port of shard server n0"});
  const auto channel = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  v1::PlanDelta plan;
  const grpc::Status status =
      v1::CoordinatorService::NewStub(channel)->GetPlan(&context, v1::GetPlanRequest(), &plan);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(),
            "/embla.v1.CoordinatorService/GetPlan is not served here: this is the data port of "
            "shard server n0");
}

TEST_F(RpcServerStart, SaysThatAPortIsTaken) {
  Start();
  DataService service(node_, pool_, nullptr, {});
  grpc::Service* const services[] = {&service};
  const auto second = RpcServer::Start({.listen = server_->address()}, services);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address()));
}

}  // namespace
}  // namespace embla
