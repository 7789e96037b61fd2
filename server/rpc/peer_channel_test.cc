#include "server/rpc/peer_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/failpoint.h"
#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "server/rpc/data_fixture.h"
#include "server/rpc/key_proofs.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;

class PeerChannelTest : public DataFixture {
 protected:
  absl::StatusOr<ReplicaAck> Send(const ReplicaMessage& message, const std::string& address) {
    NodeSpec node;
    node.address = address;
    std::promise<absl::StatusOr<ReplicaAck>> ack;
    peers_.Send(node, {&message, 1}, kTestWaitMax,
                [&ack](absl::StatusOr<ReplicaAck> result) { ack.set_value(std::move(result)); });
    return ack.get_future().get();
  }

  static ReplicaMessage ProbeMessage() {
    ReplicaMessage message;
    message.content = CopyProbe{TableId{6}, 99, 12};
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

  // Whether the node hears of anything, and of a call that proves nothing.
  void ExpectNothingIsDone() {
    node_.OnReplicated([](const ReplicaMessage&, const ReplicaDone& done) {
      ADD_FAILURE() << "a stranger's message was taken in";
      done(ReplicaAck{});
    });
  }

  PeerChannel peers_{key_, "n1"};
};

TEST_F(PeerChannelTest, ChannelsThatNobodyUsesGoWhenAnotherOneIsMade) {
  Start();
  ManualClock clock(absl::FromUnixSeconds(1'000'000));
  PeerChannel channel(key_, "n1", clock);
  const auto send = [&](const std::string& address) {
    std::promise<void> over;
    NodeSpec node;
    node.address = address;
    const ReplicaMessage message = ProbeMessage();
    channel.Send(node, {&message, 1}, absl::Milliseconds(500),
                 [&over](const absl::StatusOr<ReplicaAck>&) { over.set_value(); });
    over.get_future().get();
  };
  node_.OnReplicated([](const ReplicaMessage&, const ReplicaDone& done) { done(ReplicaAck{}); });
  send("127.0.0.1:1");
  send(server_->address());
  EXPECT_EQ(channel.channels(), 2u);
  clock.Advance(absl::Minutes(9));
  send(server_->address());
  clock.Advance(absl::Minutes(2));
  send("127.0.0.1:2");
  EXPECT_EQ(channel.channels(), 2u) << "that of a node which is gone has gone, that in use has not";
}

TEST_F(PeerChannelTest, CarriesUpdates) {
  Start();
  const std::vector<RowId> ids = {RowId{3}, RowId{8}};
  const std::vector<float> gradients = {1.5f, 2.5f, 3.5f, 4.5f};
  ReplicaMessage message;
  UpdateBatch& batch = message.content.emplace<CopiedUpdate>(TableId{6}, 99, 12).batch;
  batch.session = SessionId{5};
  batch.seq = UpdateSeq{9};
  batch.step = 1234;
  UpdatePart part;
  part.table = TableId{6};
  part.column_end = 2;
  part.ids = ids;
  part.gradients = std::as_bytes(std::span(gradients));
  part.clipped = true;
  batch.parts.push_back(part);
  bool seen = false;
  node_.OnReplicated([&](const ReplicaMessage& got, const ReplicaDone& done) {
    const UpdateBatch& update = std::get<CopiedUpdate>(got.content).batch;
    seen = got.table() == TableId{6} && got.reign() == 99 && got.order() == 12 &&
           update.session == SessionId{5} && update.seq == UpdateSeq{9} && update.step == 1234 &&
           update.parts.size() == 1 && update.parts[0].ids[1] == RowId{8} &&
           update.parts[0].clipped &&
           std::memcmp(update.parts[0].gradients.data(), gradients.data(), 16) == 0;
    done(ReplicaAck{.order = 12, .need_snapshot = false});
  });
  const absl::StatusOr<ReplicaAck> ack = Send(message, server_->address());
  ASSERT_THAT(ack, IsOk());
  EXPECT_TRUE(seen);
  EXPECT_EQ(ack->order, 12u);
}

TEST_F(PeerChannelTest, CarriesUpdatesThatFollowEachOtherByADataSocket) {
  Start();
  const std::vector<RowId> ids = {RowId{3}, RowId{8}, RowId{5}};
  const std::vector<float> gradients(2000, 1.5f);
  std::vector<ReplicaMessage> messages;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ReplicaMessage& message = messages.emplace_back();
    message.serves = true;
    UpdateBatch& batch = message.content.emplace<CopiedUpdate>(TableId{6}, 99, 12 + i).batch;
    batch.plan_version = PlanVersion{i + 1};
    batch.session = SessionId{5};
    batch.seq = UpdateSeq{9};
    UpdatePart part;
    part.table = TableId{6};
    part.column_end = 1 + static_cast<std::uint32_t>(i) * 999;
    part.ids = std::span(ids).subspan(i, 1);
    part.gradients = std::as_bytes(std::span(gradients).first(part.column_end));
    batch.parts.push_back(part);
  }
  std::vector<std::string> seen;
  node_.OnReplicated([&](const ReplicaMessage& got, const ReplicaDone& done) {
    const UpdateBatch& update = std::get<CopiedUpdate>(got.content).batch;
    const UpdatePart& part = update.parts.at(0);
    seen.push_back(absl::StrCat(got.order(), got.serves ? " serves" : "", " plan ",
                                ToInt(update.plan_version), " row ", ToInt(part.ids[0]), " ",
                                part.gradients.size(), " bytes"));
    EXPECT_EQ(std::memcmp(part.gradients.data(), gradients.data(), part.gradients.size()), 0);
    done(ReplicaAck{.order = got.order()});
  });
  std::promise<absl::StatusOr<ReplicaAck>> ack;
  NodeSpec node;
  node.address = server_->address();
  peers_.Send(node, messages, kTestWaitMax,
              [&ack](absl::StatusOr<ReplicaAck> result) { ack.set_value(std::move(result)); });
  const absl::StatusOr<ReplicaAck> answer = ack.get_future().get();
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->order, 14u);
  EXPECT_THAT(seen, ::testing::ElementsAre("12 serves plan 1 row 3 4 bytes",
                                           "13 serves plan 2 row 8 4000 bytes",
                                           "14 serves plan 3 row 5 7996 bytes"));
}

class PeerSocketTest : public PeerChannelTest {
 protected:
  // Updates of the fake node's table, at orders 12, 13, ...
  static std::vector<ReplicaMessage> Updates(std::size_t count, std::size_t columns = 1) {
    static const std::vector<RowId> ids = {RowId{3}};
    static const std::vector<float> gradients(1'000, 1.5f);
    std::vector<ReplicaMessage> messages;
    for (std::size_t i = 0; i < count; ++i) {
      ReplicaMessage& message = messages.emplace_back();
      UpdateBatch& batch = message.content.emplace<CopiedUpdate>(TableId{6}, 99, 12 + i).batch;
      batch.session = SessionId{5};
      batch.seq = UpdateSeq{i + 1};
      UpdatePart& part = batch.parts.emplace_back();
      part.table = TableId{6};
      part.column_end = static_cast<std::uint32_t>(columns);
      part.ids = ids;
      part.gradients = std::as_bytes(std::span(gradients).first(columns));
    }
    return messages;
  }
  using Answer = std::future<absl::StatusOr<ReplicaAck>>;
  Answer Send(std::span<const ReplicaMessage> messages, absl::Duration timeout = kTestWaitMax) {
    NodeSpec node;
    node.address = server_->address();
    const auto ack = std::make_shared<std::promise<absl::StatusOr<ReplicaAck>>>();
    peers_.Send(node, messages, timeout,
                [ack](absl::StatusOr<ReplicaAck> result) { ack->set_value(std::move(result)); });
    return ack->get_future();
  }
  absl::StatusOr<ReplicaAck> Probe() {
    return PeerChannelTest::Send(ProbeMessage(), server_->address());
  }
  double sockets() { return ShardMetrics(&metrics_).data_sockets.value(); }
};

TEST_F(PeerSocketTest, ProbesSayWhetherSeveralUpdatesMayGoTogether) {
  Start();
  node_.OnReplicated([](const ReplicaMessage&, const ReplicaDone& done) { done(ReplicaAck{}); });
  const absl::StatusOr<ReplicaAck> ack = Probe();
  ASSERT_THAT(ack, IsOk());
  EXPECT_EQ(ack->updates_max, 64u);
  EXPECT_EQ(sockets(), 1);
}

TEST_F(PeerSocketTest, ANodeWithoutDataSocketsTakesOneUpdateAtATime) {
  DataServiceOptions options;
  options.data_sockets = false;
  Start(options);
  node_.OnReplicated([](const ReplicaMessage& got, const ReplicaDone& done) {
    done(ReplicaAck{.order = got.order()});
  });
  const absl::StatusOr<ReplicaAck> probe = Probe();
  ASSERT_THAT(probe, IsOk());
  EXPECT_EQ(probe->updates_max, 1u);
  const std::vector<ReplicaMessage> updates = Updates(2);
  const absl::StatusOr<ReplicaAck> ack = Send(std::span(updates).first(1)).get();
  ASSERT_THAT(ack, IsOk());
  EXPECT_EQ(ack->order, 12u);
  EXPECT_EQ(Send(updates).get().status().code(), absl::StatusCode::kUnavailable);
}

// Chunks that nobody waits for would be in the way.
TEST_F(PeerSocketTest, CarriesWhatSomebodyWaitsForOfMoves) {
  std::vector<PeerMessage> seen;
  Start({}, {}, [&seen](PeerMessage message) {
    seen.push_back(std::move(message));
    return seen.size() < 4 ? absl::OkStatus() : absl::ResourceExhaustedError("slow down");
  });
  PeerMessage chunk = MoveOf({.move = MoveId{1}, .version = Lsn{9}}, "rows");
  ASSERT_THAT(SendMove(std::move(chunk), server_->address()), IsOk());
  EXPECT_EQ(sockets(), 0);
  const PeerMessage holds{
      .unit = {TableId{6}, 5, 1}, .from = NodeId{3}, .body = Holds{MoveId{1}, Lsn{4}}};
  ASSERT_THAT(
      SendMove({.unit = holds.unit, .from = holds.from, .body = holds.body}, server_->address()),
      IsOk());
  EXPECT_EQ(sockets(), 1);
  SetFailpoint("frame_socket.receive", FailpointAction::kError, 1000);  // Counts from here on.
  const std::uint64_t before = FailpointUses("frame_socket.receive");
  PeerMessage urgent = MoveOf({.move = MoveId{1}, .version = Lsn{10}}, "more rows");
  urgent.is_urgent = true;
  ASSERT_THAT(SendMove(std::move(urgent), server_->address()), IsOk());
  EXPECT_GT(FailpointUses("frame_socket.receive"), before) << "it came by the socket";
  ClearFailpoints();
  EXPECT_THAT(SendMove(MoveOf({.move = MoveId{2}}, ""), server_->address()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(std::get<Holds>(seen[1].body).lsn, Lsn{4});
  EXPECT_EQ(std::get<Chunk>(seen[2].body).version, Lsn{10});
  EXPECT_TRUE(seen[2].is_urgent);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(seen[2].rows.data()), seen[2].rows.size()),
            "more rows");
}

TEST_F(PeerSocketTest, AMessageOfAMoveFindsAnotherSocketWhenOneBreaks) {
  Start({}, {}, [](const PeerMessage&) { return absl::OkStatus(); });
  const auto holds = [&] {
    return SendMove(
        {.unit = {TableId{6}, 5, 1}, .from = NodeId{3}, .body = Holds{MoveId{1}, Lsn{4}}},
        server_->address());
  };
  ASSERT_THAT(holds(), IsOk());
  SetFailpoint("frame_socket.receive", FailpointAction::kError);
  EXPECT_THAT(holds(), StatusIs(absl::StatusCode::kUnavailable));
  ClearFailpoints();
  EXPECT_THAT(holds(), IsOk());
  EXPECT_EQ(sockets(), 1);
}

// Its texts are longer than those of requests.
TEST_F(PeerSocketTest, CarriesTheWindowsOfManySessions) {
  DataServiceOptions options;
  options.limits.parts_max = 1;
  std::size_t sessions = 0;
  Start(options, {}, [&sessions](const PeerMessage& message) {
    sessions = std::get<FinalCut>(message.body).windows.sessions().size();
    return absl::OkStatus();
  });
  std::vector<SessionWindow> windows;
  for (std::uint64_t i = 1; i <= 3000; ++i) {
    windows.push_back({.session = SessionId{i}, .floor = UpdateSeq{i}, .words = {}});
  }
  FinalCut cut{.move = MoveId{1}, .lsn = Lsn{2}, .needed = {Lsn{2}}};
  cut.windows = *UnitWindows::FromSessions(std::move(windows));
  ASSERT_THAT(SendMove({.unit = {TableId{6}, 5, 1}, .from = NodeId{3}, .body = std::move(cut)},
                       server_->address()),
              IsOk());
  EXPECT_EQ(sessions, 3000u);
  EXPECT_EQ(sockets(), 1);
}

TEST_F(PeerSocketTest, WhatBreaksFailsAndIsMadeAnew) {
  Start();
  Mutex mu;
  std::vector<ReplicaDone> held;
  node_.OnReplicated([&](const ReplicaMessage&, const ReplicaDone& done) {
    MutexLock lock(mu);
    held.push_back(done);
  });
  const auto answer_all = [&] {
    MutexLock lock(mu);
    for (const ReplicaDone& done : std::exchange(held, {})) done(ReplicaAck{.order = 12});
  };
  const auto has_held = [&](std::size_t count) {
    MutexLock lock(mu);
    return held.size() >= count;
  };
  const std::vector<ReplicaMessage> updates = Updates(3);
  Answer broken = Send(updates);
  ASSERT_TRUE(AwaitFor([&] { return has_held(3); }, kTestWaitMax, "the updates are there"));
  SetFailpoint("frame_socket.receive", FailpointAction::kError);
  Answer another = Send(updates);  // Has the node receive.
  EXPECT_EQ(broken.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(another.get().status().code(), absl::StatusCode::kUnavailable);
  ClearFailpoints();
  answer_all();  // Nobody hears it.
  const auto answers = [&] {
    Answer again = Send(updates);
    EXPECT_TRUE(AwaitFor(
        [&] {
          answer_all();
          return again.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        },
        kTestWaitMax, "an answer"));
    return again.get().ok();
  };
  EXPECT_TRUE(AwaitFor(answers, kTestWaitMax, "updates go again"));
  EXPECT_EQ(sockets(), 1);
}

// Its caller is judged again.
TEST_F(PeerSocketTest, AnOldSocketEndsAndIsMadeAnew) {
  DataServiceOptions options;
  options.connection_age = absl::Milliseconds(50);
  Start(options);
  node_.OnReplicated([](const ReplicaMessage& got, const ReplicaDone& done) {
    done(ReplicaAck{.order = got.order()});
  });
  const std::vector<ReplicaMessage> updates = Updates(2);
  const auto goes = [&] { return Send(updates).get().ok(); };
  EXPECT_TRUE(goes());
  EXPECT_TRUE(AwaitFor([&] { return !goes(); }, kTestWaitMax, "the socket ends"));
  EXPECT_TRUE(AwaitFor(goes, kTestWaitMax, "there is another one"));
}

TEST_F(PeerSocketTest, ANodeThatDoesNotAnswerInTimeLosesTheSocket) {
  Start();
  std::vector<ReplicaDone> held;
  node_.OnReplicated([&](const ReplicaMessage&, const ReplicaDone& done) { held.push_back(done); });
  const std::vector<ReplicaMessage> updates = Updates(1);
  EXPECT_EQ(Send(updates, absl::Milliseconds(50)).get().status().code(),
            absl::StatusCode::kUnavailable);
  for (const ReplicaDone& done : std::exchange(held, {})) done(ReplicaAck{});
  EXPECT_TRUE(AwaitFor([&] { return sockets() == 0; }, kTestWaitMax, "the socket goes"));
}

TEST_F(PeerSocketTest, WhoIsAboutToEndWaitsForNobody) {
  Start();
  // Updates may still arrive while the service drains, and when this function is over.
  struct Held {
    Mutex mu;
    bool is_over = false;
    std::vector<ReplicaDone> updates;
  };
  const auto held = std::make_shared<Held>();
  node_.OnReplicated([held](const ReplicaMessage&, const ReplicaDone& done) {
    {
      MutexLock lock(held->mu);
      if (!held->is_over) return held->updates.push_back(done);
    }
    done(ReplicaAck{});
  });
  const std::vector<ReplicaMessage> updates = Updates(2);
  Answer silent = Send(updates);
  ASSERT_TRUE(AwaitFor([&] { return sockets() == 1; }, kTestWaitMax, "the socket is there"));
  peers_.CancelCalls();
  EXPECT_THAT(silent.get(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Send(updates).get(), StatusIs(absl::StatusCode::kUnavailable));
  service_->Drain();
  std::vector<ReplicaDone> unanswered;
  {
    MutexLock lock(held->mu);
    held->is_over = true;
    unanswered.swap(held->updates);
  }
  for (const ReplicaDone& done : unanswered) done(ReplicaAck{});
}

// A sender that does not wait for answers is not read on for ever.
TEST_F(PeerSocketTest, ANodeReadsNoMoreThanItHasRoomFor) {
  DataServiceOptions options;
  options.stream_requests_max = 4;
  Start(options);
  Mutex mu;
  std::vector<ReplicaDone> held;
  std::size_t most = 0;
  node_.OnReplicated([&](const ReplicaMessage&, const ReplicaDone& done) {
    MutexLock lock(mu);
    held.push_back(done);
    most = std::max(most, held.size());
  });
  const std::vector<ReplicaMessage> updates = Updates(50, 1'000);
  Answer answer = Send(updates);
  std::size_t answered = 0;
  const auto answer_four = [&] {
    std::vector<ReplicaDone> taken;
    {
      MutexLock lock(mu);
      if (held.size() == 4 || answered + held.size() == updates.size()) taken.swap(held);
    }
    answered += taken.size();
    for (const ReplicaDone& done : taken) done(ReplicaAck{.order = 61});
    return answered == updates.size();
  };
  EXPECT_TRUE(AwaitFor(answer_four, kTestWaitMax, "all updates come"));
  EXPECT_THAT(answer.get(), IsOk());
  EXPECT_EQ(most, 4u);
}

// A connection on which nobody has greeted takes no message of this length.
TEST_F(PeerChannelTest, GreetsAgainOnAnotherConnectionBeforeALongMessage) {
  Start();
  node_.OnReplicated([](const ReplicaMessage&, const ReplicaDone& done) { done(ReplicaAck{}); });
  Buffer block = Buffer::Allocate(std::size_t{40} << 20);
  std::memset(block.data(), 1, block.size());
  ReplicaMessage snapshot;
  snapshot.content = CopiedRows{TableId{6}, 99, 12, std::move(block), /*first=*/true};
  EXPECT_THAT(Send(snapshot, server_->address()), IsOk());
  for (int socket = 3; socket < 1024; ++socket) {
    sockaddr_in name{};
    socklen_t bytes = sizeof(name);
    int is_listening = 1;
    socklen_t int_bytes = sizeof(is_listening);
    ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &int_bytes);
    if (is_listening == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &bytes) == 0 &&
        server_->address().ends_with(absl::StrCat(":", ntohs(name.sin_port)))) {
      ::shutdown(socket, SHUT_RDWR);
    }
  }
  EXPECT_TRUE(AwaitFor([&] { return Send(snapshot, server_->address()).ok(); }, absl::Seconds(30),
                       "the message arrives"));
}

TEST_F(PeerChannelTest, CarriesProbesAndSnapshots) {
  Start();
  std::vector<std::string> seen;
  node_.OnReplicated([&](const ReplicaMessage& got, const ReplicaDone& done) {
    const auto* const rows = std::get_if<CopiedRows>(&got.content);
    std::string text = rows == nullptr ? "probe" : "snapshot ";
    const CopiedRows none;
    const CopiedRows& piece = rows == nullptr ? none : *rows;
    text.append(reinterpret_cast<const char*>(piece.row_block.data()), piece.row_block.size());
    if (piece.first) text += " first";
    if (piece.last) text += " last";
    for (const SessionWindow& window : piece.windows.sessions()) {
      absl::StrAppend(&text, " session ", ToInt(window.session), " from ", ToInt(window.floor), " ",
                      window.words[1]);
    }
    if (got.serves) absl::StrAppend(&text, " serves ", got.life, " since ", ToInt(got.term));
    seen.push_back(text);
    done(ReplicaAck{.order = 3, .need_snapshot = true, .life = 17, .gone = true});
  });
  ReplicaMessage probe = ProbeMessage();
  probe.life = 16;
  probe.serves = true;
  probe.term = PlanVersion{5};
  const absl::StatusOr<ReplicaAck> ack = Send(probe, server_->address());
  ASSERT_THAT(ack, IsOk());
  EXPECT_TRUE(ack->need_snapshot);
  EXPECT_EQ(ack->life, 17u);
  EXPECT_TRUE(ack->gone);
  Buffer block = Buffer::Allocate(3);
  std::memcpy(block.data(), "abc", 3);
  CopiedRows rows{TableId{6}, 99, 12, std::move(block), /*first=*/true, /*last=*/true};
  rows.windows.Record(SessionId{4}, UpdateSeq{70}, UpdateSeq{6});
  ReplicaMessage snapshot;
  snapshot.content = std::move(rows);
  ASSERT_THAT(Send(snapshot, server_->address()), IsOk());
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
  ASSERT_THAT(SendMove(MoveOf(chunk, "rows"), server_->address()), IsOk());
  ASSERT_THAT(seen, IsOk());
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
  EXPECT_EQ(Send(ProbeMessage(), server_->address()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(PeerChannelTest, AStrangersSnapshotIsRefusedAndNothingIsDone) {
  Start();
  ExpectNothingIsDone();
  v1::ReplicateRequest forged;
  forged.set_table_id(6);
  forged.set_reign(1);
  forged.set_order(1);
  forged.set_term(1);
  forged.mutable_snapshot()->set_first(true);
  forged.mutable_snapshot()->set_last(true);
  forged.mutable_snapshot()->set_row_block("666.0");
  v1::ReplicateReply reply;
  grpc::ClientContext bare, guessed;
  EXPECT_EQ(stub_->Replicate(&bare, forged, &reply).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  forged.mutable_peer()->set_nonce(RandomNonce());
  forged.mutable_peer()->set_node("n1");
  forged.mutable_peer()->set_token(std::string(ClusterKey::kProofBytes, 'x'));
  EXPECT_EQ(stub_->Replicate(&guessed, forged, &reply).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(PeerChannelTest, AStrangersProbeOfTheLastTermIsRefused) {
  Start();
  ExpectNothingIsDone();
  v1::ReplicateRequest probe;
  probe.set_table_id(6);
  probe.set_reign(1);
  probe.set_term(~std::uint64_t{0});
  v1::ReplicateReply reply;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Replicate(&context, probe, &reply).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(PeerChannelTest, AStrangersMessageOfAMoveIsRefused) {
  Start({}, {}, [](const PeerMessage&) {
    ADD_FAILURE() << "a stranger's message was taken in";
    return absl::OkStatus();
  });
  v1::MoveMessage message;
  message.mutable_unit()->set_table_id(6);
  message.set_from_node(1);
  message.set_move(1);
  message.mutable_pull();
  v1::MoveAck reply;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Move(&context, message, &reply).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(PeerChannelTest, ANodeWithAnotherKeyIsNotWelcome) {
  Start();
  v1::PeerGreeting greeting;
  greeting.set_nonce(RandomNonce());
  greeting.set_node("n1");
  greeting.set_proof(ProveGreeting(ClusterKey::Generate(), greeting.nonce(), "n1"));
  v1::PeerWelcome welcome;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->Greet(&context, greeting, &welcome).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

// A process that has another key could answer, too: nothing is sent to it.
TEST_F(PeerChannelTest, NothingIsSentToAProcessWithAnotherKey) {
  Start();
  ExpectNothingIsDone();
  const NodeKey other("", std::make_shared<const ClusterKey>(ClusterKey::Generate()));
  PeerChannel stranger(other, "n1");
  std::promise<absl::Status> sent;
  stranger.Send(server_->address(), MoveOf({.move = MoveId{1}}, ""),
                [&sent](const absl::Status& status) { sent.set_value(status); });
  EXPECT_EQ(sent.get_future().get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PeerChannelTest, ANodeWithoutAKeySendsNothing) {
  Start();
  ExpectNothingIsDone();
  const NodeKey none;
  PeerChannel keyless(none, "n1");
  NodeSpec node;
  node.address = server_->address();
  std::promise<absl::StatusOr<ReplicaAck>> ack;
  const ReplicaMessage message = ProbeMessage();
  keyless.Send(node, {&message, 1}, kTestWaitMax,
               [&ack](absl::StatusOr<ReplicaAck> result) { ack.set_value(std::move(result)); });
  EXPECT_EQ(ack.get_future().get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PeerChannelTest, GreetsAgainAProcessThatWasStartedAgain) {
  Start({}, {}, [](const PeerMessage&) { return absl::OkStatus(); });
  const std::string address = server_->address();
  ASSERT_THAT(SendMove(MoveOf({.move = MoveId{1}}, ""), address), IsOk());
  server_->Shutdown(absl::ZeroDuration());
  server_.reset();
  Start({}, {.listen = address}, [](const PeerMessage&) { return absl::OkStatus(); });
  const absl::Time until = Clock::Real().Now() + kTestWaitMax;
  absl::Status sent;
  do {
    sent = SendMove(MoveOf({.move = MoveId{1}}, ""), address);
  } while (!sent.ok() && Clock::Real().Now() < until);
  EXPECT_THAT(sent, IsOk());
}

TEST_F(PeerChannelTest, AnUnreachablePeerIsUnavailable) {
  Start();
  const std::string address = server_->address();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(Send(ProbeMessage(), address).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace embla
