#include "server/migration/unit_record.h"

#include "absl/status/status.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr NodeId kFrom{1};
constexpr NodeId kTo{2};

UnitRecord Fresh() { return UnitRecord{.owner = kFrom}; }
UnitRecord Open() { return *Opened(Fresh(), kTo); }

TEST(UnitRecordChange, AHandOverChangesOwnerAndEpochAndRemembersTheMove) {
  const UnitRecord after = *HandedOver(Open(), MoveId{1});
  EXPECT_EQ(after.owner, kTo);
  EXPECT_EQ(after.epoch, UnitEpoch{2});
  EXPECT_EQ(after.committed, MoveId{1});
  EXPECT_EQ(after.phase, MovePhase::kNone);
}

TEST(UnitRecordChange, AbortKeepsTheOwnerAndTheNextMoveHasANewId) {
  const UnitRecord aborted = *Aborted(Open(), MoveId{1});
  EXPECT_EQ(aborted.owner, kFrom);
  EXPECT_EQ(aborted.epoch, UnitEpoch{1});
  EXPECT_EQ(Opened(aborted, kTo)->move, MoveId{2});
}

TEST(UnitRecordChange, AMoveEndsOnce) {
  const UnitRecord aborted = *Aborted(Open(), MoveId{1});
  EXPECT_TRUE(absl::IsFailedPrecondition(HandedOver(aborted, MoveId{1}).status()));
  const UnitRecord after = *HandedOver(Open(), MoveId{1});
  EXPECT_TRUE(absl::IsFailedPrecondition(Aborted(after, MoveId{1}).status()));
}

TEST(UnitRecordChange, WhatHasBecomeOfAnotherMoveIsRefused) {
  EXPECT_THAT(HandedOver(Open(), MoveId{2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot end move 2")));
  EXPECT_THAT(Aborted(Open(), MoveId{2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot abort move 2")));
}

TEST(UnitRecordChange, OpenNeedsAnEndedMove) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Opened(Open(), kTo).status()));
  EXPECT_EQ(Opened(*HandedOver(Open(), MoveId{1}), kFrom)->source, kTo);
}

TEST(UnitRecordChange, AMoveWithinANodeKeepsOwnerAndEpoch) {
  const UnitRecord open = *Opened(Fresh(), kFrom);
  EXPECT_TRUE(IsWithinNode(open));
  EXPECT_FALSE(IsWithinNode(Open()));
  const UnitRecord after = *HandedOver(open, MoveId{1});
  EXPECT_EQ(after.owner, kFrom);
  EXPECT_EQ(after.epoch, UnitEpoch{1});
  EXPECT_EQ(after.committed, MoveId{1});
  EXPECT_TRUE(IsNewer(after, open));
  EXPECT_FALSE(SaysAborted(after, MoveId{1}));
}

TEST(UnitRecordOrder, EachChangeIsNewerThanWhatItChanged) {
  const UnitRecord open = Open();
  const UnitRecord after = *HandedOver(open, MoveId{1});
  EXPECT_TRUE(IsNewer(open, Fresh()));
  EXPECT_TRUE(IsNewer(*Aborted(open, MoveId{1}), open));
  EXPECT_TRUE(IsNewer(after, open));
  EXPECT_FALSE(IsNewer(open, open));
}

TEST(UnitRecordSays, OnlyAnAbortOrALaterMoveEndsAMove) {
  EXPECT_FALSE(SaysAborted(Open(), MoveId{1}));
  EXPECT_TRUE(SaysAborted(*Aborted(Open(), MoveId{1}), MoveId{1}));
  EXPECT_FALSE(SaysAborted(*HandedOver(Open(), MoveId{1}), MoveId{1}));
  EXPECT_TRUE(SaysAborted(*Opened(*Aborted(Open(), MoveId{1}), kTo), MoveId{1}));
}

}  // namespace
}  // namespace embla
