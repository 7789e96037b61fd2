#include "client/transport/in_flight_gate.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/transport/testing/manual_timer.h"

namespace embla::client {
namespace {

class InFlightGateTest : public ::testing::Test {
 protected:
  // A lookup that counts as `bytes`.
  void Enter(InFlightGate& gate, std::size_t bytes, absl::Time deadline = absl::InfiniteFuture()) {
    NodeLookup lookup;
    lookup.ids = Buffer::Allocate(bytes);
    gate.Enter({std::move(lookup), deadline,
                [this](NodeReply reply) { ended_.push_back(reply.status.code()); }});
  }
  SocketPtr Begin(DataRequest request) {
    started_.push_back(std::move(request));
    return nullptr;
  }
  // Ends the oldest request that was started.
  void FinishOne() {
    DataRequest request = std::move(started_.front());
    started_.erase(started_.begin());
    request.done({});
  }

  ManualTimer timer_{absl::UnixEpoch()};
  std::vector<DataRequest> started_;
  std::vector<absl::StatusCode> ended_;
};

TEST_F(InFlightGateTest, StartsInOrderAsBytesComeFree) {
  InFlightGate gate(100, timer_, [&](DataRequest r) { return Begin(std::move(r)); });
  for (const std::size_t bytes : {60, 30, 20, 10}) Enter(gate, bytes);
  // The last one would fit, but it is not its turn.
  EXPECT_EQ(started_.size(), 2u);
  FinishOne();
  EXPECT_EQ(started_.size(), 3u);
  EXPECT_EQ(started_.back().bytes(), 10u);
  while (!started_.empty()) FinishOne();
  EXPECT_EQ(ended_.size(), 4u);
}

TEST_F(InFlightGateTest, RequestLargerThanTheBoundGoesAlone) {
  InFlightGate gate(100, timer_, [&](DataRequest r) { return Begin(std::move(r)); });
  Enter(gate, 10);
  Enter(gate, 5000);
  EXPECT_EQ(started_.size(), 1u);
  FinishOne();
  EXPECT_EQ(started_.size(), 1u);
  FinishOne();
}

TEST_F(InFlightGateTest, ContributionsWaitForNothingAndHoldNothingUp) {
  InFlightGate gate(100, timer_, [&](DataRequest r) { return Begin(std::move(r)); });
  const auto contribute = [&](std::size_t bytes) {
    NodeUpdate update;
    update.batch.claim.emplace();
    update.gradients = Buffer::Allocate(bytes);
    gate.Enter({std::move(update), absl::InfiniteFuture(),
                [this](NodeReply reply) { ended_.push_back(reply.status.code()); }});
  };
  contribute(90);
  Enter(gate, 60);
  Enter(gate, 60);
  contribute(90);
  EXPECT_EQ(started_.size(), 3u);
  EXPECT_TRUE(started_.back().is_contribution());
  while (!started_.empty()) FinishOne();
  EXPECT_EQ(ended_.size(), 4u);
}

TEST_F(InFlightGateTest, WaitingEndsAtTheDeadlineOrWhenTooManyWait) {
  InFlightGate gate(100, timer_, [&](DataRequest r) { return Begin(std::move(r)); });
  Enter(gate, 100);
  Enter(gate, 1, absl::FromUnixSeconds(10));
  timer_.Advance(absl::Seconds(11));
  EXPECT_THAT(ended_, ::testing::ElementsAre(absl::StatusCode::kDeadlineExceeded));
  for (std::size_t i = 0; i <= InFlightGate::kWaitingMax; ++i) Enter(gate, 1);
  EXPECT_EQ(ended_.back(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ended_.size(), 2u);
  gate.FailWaiting(absl::UnavailableError("over"));
  EXPECT_EQ(ended_.size(), 2u + InFlightGate::kWaitingMax);
  FinishOne();
}

TEST_F(InFlightGateTest, ThousandsOfWaitingRequestsThatFailAtOnceDoNotRecurse) {
  bool holding = true;
  InFlightGate gate(100, timer_, [&](DataRequest r) {
    if (holding) return Begin(std::move(r));
    r.done({.status = absl::UnavailableError("down")});
    return SocketPtr();
  });
  for (std::size_t i = 0; i < InFlightGate::kWaitingMax; ++i) Enter(gate, 100);
  holding = false;
  FinishOne();
  EXPECT_EQ(ended_.size(), InFlightGate::kWaitingMax);
}

}  // namespace
}  // namespace embla::client
