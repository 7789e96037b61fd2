// Two movers, and a network that hands messages over when the test says so: how many messages a
// pause takes one after the other, and when a freeze ends.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/migration/unit_record.h"
#include "server/mover/testing/simulated_node.h"

namespace embla {
namespace {

using testing::SimulatedNode;
using testing::SimulatedNodeOptions;

constexpr UnitId kUnit{TableId{1}, 0, 0};
constexpr std::uint32_t kChunks = 4;
constexpr int kRoundsMax = 100;

class HandOverTest : public ::testing::Test {
 protected:
  HandOverTest() {
    SetLogLevel(LogLevel::kError);
    source_ = MakeNode(NodeId{1});
    target_ = MakeNode(NodeId{2});
    source_->Place(kUnit);
    for (SimulatedNode* const node : {source_.get(), target_.get()}) node->Start({});
    // The one message of the coordinator: it never hears of anything, and says nothing more.
    const UnitRecord fresh{.owner = NodeId{1}};
    const UnitOrder order{.unit = kUnit, .record = *Opened(fresh, NodeId{2})};
    for (SimulatedNode* const node : {source_.get(), target_.get()}) {
      node->mover().OnOrders(node->id(), {order});
    }
    Settle();
  }

  std::unique_ptr<SimulatedNode> MakeNode(NodeId id) {
    SimulatedNodeOptions options{.id = id, .chunks = kChunks, .clock = &clock_};
    options.addresses = {{NodeId{1}, "1"}, {NodeId{2}, "2"}};
    options.send = [this](const std::string& address, PeerMessage message,
                          MoveTransport::Done done) {
      SimulatedNode* const to =
          source_->id() == NodeId{address == "1" ? 1u : 2u} ? source_.get() : target_.get();
      network_.push_back({to, std::move(message), std::move(done)});
    };
    options.report = [this](const UnitReport& report) {
      if (report.kind == UnitReport::Kind::kAborted) ++aborted_;
    };
    return std::make_unique<SimulatedNode>(std::move(options));
  }

  // Everything happens that needs no message and no time: disks are fast.
  void Settle() {
    for (SimulatedNode* const node : {source_.get(), target_.get()}) {
      while (!node->is_idle()) {
        while (node->queue().RunOne() || node->host().RunOne()) {
        }
        node->log().Sync(1000);
      }
    }
  }

  // All messages that are on their way arrive, which is as long as one takes.
  void DeliverRound(bool backwards = false) {
    std::vector<Sent> round = std::exchange(network_, {});
    if (backwards) std::ranges::reverse(round);
    for (Sent& sent : round) {
      const absl::Status taken = sent.to->mover().OnMessage(std::move(sent.message));
      EXPECT_THAT(taken, testing::IsOk());
      sent.done(absl::OkStatus());
    }
    Settle();
  }
  void LoseRound(const absl::Status& status) {
    for (const Sent& sent : std::exchange(network_, {})) sent.done(status);
    Settle();
  }

  bool TakesUpdates(SimulatedNode& node) { return node.host().TakesUpdates(kUnit); }
  PartStatus Update(SimulatedNode& node, std::uint32_t chunk) {
    PartStatus answer{};
    const UnitUpdate update{.session = SessionId{1},
                            .seq = UpdateSeq{++seq_},
                            .first_incomplete = UpdateSeq{seq_},
                            .chunks = {chunk}};
    node.host().Update(kUnit, update, [&answer](PartStatus status) { answer = status; });
    Settle();
    return answer;
  }
  // Trains until updates are refused: the freeze finds a chunk that the target has not.
  bool AwaitFreeze() {
    for (int round = 0; round < kRoundsMax; ++round) {
      if (!TakesUpdates(*source_)) return true;
      (void)Update(*source_, 1);
      DeliverRound();
    }
    return false;
  }

  // Units that the node keeps a record of, and does not own.
  std::size_t UnitsElsewhere(SimulatedNode& node) {
    std::atomic<bool> is_told = false;
    std::size_t units = 0;
    std::thread asks([&] {  // It waits for the mover's thread, which is this one.
      units = node.mover().UnitsElsewhere().size();
      is_told = true;
    });
    while (!is_told) Settle();
    asks.join();
    return units;
  }

  struct Sent {
    SimulatedNode* to;
    PeerMessage message;
    MoveTransport::Done done;
  };
  ManualClock clock_{absl::FromUnixSeconds(1'000'000)};
  std::uint64_t seq_ = 0;
  std::atomic<int> aborted_ = 0;  // Reports that a node has given a move up.
  std::vector<Sent> network_;
  std::unique_ptr<SimulatedNode> source_;
  std::unique_ptr<SimulatedNode> target_;
};

// The rest of the rows and the cut; Holds; Release. Nobody waits for the coordinator.
TEST_F(HandOverTest, APauseTakesThreeMessagesOneAfterTheOther) {
  for (const bool backwards : {false, true}) {
    SCOPED_TRACE(backwards);
    ASSERT_TRUE(AwaitFreeze());
    const auto has_rows = [](const Sent& sent) {
      return std::holds_alternative<Chunk>(sent.message.body);
    };
    ASSERT_TRUE(std::ranges::any_of(network_, has_rows)) << "there is no rest to be sent";
    int rounds = 0;
    for (; !TakesUpdates(*target_) && rounds < kRoundsMax; ++rounds) DeliverRound(backwards);
    EXPECT_EQ(rounds, 3);
    EXPECT_EQ(Update(*target_, 1), PartStatus::kApplied);
    // And back, in another order.
    DeliverRound();
    const UnitRecord moved{
        .owner = NodeId{2}, .epoch = UnitEpoch{2}, .committed = MoveId{1}, .move = MoveId{1}};
    const UnitOrder order{.unit = kUnit, .record = *Opened(moved, NodeId{1})};
    std::swap(source_, target_);
    for (SimulatedNode* const node : {source_.get(), target_.get()}) {
      node->mover().OnOrders(node->id(), {order});
    }
    Settle();
  }
}

TEST_F(HandOverTest, AFreezeEndsWithTheLinkToTheTarget) {
  ASSERT_TRUE(AwaitFreeze());
  LoseRound(absl::UnavailableError("connection reset"));
  EXPECT_EQ(Update(*source_, 1), PartStatus::kApplied) << "and no time has passed";
  // It does not freeze again and again while the target's pulls arrive.
  clock_.Advance(absl::Milliseconds(500));
  for (SimulatedNode* const node : {source_.get(), target_.get()}) (void)node->mover().Tick();
  Settle();
  DeliverRound();
  EXPECT_TRUE(TakesUpdates(*source_));
  // The link is back, and the move goes on.
  for (int round = 0; !TakesUpdates(*target_) && round < kRoundsMax; ++round) {
    clock_.Advance(absl::Milliseconds(200));
    for (SimulatedNode* const node : {source_.get(), target_.get()}) (void)node->mover().Tick();
    Settle();
    DeliverRound();
  }
  EXPECT_TRUE(TakesUpdates(*target_));
}

TEST_F(HandOverTest, AFreezeOutlivesAMessageThatATargetHadNoRoomFor) {
  ASSERT_TRUE(AwaitFreeze());
  LoseRound(absl::ResourceExhaustedError("too much waits"));
  EXPECT_FALSE(TakesUpdates(*source_));
}

// Its word is durable, and nothing takes it back.
TEST_F(HandOverTest, WhatIsHandedOverStaysSoWhenTheLinkIsLost) {
  ASSERT_TRUE(AwaitFreeze());
  DeliverRound();
  DeliverRound();
  LoseRound(absl::UnavailableError("connection reset"));
  EXPECT_EQ(Update(*source_, 1), PartStatus::kMoved);
  EXPECT_FALSE(TakesUpdates(*target_));
  clock_.Advance(absl::Seconds(1));
  (void)source_->mover().Tick();
  Settle();
  DeliverRound();
  EXPECT_TRUE(TakesUpdates(*target_));
}

// The coordinator repeats what it asks as often as a target asks for a source that does not answer.
TEST_F(HandOverTest, ATargetThatAsksForItsSourceIsCancelledAllTheSame) {
  DeliverRound();
  LoseRound(absl::UnavailableError("the node waits for the coordinator"));
  clock_.Advance(absl::Seconds(1));
  (void)target_->mover().Tick();
  Settle();
  ASSERT_EQ(aborted_, 0);
  const UnitOrder order{.unit = kUnit,
                        .record = *Opened(UnitRecord{.owner = NodeId{1}}, NodeId{2}),
                        .cancels = true,
                        .source_is_lost = true};
  target_->mover().OnOrders(target_->id(), {order});
  Settle();
  EXPECT_EQ(aborted_, 1);
}

// A long-lived node must not keep a record of every unit of every table that there ever was.
TEST_F(HandOverTest, UnitsOfADroppedTableAreForgotten) {
  ASSERT_TRUE(AwaitFreeze());
  for (int round = 0; !TakesUpdates(*target_) && round < kRoundsMax; ++round) DeliverRound();
  ASSERT_EQ(UnitsElsewhere(*source_), 1u);
  source_->mover().KeepTables({kUnit.table});
  EXPECT_EQ(UnitsElsewhere(*source_), 1u);
  source_->mover().KeepTables({TableId{2}});
  EXPECT_EQ(UnitsElsewhere(*source_), 0u);
}

// After so many messages of the move, one after the other.
class DroppedTableTest : public HandOverTest, public ::testing::WithParamInterface<int> {};

TEST_P(DroppedTableTest, MayHaveUnitsOnTheMove) {
  for (int round = 0; round < GetParam(); ++round) {
    (void)Update(*source_, 1);
    DeliverRound();
  }
  // Messages, records and steps that were begun before are heard of afterwards.
  (void)source_->mover().Tick();
  for (SimulatedNode* const node : {source_.get(), target_.get()}) node->mover().KeepTables({});
  GetParam() % 2 == 0 ? DeliverRound() : LoseRound(absl::UnavailableError("connection reset"));
  clock_.Advance(absl::Seconds(10));
  for (SimulatedNode* const node : {source_.get(), target_.get()}) (void)node->mover().Tick();
  Settle();
  EXPECT_EQ(UnitsElsewhere(*source_) + UnitsElsewhere(*target_), 0u);
}

INSTANTIATE_TEST_SUITE_P(Rounds, DroppedTableTest, ::testing::Range(0, 12));

}  // namespace
}  // namespace embla
