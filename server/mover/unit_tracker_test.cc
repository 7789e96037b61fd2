// Rules that a tracker adds to the steps: rest, and which rows are staged. mover_simulation_test
// covers the tracker together with everything around it.
#include "server/mover/unit_tracker.h"

#include "gtest/gtest.h"
#include "server/mover/token_bucket.h"

namespace embla::unit_tracker_test {
namespace {

constexpr NodeId kSource{1};
constexpr NodeId kTarget{2};
constexpr SessionId kSession{7};

UnitRecord OpenRecord(std::uint64_t move) {
  return {.owner = kSource,
          .epoch = UnitEpoch{3},
          .move = MoveId{move},
          .phase = MovePhase::kOpen,
          .source = kSource,
          .target = kTarget};
}

PullEvent PullOf(std::uint64_t move, Lsn held) {
  return {.from = kTarget,
          .pull = {.move = MoveId{move},
                   .epoch = UnitEpoch{3},
                   .held = ChunkVersions(2, held),
                   .credit = 2}};
}

UnitUpdate UpdateOf(std::uint64_t seq) {
  return {.session = kSession, .seq = UpdateSeq{seq}, .epoch = {}, .chunks = {0}};
}

class UnitTrackerTest : public ::testing::Test {
 protected:
  UnitTracker TrackerAt(NodeId node) {
    return UnitTracker({.self = node, .chunks = 2}, Clock::Real());
  }
};

TEST_F(UnitTrackerTest, AnUpdateAtRestCostsNothingButItsPlaceInTheWindow) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  const Lsn lsn = tracker.state().durable.lsn;
  ASSERT_EQ(tracker.Check(UpdateOf(1)).status, PartStatus::kApplied);
  tracker.Apply(UpdateOf(1));
  EXPECT_EQ(tracker.Check(UpdateOf(1)).status, PartStatus::kDuplicate);
  EXPECT_EQ(tracker.state().durable.lsn, lsn);
  EXPECT_TRUE(tracker.IsAtRest());
}

TEST_F(UnitTrackerTest, AMoveFindsEveryChunkTouchedAndAnEndedOneLeavesTheUnitAtRest) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  const Lsn before = tracker.state().durable.lsn;
  EXPECT_EQ(tracker.Step(RecordEvent{OpenRecord(1)}).status.phase, UnitPhase::kSending);
  EXPECT_EQ(tracker.state().durable.lsn, Next(before));
  EXPECT_EQ(tracker.state().durable.touched, ChunkVersions(2, Next(before)));
  EXPECT_FALSE(tracker.IsAtRest());
  tracker.Apply(UpdateOf(1));
  EXPECT_EQ(tracker.state().durable.touched[0], Next(Next(before)));
  UnitRecord aborted = OpenRecord(1);
  aborted.phase = MovePhase::kAborted;
  EXPECT_EQ(tracker.Step(RecordEvent{aborted}).status.phase, UnitPhase::kAtRest);
  EXPECT_TRUE(tracker.IsAtRest());
}

// A target that lost the end of its move goes on pulling, until nothing comes any more.
TEST_F(UnitTrackerTest, APullOfAMoveThatHasEndedWakesNothing) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  UnitRecord aborted = OpenRecord(2);
  aborted.phase = MovePhase::kAborted;
  tracker.Step(RecordEvent{aborted});
  const Lsn lsn = tracker.state().durable.lsn;
  const Pull pull{
      .move = MoveId{1}, .epoch = UnitEpoch{3}, .held = ChunkVersions(2, lsn), .credit = 2};
  const UnitTracker::Stepped stepped = tracker.Step(PullEvent{.from = kTarget, .pull = pull});
  for (const NodeAction& action : stepped.actions) {
    EXPECT_FALSE(std::holds_alternative<SendChunk>(action));
  }
  EXPECT_EQ(tracker.state().durable.lsn, lsn);
}

TEST_F(UnitTrackerTest, AUnitThatIsFoldedBackGivesItsRecordAndTakesACopyOfTheRests) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  tracker.Apply(UpdateOf(1));
  ASSERT_TRUE(tracker.MayFold());
  UnitWindows rest = tracker.Fold(PlanVersion{3});
  EXPECT_FALSE(tracker.MayFold());
  EXPECT_TRUE(tracker.state().durable.windows.sessions().empty());
  rest.Record(kSession, UpdateSeq{2}, UpdateSeq{1});
  tracker.TakeBack(rest);
  EXPECT_EQ(tracker.Check(UpdateOf(1)).status, PartStatus::kDuplicate);
  EXPECT_EQ(tracker.Check(UpdateOf(2)).status, PartStatus::kDuplicate);
  EXPECT_EQ(tracker.Check(UpdateOf(3)).status, PartStatus::kApplied);
}

TEST_F(UnitTrackerTest, AUnitWithRoomOnAnotherDeviceIsNotFoldedBack) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  UnitRecord within = OpenRecord(1);
  within.target = kSource;
  tracker.Step(RecordEvent{within});
  EXPECT_TRUE(tracker.IsAtRest());
  EXPECT_FALSE(tracker.MayFold());
}

TEST_F(UnitTrackerTest, APullThatOvertakesTheRecordWakesTheUnit) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  const Lsn before = tracker.state().durable.lsn;
  EXPECT_EQ(tracker.Step(PullOf(1, Lsn{0})).status.phase, UnitPhase::kSending);
  EXPECT_EQ(tracker.state().durable.lsn, Next(before));
  EXPECT_FALSE(tracker.IsAtRest());
}

TEST_F(UnitTrackerTest, AFrozenUnitIsReadAndNotUpdated) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  tracker.Step(RecordEvent{OpenRecord(1)});
  EXPECT_EQ(tracker.Step(PullOf(1, Lsn{2})).status.phase, UnitPhase::kFrozen);
  EXPECT_EQ(tracker.Check(UpdateOf(1)).status, PartStatus::kFrozen);
  EXPECT_EQ(tracker.CheckLookup().status, PartStatus::kApplied);
  EXPECT_FALSE(tracker.IsAtRest());
}

// A cut that a target held before the unit came to rest may lack updates that nobody counted.
TEST_F(UnitTrackerTest, AtRestNoCutThatATargetHoldsIsTheUnit) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  tracker.Apply(UpdateOf(1));
  const UnitTracker::Stepped stepped =
      tracker.Step(HoldsEvent{kTarget, {MoveId{1}, tracker.state().durable.lsn}});
  EXPECT_TRUE(stepped.actions.empty());
  EXPECT_TRUE(tracker.IsAtRest());
}

// Tables with replica groups: an averaging changes the rows updated since the last one.
TEST_F(UnitTrackerTest, AnAveragingTouchesTheChunksWhoseCopiesMayDiffer) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  tracker.Averaged(/*all=*/true);
  EXPECT_EQ(tracker.state().durable.lsn, Lsn{1});  // At rest nobody counts.
  tracker.Step(RecordEvent{OpenRecord(1)});        // Lsn 2: what differs is not known.
  tracker.Averaged(/*all=*/true);
  EXPECT_EQ(tracker.state().durable.touched, ChunkVersions(2, Lsn{3}));
  tracker.Apply(UpdateOf(1));       // Chunk 0.
  tracker.Averaged(/*all=*/false);  // Perhaps not all of it.
  tracker.Averaged(/*all=*/true);
  EXPECT_EQ(tracker.state().durable.touched, (ChunkVersions{Lsn{6}, Lsn{3}}));
  tracker.Averaged(/*all=*/true);
  EXPECT_EQ(tracker.state().durable.touched, (ChunkVersions{Lsn{6}, Lsn{3}}));
  EXPECT_EQ(tracker.state().written, tracker.state().durable.lsn);
  EXPECT_TRUE(tracker.TakesAveraging());
  tracker.Step(PullOf(1, tracker.state().durable.lsn));
  EXPECT_FALSE(tracker.TakesAveraging());
}

TEST_F(UnitTrackerTest, RowsAreStagedOnceAndAgainWhenTheyCouldNotBe) {
  UnitTracker tracker = TrackerAt(kTarget);
  tracker.Step(RecordEvent{OpenRecord(1)});
  tracker.Step(ReservedEvent{.move = MoveId{1}, .ok = true});
  const Chunk chunk{.move = MoveId{1}, .chunk = 1, .base = {}, .version = Lsn{5}};
  EXPECT_FALSE(tracker.IsAtRest());
  EXPECT_TRUE(tracker.WantsRows(chunk));
  EXPECT_FALSE(tracker.WantsRows(chunk));
  tracker.StagingFailed(chunk);
  EXPECT_TRUE(tracker.WantsRows(chunk));
  tracker.Step(ChunkEvent{chunk});
  EXPECT_FALSE(tracker.WantsRows(chunk));
}

TEST_F(UnitTrackerTest, MemoryThatComesTooLateIsGivenBack) {
  UnitTracker tracker = TrackerAt(kTarget);
  tracker.Step(RecordEvent{OpenRecord(1)});
  UnitRecord aborted = OpenRecord(1);
  aborted.phase = MovePhase::kAborted;
  const auto actions = tracker.Step(RecordEvent{aborted}).actions;
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<DiscardStaged>(actions[0]));
  EXPECT_TRUE(tracker.Step(ReservedEvent{.move = MoveId{1}, .ok = true}).actions.empty());
}

TEST(TokenBucketTake, WaitsUntilWhatWasTakenIsPaid) {
  absl::Time now = absl::UnixEpoch();
  TokenBucket bucket;
  bucket.Take(1000);
  EXPECT_EQ(bucket.Wait(now), absl::ZeroDuration());  // No limit.
  bucket.SetRate(1000, now);
  bucket.Take(500);
  EXPECT_EQ(bucket.Wait(now), absl::Milliseconds(500));
  now += absl::Milliseconds(500);
  EXPECT_EQ(bucket.Wait(now), absl::ZeroDuration());
  now += absl::Hours(1);  // Saves up no more than kBurst.
  EXPECT_EQ(bucket.Wait(now), absl::ZeroDuration());
  bucket.Take(600);
  EXPECT_EQ(bucket.Wait(now), absl::Milliseconds(500));
}

TEST_F(UnitTrackerTest, RoomOfAnEarlierMoveIsGivenBackBeforeTheNextIsMade) {
  UnitTracker tracker = TrackerAt(kTarget);
  EXPECT_EQ(tracker.Step(RecordEvent{OpenRecord(1)}).actions.size(), 1u);
  const UnitTracker::Stepped next = tracker.Step(RecordEvent{OpenRecord(2)});
  ASSERT_EQ(next.actions.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<DiscardStaged>(next.actions[0]));
  EXPECT_TRUE(std::holds_alternative<ReserveImport>(next.actions[1]));
  EXPECT_TRUE(tracker.Step(ReservedEvent{MoveId{1}, true}).actions.empty());
  EXPECT_FALSE(tracker.Step(ReservedEvent{MoveId{2}, true}).actions.empty());
}

TEST_F(UnitTrackerTest, AUnitThatChangesDevicesTakesUpdatesAsAtRest) {
  UnitTracker tracker = TrackerAt(kSource);
  tracker.Adopt(UnitEpoch{3}, {}, Lsn{1});
  UnitRecord record = OpenRecord(1);
  record.target = kSource;
  EXPECT_EQ(tracker.Step(RecordEvent{record}).status.phase, UnitPhase::kReceiving);
  EXPECT_TRUE(tracker.IsAtRest());
  tracker.Apply(UpdateOf(1));
  EXPECT_EQ(tracker.Step(ReservedEvent{MoveId{1}, true}).status.phase, UnitPhase::kAtRest);
  EXPECT_EQ(tracker.Check(UpdateOf(1)).status, PartStatus::kDuplicate);
}

}  // namespace
}  // namespace embla::unit_tracker_test
