// Updates of a copy that come in any order: which are queued, which wait, and who is told.
#include "server/shard/copy_inbox.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/buffer.h"
#include "core/base/testing/seeds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CopyInboxTest : public ::testing::Test {
 protected:
  void Take(std::uint64_t order, std::uint64_t reign = 7, std::size_t bytes = 0) {
    CopyInbox::Update update;
    update.message.content = CopiedUpdate{TableId{1}, reign, order, {}};
    std::get<CopiedUpdate>(update.message.content).batch.memory = Buffer::Allocate(bytes);
    update.done = [this, order](const absl::StatusOr<ReplicaAck>& ack) {
      EXPECT_TRUE(absl::IsUnavailable(ack.status()));
      refused_.push_back(order);
    };
    inbox_.Take(std::move(update), queue_);
  }

  std::vector<std::uint64_t> queued_;
  std::vector<std::uint64_t> refused_;
  const CopyInbox::Queue queue_ = [this](CopyInbox::Update update) {
    queued_.push_back(update.message.order());
  };
  CopyInbox inbox_;
};

TEST_F(CopyInboxTest, AnUpdateThatComesEarlyWaitsForThoseBeforeIt) {
  inbox_.Begin(7, 10);
  Take(13);
  Take(12);
  EXPECT_THAT(queued_, IsEmpty());
  Take(11);
  EXPECT_THAT(queued_, ElementsAre(11, 12, 13));
  Take(14);
  EXPECT_THAT(queued_, ElementsAre(11, 12, 13, 14));
  EXPECT_THAT(refused_, IsEmpty());
}

TEST_F(CopyInboxTest, InAnyOrderAllAreQueuedInTheirOrder) {
  std::mt19937 random(testing::TestSeed());
  inbox_.Begin(7, 0);
  std::vector<std::uint64_t> expected;
  for (std::uint64_t first = 1; first < 500; first += CopyInbox::kEarlyMax) {
    std::vector<std::uint64_t> orders;
    for (std::uint64_t i = 0; i < CopyInbox::kEarlyMax; ++i) orders.push_back(first + i);
    expected.insert(expected.end(), orders.begin(), orders.end());
    std::ranges::shuffle(orders, random);
    for (const std::uint64_t order : orders) Take(order);
  }
  EXPECT_EQ(queued_, expected);
}

TEST_F(CopyInboxTest, RepetitionsAndThoseOfAnotherPrimaryGoAtOnce) {
  Take(5);  // Nothing is known yet.
  inbox_.Begin(7, 10);
  Take(10);
  Take(99, /*reign=*/8);
  EXPECT_THAT(queued_, ElementsAre(5, 10, 99));
  inbox_.Begin(7, std::nullopt);
  Take(15);
  EXPECT_THAT(queued_, ElementsAre(5, 10, 99, 15));
}

TEST_F(CopyInboxTest, AProbeRefusesWhatWaits) {
  inbox_.Begin(7, 10);
  Take(12);
  Take(13);
  inbox_.Begin(7, 10);
  EXPECT_THAT(refused_, ElementsAre(12, 13));
  Take(11);
  EXPECT_THAT(queued_, ElementsAre(11));
}

TEST_F(CopyInboxTest, ARepetitionTakesThePlaceOfTheOneThatWaits) {
  inbox_.Begin(7, 10);
  Take(12);
  Take(12);
  EXPECT_THAT(refused_, ElementsAre(12));
  Take(11);
  EXPECT_THAT(queued_, ElementsAre(11, 12));
}

// A probe that is repeated by the network is answered amid updates.
TEST_F(CopyInboxTest, AnUpdateThatIsAppliedLetsTheNextOneGoWhateverALateProbeSaid) {
  inbox_.Begin(7, 10);
  Take(11);
  Take(12);
  inbox_.Begin(7, 11);
  Take(13);
  EXPECT_THAT(queued_, ElementsAre(11, 12));
  inbox_.Reach(7, 12, queue_);
  EXPECT_THAT(queued_, ElementsAre(11, 12, 13));
  inbox_.Reach(8, 20, queue_);
  inbox_.Reach(7, 5, queue_);
  Take(14);
  EXPECT_THAT(queued_, ElementsAre(11, 12, 13, 14));
}

TEST_F(CopyInboxTest, TakesNoMoreThanItSays) {
  inbox_.Begin(7, 10);
  Take(11 + CopyInbox::kEarlyMax + 1);
  EXPECT_THAT(refused_, ElementsAre(11 + CopyInbox::kEarlyMax + 1));
  Take(11 + CopyInbox::kEarlyMax);
  EXPECT_EQ(refused_.size(), 1u);
  Take(12, 7, CopyInbox::kEarlyBytesMax);
  Take(13, 7, 1);
  EXPECT_THAT(refused_, ElementsAre(11 + CopyInbox::kEarlyMax + 1, 13));
  Take(11, 7, 1);  // Its turn: it takes no room.
  EXPECT_THAT(queued_, ElementsAre(11, 12));
  Take(14, 7, CopyInbox::kEarlyBytesMax);
  EXPECT_EQ(refused_.size(), 2u) << "what was handed out has made room";
}

TEST_F(CopyInboxTest, OnceClosedNothingWaits) {
  inbox_.Begin(7, 10);
  Take(12);
  inbox_.Close();
  EXPECT_THAT(refused_, ElementsAre(12));
  Take(13);
  EXPECT_THAT(refused_, ElementsAre(12, 13));
  Take(11);
  EXPECT_THAT(queued_, ElementsAre(11));
}

TEST_F(CopyInboxTest, WhatWaitsIsAnsweredWhenTheTableGoes) {
  {
    CopyInbox inbox;
    inbox.Begin(7, 10);
    CopyInbox::Update update;
    update.message.content = CopiedUpdate{TableId{1}, 7, 12, {}};
    update.done = [this](const absl::StatusOr<ReplicaAck>&) { refused_.push_back(12); };
    inbox.Take(std::move(update), queue_);
    EXPECT_THAT(refused_, IsEmpty());
  }
  EXPECT_THAT(refused_, ElementsAre(12));
}

TEST_F(CopyInboxTest, KnowsWhatIsWrittenOfTheNewestReign) {
  EXPECT_TRUE(inbox_.IsWritten(7, 0));
  EXPECT_FALSE(inbox_.IsWritten(7, 1));
  inbox_.NoteWritten(7, 5);
  inbox_.NoteWritten(7, 3);
  EXPECT_TRUE(inbox_.IsWritten(7, 5));
  EXPECT_FALSE(inbox_.IsWritten(7, 6));
  EXPECT_FALSE(inbox_.IsWritten(8, 5));
  inbox_.NoteWritten(8, 2);
  EXPECT_FALSE(inbox_.IsWritten(8, 5));
}

}  // namespace
}  // namespace embla
