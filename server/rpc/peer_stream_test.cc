// Updates of copies by a data socket, as a node of another build, or a stranger, would send them:
// docs/data_sockets.md.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "server/rpc/data_fixture.h"
#include "server/rpc/data_socket_fixture.h"
#include "server/rpc/http2_fixture.h"
#include "server/rpc/key_proofs.h"

namespace embla {
namespace {

using data_socket::Array;
using data_socket::Frame;
using data_socket::kGradients;
using data_socket::kUpdateIds;
using data_socket::Peer;
using data_socket::ToBytes;
using ::embla::testing::AwaitFor;

class PeerStreamTest : public DataFixture {
 protected:
  void SetUp() override {
    node_.OnReplicated([this](const ReplicaMessage& got, const ReplicaDone& done) {
      ++taken_;
      done(ReplicaAck{.order = got.order()});
    });
  }

  v1::DataSocket Greet() {
    const Greeted greeted = GreetAs("n1");
    nonces_ = greeted.nonces;
    return greeted.welcome.data_socket();
  }
  // A connection whose ticket was taken.
  std::unique_ptr<Peer> Connect() {
    const v1::DataSocket offer = Greet();
    auto peer = std::make_unique<Peer>(offer.address());
    peer->Send(ToBytes(offer.ticket(), {}));
    const std::optional<Frame> welcome = peer->Receive();
    EXPECT_TRUE(welcome.has_value() && welcome->text.empty());
    return peer;
  }

  v1::ReplicateRequest Update(std::uint64_t sequence, std::uint32_t rows = 1) const {
    v1::ReplicateRequest request;
    request.set_table_id(6);
    request.set_reign(1);
    request.set_order(sequence + 10);
    request.set_term(1);
    request.set_sequence(sequence);
    request.mutable_peer()->set_nonce(nonces_.caller);
    request.mutable_peer()->set_node("n1");
    request.mutable_peer()->set_token(ProvePeer(*cluster_key_, nonces_, "n1"));
    *request.mutable_update() = UpdateOf(1, rows);
    request.mutable_update()->clear_ids();
    request.mutable_update()->clear_gradients();
    return request;
  }
  static std::string FrameOf(const v1::ReplicateRequest& request, std::size_t rows = 1) {
    return ToBytes(request.SerializeAsString(), {{kUpdateIds, std::string(rows * 8, '\0')},
                                                 {kGradients, std::string(rows * 8, '\0')}});
  }
  static v1::ReplicateReply ReplyOf(Peer& peer) {
    v1::ReplicateReply reply;
    const std::optional<Frame> frame = peer.Receive();
    EXPECT_TRUE(frame.has_value() && reply.ParseFromString(frame->text));
    return reply;
  }

  PeerNonces nonces_;
  int taken_ = 0;
};

TEST_F(PeerStreamTest, AnswersWhatAsksForAnAnswer) {
  Start();
  const auto peer = Connect();
  v1::ReplicateRequest silent = Update(4);
  silent.clear_sequence();
  peer->Send(FrameOf(silent) + FrameOf(Update(7)));
  const v1::ReplicateReply reply = ReplyOf(*peer);
  EXPECT_EQ(reply.sequence(), 7u);
  EXPECT_EQ(reply.code(), 0);
  EXPECT_EQ(reply.order(), 17u);
  EXPECT_EQ(taken_, 2);
}

TEST_F(PeerStreamTest, NobodyIsOfferedASocketWhoDoesNotAsk) {
  Start();
  EXPECT_FALSE(GreetAs("n1", /*asks_data_socket=*/false).welcome.has_data_socket());
}

TEST_F(PeerStreamTest, ATicketIsGoodOnce) {
  Start();
  const v1::DataSocket offer = Greet();
  Peer first(offer.address());
  first.Send(ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(first.Receive().has_value());
  Peer second(offer.address());
  second.Send(ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(second.IsOver());
  Peer guessing(offer.address());
  guessing.Send(ToBytes(std::string(32, 'a'), {}));
  EXPECT_TRUE(guessing.IsOver());
}

// Each update proves whose it is, as calls do: a ticket alone is not enough.
TEST_F(PeerStreamTest, AnUpdateWithoutAProofIsRefusedAndTakesNoMemory) {
  Start();
  const auto peer = Connect();
  v1::ReplicateRequest forged = Update(1, 1'000'000);
  forged.clear_peer();
  peer->Send(FrameOf(forged, 1'000'000));
  EXPECT_EQ(ReplyOf(*peer).code(), static_cast<int>(absl::StatusCode::kPermissionDenied));
  forged = Update(2);
  forged.mutable_peer()->set_node("n2");
  peer->Send(FrameOf(forged));
  EXPECT_EQ(ReplyOf(*peer).code(), static_cast<int>(absl::StatusCode::kUnauthenticated));
  EXPECT_EQ(taken_, 0);
  peer->Send(FrameOf(Update(3)));
  EXPECT_EQ(ReplyOf(*peer).order(), 13u) << "the connection goes on";
}

TEST_F(PeerStreamTest, WhatIsNoUpdateIsRefused) {
  DataServiceOptions options;
  options.limits.request_bytes_max = 1000;
  Start(options);
  const auto peer = Connect();
  const int invalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
  peer->Send(FrameOf(Update(1, 2)));  // Arrays of one row.
  EXPECT_EQ(ReplyOf(*peer).code(), invalid);
  v1::ReplicateRequest snapshot = Update(2);
  snapshot.mutable_snapshot()->set_first(true);
  peer->Send(ToBytes(snapshot.SerializeAsString(), {}));
  EXPECT_EQ(ReplyOf(*peer).code(), invalid);
  peer->Send(FrameOf(Update(3, 100), 100));  // 1600 bytes.
  EXPECT_EQ(ReplyOf(*peer).code(), invalid);
  EXPECT_EQ(taken_, 0);
  peer->Send(ToBytes("\x01", {}));
  EXPECT_TRUE(peer->IsOver()) << "what is no message ends the connection";
  EXPECT_TRUE(AwaitFor([&] { return ShardMetrics(&metrics_).data_sockets.value() == 0; },
                       kTestWaitMax, "it goes"));
}

TEST_F(PeerStreamTest, ThePortTakesTicketsAsWell) {
  Start();
  const v1::DataSocket offer = Greet();
  ASSERT_TRUE(offer.by_port());
  Peer peer(http2::Connect(server_->address()));
  peer.Send("EMBLA/1\n" + ToBytes(offer.ticket(), {}) + FrameOf(Update(1)));
  const std::optional<Frame> welcome = peer.Receive();
  EXPECT_TRUE(welcome.has_value() && welcome->text.empty());
  EXPECT_EQ(ReplyOf(peer).order(), 11u);
}

// Messages of moves have the same way, and prove the same.
class PeerMovesTest : public PeerStreamTest {
 protected:
  v1::ReplicateRequest Chunk(std::uint64_t sequence) const {
    v1::ReplicateRequest request;
    request.set_sequence(sequence);
    v1::MoveMessage& move = *request.mutable_move();
    move.mutable_unit()->set_table_id(6);
    move.set_from_node(1);
    move.set_move(1);
    move.mutable_chunk()->set_version(5);
    *move.mutable_peer() = Update(1).peer();
    return request;
  }
  static std::string ChunkFrame(const v1::ReplicateRequest& request, const std::string& rows) {
    return ToBytes(request.SerializeAsString(), {{v1::MoveChunk::kRowsFieldNumber, rows}});
  }
  static int Code(absl::StatusCode code) { return static_cast<int>(code); }
};

TEST_F(PeerMovesTest, AreTakenOrRefusedOneByOne) {
  std::vector<std::string> rows;
  DataServiceOptions options;
  options.limits.request_bytes_max = 1000;
  Start(options, {}, [&rows](const PeerMessage& message) {
    rows.emplace_back(reinterpret_cast<const char*>(message.rows.data()), message.rows.size());
    return rows.size() < 3 ? absl::OkStatus() : absl::ResourceExhaustedError("slow down");
  });
  const auto peer = Connect();
  peer->Send(ChunkFrame(Chunk(1), "rows") + ChunkFrame(Chunk(2), ""));
  for (const std::uint64_t sequence : {1u, 2u}) {
    const v1::ReplicateReply reply = ReplyOf(*peer);
    EXPECT_EQ(reply.sequence(), sequence);
    EXPECT_EQ(reply.code(), 0) << reply.message();
  }
  EXPECT_THAT(rows, ::testing::ElementsAre("rows", ""));

  v1::ReplicateRequest forged = Chunk(3);
  forged.mutable_move()->clear_peer();
  peer->Send(ChunkFrame(forged, std::string(10'000'000, 'x')));
  EXPECT_EQ(ReplyOf(*peer).code(), Code(absl::StatusCode::kPermissionDenied));
  peer->Send(ChunkFrame(Chunk(4), std::string(2000, 'x')));
  EXPECT_EQ(ReplyOf(*peer).code(), Code(absl::StatusCode::kInvalidArgument));
  const std::string many(400, 'x');
  peer->Send(ToBytes(Chunk(5).SerializeAsString(), {{v1::MoveChunk::kRowsFieldNumber, many},
                                                    {v1::MoveChunk::kRowsFieldNumber, "b"}}));
  EXPECT_EQ(ReplyOf(*peer).code(), Code(absl::StatusCode::kInvalidArgument));
  v1::ReplicateRequest nothing = Chunk(6);
  nothing.mutable_move()->clear_chunk();
  peer->Send(ChunkFrame(nothing, "rows"));
  EXPECT_EQ(ReplyOf(*peer).code(), Code(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(rows.size(), 2u);

  peer->Send(ChunkFrame(Chunk(7), "rows"));
  EXPECT_EQ(ReplyOf(*peer).code(), Code(absl::StatusCode::kResourceExhausted));
  peer->Send(FrameOf(Update(8)));
  EXPECT_EQ(ReplyOf(*peer).code(), 0) << "the connection goes on";
}

TEST_F(PeerMovesTest, ANodeWithoutMovesSaysSo) {
  Start();
  const auto peer = Connect();
  peer->Send(ChunkFrame(Chunk(1), "rows"));
  EXPECT_EQ(ReplyOf(*peer).code(), Code(absl::StatusCode::kUnimplemented));
}

// A caller that greets for ever has no more than so many tickets.
TEST_F(PeerStreamTest, TicketsThatNobodyShowsAreForgotten) {
  Start();
  const v1::DataSocket first = Greet();
  for (int i = 0; i < 1024; ++i) Greet();
  Peer late(first.address());
  late.Send(ToBytes(first.ticket(), {}));
  EXPECT_TRUE(late.IsOver());
}

// A peer that waits for its answer does not keep the process.
TEST_F(PeerStreamTest, TheServiceEndsWhenTheNodeHasAnswered) {
  Start();
  ReplicaDone held;
  node_.OnReplicated([&](const ReplicaMessage&, const ReplicaDone& done) { held = done; });
  const auto peer = Connect();
  peer->Send(FrameOf(Update(1)));
  ASSERT_TRUE(AwaitFor([&] { return held != nullptr; }, kTestWaitMax, "it is there"));
  server_->Shutdown(absl::ZeroDuration());
  server_.reset();
  std::thread node([&] {
    EXPECT_TRUE(peer->IsOver());
    std::exchange(held, nullptr)(absl::UnavailableError("the node stops"));
  });
  service_.reset();
  node.join();
}

}  // namespace
}  // namespace embla
