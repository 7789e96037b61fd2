#include "server/migration/unit_record.h"

#include "absl/status/status.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr NodeId kSource{1};
constexpr NodeId kTarget{2};

UnitRecord Fresh() { return UnitRecord{.owner = kSource}; }
UnitRecord Open() { return *Opened(Fresh(), kTarget); }

TEST(UnitRecordChange, CommitMovesOwnerAndEpochAndRemembersTheMove) {
  const UnitRecord committed = *Committed(Open(), MoveId{1});
  EXPECT_EQ(committed.owner, kTarget);
  EXPECT_EQ(committed.epoch, UnitEpoch{2});
  EXPECT_EQ(committed.committed, MoveId{1});
  EXPECT_EQ(Cleaned(committed, MoveId{1})->phase, MovePhase::kNone);
}

TEST(UnitRecordChange, AbortKeepsTheOwnerAndTheNextMoveHasANewId) {
  const UnitRecord aborted = *Aborted(Open(), MoveId{1});
  EXPECT_EQ(aborted.owner, kSource);
  EXPECT_EQ(aborted.epoch, UnitEpoch{1});
  EXPECT_EQ(Opened(aborted, kTarget)->move, MoveId{2});
}

TEST(UnitRecordChange, CommitAfterAbortIsRefusedAndSoIsAbortAfterCommit) {
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Committed(*Aborted(Open(), MoveId{1}), MoveId{1}).status()));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Aborted(*Committed(Open(), MoveId{1}), MoveId{1}).status()));
}

TEST(UnitRecordChange, AnotherMovesCommitAbortAndCleanupAreRefused) {
  EXPECT_THAT(Committed(Open(), MoveId{2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot commit move 2")));
  EXPECT_THAT(Aborted(Open(), MoveId{2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot abort move 2")));
  EXPECT_THAT(Cleaned(*Committed(Open(), MoveId{1}), MoveId{2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot clean")));
}

TEST(UnitRecordChange, OpenNeedsAnEndedMove) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Opened(Open(), kTarget).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Opened(*Committed(Open(), MoveId{1}), kSource).status()));
}

TEST(UnitRecordChange, AMoveWithinANodeKeepsOwnerAndEpoch) {
  const UnitRecord open = *Opened(Fresh(), kSource);
  EXPECT_TRUE(IsWithinNode(open));
  EXPECT_FALSE(IsWithinNode(Open()));
  const UnitRecord committed = *Committed(open, MoveId{1});
  EXPECT_EQ(committed.owner, kSource);
  EXPECT_EQ(committed.epoch, UnitEpoch{1});
  EXPECT_EQ(committed.committed, MoveId{1});
  EXPECT_TRUE(IsNewer(committed, open));
  EXPECT_FALSE(SaysEndedWithoutCommit(committed, MoveId{1}));
}

TEST(UnitRecordOrder, EachChangeIsNewerThanWhatItChanged) {
  const UnitRecord open = Open();
  const UnitRecord committed = *Committed(open, MoveId{1});
  EXPECT_TRUE(IsNewer(open, Fresh()));
  EXPECT_TRUE(IsNewer(*Aborted(open, MoveId{1}), open));
  EXPECT_TRUE(IsNewer(committed, open));
  EXPECT_TRUE(IsNewer(*Cleaned(committed, MoveId{1}), committed));
  EXPECT_FALSE(IsNewer(open, open));
}

TEST(UnitRecordSays, OnlyAnAbortOrALaterMoveEndsAMove) {
  EXPECT_FALSE(SaysEndedWithoutCommit(Open(), MoveId{1}));
  EXPECT_TRUE(SaysEndedWithoutCommit(*Aborted(Open(), MoveId{1}), MoveId{1}));
  EXPECT_FALSE(SaysEndedWithoutCommit(*Committed(Open(), MoveId{1}), MoveId{1}));
  EXPECT_TRUE(SaysEndedWithoutCommit(*Opened(*Aborted(Open(), MoveId{1}), kTarget), MoveId{1}));
}

}  // namespace
}  // namespace embla
