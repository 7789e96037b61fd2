#include "server/rpc/peer_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/data_fixture.h"

namespace embla {
namespace {

class PeerChannelTest : public DataFixture {
 protected:
  absl::StatusOr<ReplicaAck> Send(const ReplicaMessage& message, const std::string& address) {
    NodeSpec node;
    node.address = address;
    std::promise<absl::StatusOr<ReplicaAck>> ack;
    peers_.Send(node, message, kTestWaitMax,
                [&ack](absl::StatusOr<ReplicaAck> result) { ack.set_value(std::move(result)); });
    return ack.get_future().get();
  }

  static ReplicaMessage Message(ReplicaMessage::Kind kind) {
    ReplicaMessage message;
    message.kind = kind;
    message.table = TableId{6};
    message.incarnation = 99;
    message.order = 12;
    return message;
  }

  static PeerMessage MoveOf(const Chunk& chunk, const std::string& rows) {
    PeerMessage message{.unit = {TableId{6}, 5, 1}, .from = NodeId{3}, .body = chunk};
    message.rows = Buffer::Allocate(rows.size());
    if (!rows.empty()) std::memcpy(message.rows.data(), rows.data(), rows.size());
    return message;
  }
  absl::Status SendMove(PeerMessage message, const std::string& address) {
    std::promise<absl::Status> sent;
    peers_.Send(address, std::move(message),
                [&sent](const absl::Status& status) { sent.set_value(status); });
    return sent.get_future().get();
  }

  PeerChannel peers_;
};

TEST_F(PeerChannelTest, CarriesUpdates) {
  Start();
  const std::vector<RowId> ids = {RowId{3}, RowId{8}};
  const std::vector<float> gradients = {1.5f, 2.5f, 3.5f, 4.5f};
  ReplicaMessage message = Message(ReplicaMessage::Kind::kUpdate);
  message.update.session = SessionId{5};
  message.update.seq = UpdateSeq{9};
  message.update.step = 1234;
  UpdatePart part;
  part.table = TableId{6};
  part.column_end = 2;
  part.ids = ids;
  part.gradients = std::as_bytes(std::span(gradients));
  part.clipped = true;
  message.update.parts.push_back(part);
  bool seen = false;
  node_.OnReplicated([&](const ReplicaMessage& got, const ReplicaDone& done) {
    seen = got.kind == ReplicaMessage::Kind::kUpdate && got.table == TableId{6} &&
           got.incarnation == 99 && got.order == 12 && got.update.session == SessionId{5} &&
           got.update.seq == UpdateSeq{9} && got.update.step == 1234 &&
           got.update.parts.size() == 1 && got.update.parts[0].ids[1] == RowId{8} &&
           got.update.parts[0].clipped &&
           std::memcmp(got.update.parts[0].gradients.data(), gradients.data(), 16) == 0;
    done(ReplicaAck{.order = 12, .need_snapshot = false});
  });
  const absl::StatusOr<ReplicaAck> ack = Send(message, server_->address());
  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_TRUE(seen);
  EXPECT_EQ(ack->order, 12u);
}

TEST_F(PeerChannelTest, CarriesProbesAndSnapshots) {
  Start();
  std::vector<std::string> seen;
  node_.OnReplicated([&](const ReplicaMessage& got, const ReplicaDone& done) {
    std::string text = got.kind == ReplicaMessage::Kind::kProbe ? "probe" : "snapshot ";
    text.append(reinterpret_cast<const char*>(got.row_block.data()), got.row_block.size());
    if (got.first) text += " first";
    if (got.last) text += " last";
    for (const SessionWindow& window : got.windows.sessions()) {
      absl::StrAppend(&text, " session ", ToInt(window.session), " from ", ToInt(window.floor), " ",
                      window.words[1]);
    }
    if (got.serves) absl::StrAppend(&text, " serves ", got.life, " since ", ToInt(got.term));
    seen.push_back(text);
    done(ReplicaAck{.order = 3, .need_snapshot = true, .life = 17, .gone = true});
  });
  ReplicaMessage probe = Message(ReplicaMessage::Kind::kProbe);
  probe.life = 16;
  probe.serves = true;
  probe.term = PlanVersion{5};
  const absl::StatusOr<ReplicaAck> ack = Send(probe, server_->address());
  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_TRUE(ack->need_snapshot);
  EXPECT_EQ(ack->life, 17u);
  EXPECT_TRUE(ack->gone);
  ReplicaMessage snapshot = Message(ReplicaMessage::Kind::kSnapshot);
  snapshot.row_block = Buffer::Allocate(3);
  std::memcpy(snapshot.row_block.data(), "abc", 3);
  snapshot.first = true;
  snapshot.last = true;
  snapshot.windows.Record(SessionId{4}, UpdateSeq{70}, UpdateSeq{6});
  ASSERT_TRUE(Send(snapshot, server_->address()).ok());
  EXPECT_THAT(seen, ::testing::ElementsAre("probe serves 16 since 5",
                                           "snapshot abc first last session 4 from 6 64"));
}

TEST_F(PeerChannelTest, CarriesMessagesOfMoves) {
  absl::StatusOr<PeerMessage> seen = absl::NotFoundError("nothing came");
  Start({}, {}, [&seen](PeerMessage message) {
    seen = std::move(message);
    return absl::OkStatus();
  });
  const Chunk chunk{.move = MoveId{4}, .chunk = 2, .base = Lsn{0}, .version = Lsn{9}};
  ASSERT_TRUE(SendMove(MoveOf(chunk, "rows"), server_->address()).ok());
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->unit, (UnitId{TableId{6}, 5, 1}));
  EXPECT_EQ(seen->from, NodeId{3});
  EXPECT_EQ(std::get<Chunk>(seen->body), chunk);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(seen->rows.data()), seen->rows.size()),
            "rows");
}

TEST_F(PeerChannelTest, SaysThatAMessageOfAMoveWasDropped) {
  Start({}, {}, [](const PeerMessage&) { return absl::ResourceExhaustedError("slow down"); });
  EXPECT_EQ(SendMove(MoveOf({}, ""), server_->address()).code(),
            absl::StatusCode::kInvalidArgument);  // Move 0.
  EXPECT_EQ(SendMove(MoveOf({.move = MoveId{1}}, ""), server_->address()).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(PeerChannelTest, ANodeWithoutMovesSaysSo) {
  Start();
  EXPECT_EQ(SendMove(MoveOf({.move = MoveId{1}}, ""), server_->address()).code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(PeerChannelTest, ErrorsOfThePeerPassThrough) {
  Start();
  EXPECT_EQ(Send(Message(ReplicaMessage::Kind::kProbe), server_->address()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(PeerChannelTest, AnUnreachablePeerIsUnavailable) {
  Start();
  const std::string address = server_->address();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(Send(Message(ReplicaMessage::Kind::kProbe), address).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace embla
