// Room for an update that is asked for before its gradients travel: docs/protocol.md, "Asking
// first".
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "server/rpc/data_fixture.h"
#include "server/rpc/data_socket_fixture.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::testing::HasSubstr;

constexpr std::size_t kRows = 5000;  // In an update of these tests: 16 bytes each.
constexpr std::size_t kUpdateBytes = kRows * 16 + 512;

class AskedRoomTest : public DataFixture {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>;

  // A session alone has room for two updates.
  void StartWithRoomForTwo() {
    Start({.stream_requests_max = 4, .in_flight = {.bytes_max = 9 * kUpdateBytes / 2}});
    stream_ = stub_->Stream(&context_);
  }
  void TearDown() override {
    context_.TryCancel();
    stream_.reset();
    DataFixture::TearDown();
  }

  v1::StreamRequest Ask(std::uint64_t sequence, std::size_t bytes = kUpdateBytes) const {
    v1::StreamRequest request;
    request.set_sequence(sequence);
    request.set_reserve_bytes(bytes);
    request.set_reserve_ids(kRows);
    const SessionProof proof = ProveSession(*cluster_key_, kSession);
    request.mutable_lookup()->set_session(ToInt(kSession));
    request.mutable_lookup()->set_session_proof(proof.data(), proof.size());
    return request;
  }
  v1::StreamRequest Update(std::uint64_t sequence, std::size_t rows = kRows) const {
    v1::StreamRequest request;
    request.set_sequence(sequence);
    *request.mutable_update() = UpdateOf(sequence, rows);
    return request;
  }

  v1::StreamReply Read() {
    v1::StreamReply reply;
    EXPECT_TRUE(stream_->Read(&reply));
    return reply;
  }
  // The answer to `request`, which the node has not held.
  v1::StreamReply Say(const v1::StreamRequest& request) {
    EXPECT_TRUE(stream_->Write(request));
    v1::StreamReply reply = Read();
    EXPECT_EQ(reply.sequence(), request.sequence());
    return reply;
  }
  grpc::StatusCode CodeOf(const v1::StreamRequest& request) {
    return static_cast<grpc::StatusCode>(Say(request).code());
  }

  double held() { return ShardMetrics(&metrics_).held_bytes.value(); }
  double answers(std::string_view method, std::string_view code) {
    return metrics_.MakeCounter(MetricNamed("embla_requests_total"), {method, code}).value();
  }

  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(AskedRoomTest, AnUpdateThatIsWelcomeHasItsRoomWhoeverComesBeforeIt) {
  StartWithRoomForTwo();
  node_.Hold();
  for (const std::uint64_t sequence : {1, 2}) {
    const v1::StreamReply welcome = Say(Ask(sequence));
    EXPECT_EQ(welcome.code(), 0) << welcome.message();
    EXPECT_TRUE(welcome.has_lookup());
  }
  EXPECT_GE(held(), 2.0 * kUpdateBytes);
  EXPECT_EQ(CodeOf(Update(3)), grpc::RESOURCE_EXHAUSTED);
  const v1::StreamReply refused = Say(Ask(4));
  EXPECT_EQ(refused.code(), static_cast<int>(grpc::RESOURCE_EXHAUSTED));
  EXPECT_GT(refused.retry_after_ms(), 0u);
  EXPECT_EQ(answers("Update", "RESOURCE_EXHAUSTED"), 2) << "a refused question, too";

  for (const std::uint64_t sequence : {2, 1}) ASSERT_TRUE(stream_->Write(Update(sequence)));
  EXPECT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 2; }));
  EXPECT_LE(held(), 2.0 * kUpdateBytes + 1024) << "each is charged once";
  node_.Release();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Read().code(), 0);
  AwaitFor([&] { return held() == 0; }, absl::Seconds(30), "it is given back");
  EXPECT_EQ(answers("Update", "OK"), 2);
  EXPECT_EQ(answers("Lookup", "OK"), 0) << "a question is none";
  EXPECT_EQ(CodeOf(Update(5)), grpc::OK) << "as ever, without a question";
}

TEST_F(AskedRoomTest, ItIsForOneRequestOfItsSize) {
  StartWithRoomForTwo();
  node_.Hold();
  EXPECT_EQ(CodeOf(Ask(1)), grpc::OK);
  EXPECT_EQ(CodeOf(Ask(2)), grpc::OK);
  EXPECT_EQ(CodeOf(Update(1, 3 * kRows)), grpc::RESOURCE_EXHAUSTED) << "one that is larger";
  EXPECT_EQ(CodeOf(Ask(1)), grpc::OK) << "its room is free again";
  ASSERT_TRUE(stream_->Write(Update(1)));
  EXPECT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  EXPECT_EQ(CodeOf(Update(1)), grpc::RESOURCE_EXHAUSTED) << "it has been used";
}

TEST_F(AskedRoomTest, OnlySessionsHaveItAndWithinLimits) {
  StartWithRoomForTwo();
  v1::StreamRequest stranger = Ask(1);
  stranger.mutable_lookup()->clear_session();
  stranger.mutable_lookup()->clear_session_proof();
  EXPECT_EQ(CodeOf(stranger), grpc::PERMISSION_DENIED);
  v1::StreamRequest forged = Ask(1);
  (*forged.mutable_lookup()->mutable_session_proof())[0] ^= 1;
  EXPECT_EQ(CodeOf(forged), grpc::PERMISSION_DENIED);
  v1::StreamRequest update = Update(1);
  update.set_reserve_bytes(1);
  EXPECT_EQ(CodeOf(update), grpc::INVALID_ARGUMENT);
  v1::StreamRequest lookup = Ask(1);
  lookup.mutable_lookup()->MergeFrom(LookupOf({1}));
  EXPECT_EQ(CodeOf(lookup), grpc::INVALID_ARGUMENT);
  const v1::StreamReply large = Say(Ask(1, std::size_t{1} << 60));
  EXPECT_EQ(large.code(), static_cast<int>(grpc::INVALID_ARGUMENT));
  EXPECT_THAT(large.message(), HasSubstr("at most 268435456"));
  AwaitFor([&] { return held() == 0; }, absl::Seconds(30), "nothing is kept");
}

TEST_F(AskedRoomTest, WhoAsksAndNeverSendsLosesItAtTheDeadline) {
  StartWithRoomForTwo();
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
    EXPECT_EQ(CodeOf(Ask(sequence, 100)), grpc::OK);
  }
  const v1::StreamReply fifth = Say(Ask(5, 100));
  EXPECT_EQ(fifth.code(), static_cast<int>(grpc::RESOURCE_EXHAUSTED));
  EXPECT_THAT(fifth.message(), HasSubstr("send them first"));
  EXPECT_EQ(CodeOf(Update(4, 1)), grpc::OK);
  v1::StreamRequest hasty = Ask(6, kUpdateBytes);
  hasty.set_deadline_ms(1);
  EXPECT_EQ(CodeOf(hasty), grpc::OK);
  const auto asked_anew = [&] { return Say(Ask(6, 100)).code() == 0; };
  EXPECT_TRUE(AwaitFor(asked_anew, absl::Seconds(30), "the sixth's time is over"));
  EXPECT_LE(held(), 1000.0);
  EXPECT_GT(held(), 0);
  stream_->WritesDone();
  v1::StreamReply reply;
  EXPECT_FALSE(stream_->Read(&reply));
  EXPECT_TRUE(AwaitFor([&] { return held() == 0; }, absl::Seconds(30), "the stream's end"));
}

TEST_F(AskedRoomTest, ADataSocketAnswersBeforeTheArraysTravel) {
  StartWithRoomForTwo();
  v1::StreamRequest first = Ask(1, 100);
  first.set_asks_data_socket(true);
  ASSERT_TRUE(stream_->Write(first));
  const v1::DataSocket offer = Read().data_socket();
  EXPECT_EQ(Read().code(), 0);
  data_socket::Peer peer(offer.address());
  peer.Send(data_socket::ToBytes(offer.ticket(), {}));
  ASSERT_TRUE(peer.Receive().has_value());
  node_.Hold();
  for (const std::uint64_t sequence : {7, 8, 9}) {
    peer.Send(data_socket::ToBytes(Ask(sequence).SerializeAsString(), {}));
    const auto answer = static_cast<grpc::StatusCode>(peer.Reply().first.code());
    EXPECT_EQ(answer, sequence == 9 ? grpc::RESOURCE_EXHAUSTED : grpc::OK);
  }
  v1::StreamRequest update = Update(7);
  update.mutable_update()->clear_ids();
  update.mutable_update()->clear_gradients();
  peer.Send(data_socket::ToBytes(update.SerializeAsString(),
                                 {{data_socket::kUpdateIds, std::string(kRows * 8, '\0')},
                                  {data_socket::kGradients, std::string(kRows * 8, '\0')}}));
  EXPECT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  node_.Release();
  EXPECT_TRUE(peer.Reply().first.has_update());
}

}  // namespace
}  // namespace embla
