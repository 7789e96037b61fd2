#include "server/migration/node_step.h"

#include <vector>

#include "gtest/gtest.h"
#include "server/migration/coordinator_step.h"

namespace embla {
namespace {

constexpr NodeId kSource{1};
constexpr NodeId kTarget{2};
const UnitRecord kFresh{.owner = kSource};
const UnitRecord kOpen = *Opened(kFresh, kTarget);
const UnitRecord kAborted = *Aborted(kOpen, MoveId{1});
const UnitRecord kCommitted = *Committed(kOpen, MoveId{1});
const UnitRecord kCleaned = *Cleaned(kCommitted, MoveId{1});

// One node; keeps what each step asked for.
class Node {
 public:
  Node(NodeId self, UnitDurable durable) : state_(Recovered(std::move(durable), {}, 2)) {
    context_.self = self;
    context_.chunks = 2;
    context_.credit_chunks = 1;
  }
  static Node Source() { return Node(kSource, FreshUnit(2)); }
  static Node Target() { return Node(kTarget, UnitDurable()); }

  void On(const NodeEvent& event) {
    NodeStep step = StepNode(context_, state_, event);
    state_ = step.state;
    actions_ = step.actions;
    if (step.answer.has_value()) answer_ = *step.answer;
  }
  PartStatus Update(std::uint64_t seq, std::uint32_t chunk = 0) {
    On(UnitUpdate{SessionId{1}, UpdateSeq{seq}, UpdateSeq{1}, UnitEpoch{0}, {chunk}});
    return answer_.status;
  }
  void Written() { On(WrittenEvent{state_.durable.lsn}); }
  void Restart() { state_ = Recovered(state_.durable, {}, 2); }
  void PullHolding(ChunkVersions held) {
    On(PullEvent{kTarget, Pull{MoveId{1}, UnitEpoch{1}, std::move(held), 1, false}});
  }

  template <typename Action>
  const Action* Find() const {
    for (const NodeAction& action : actions_) {
      if (const auto* found = std::get_if<Action>(&action)) return found;
    }
    return nullptr;
  }
  const UnitState& state() const { return state_; }
  const PartAnswer& answer() const { return answer_; }
  bool has_actions() const { return !actions_.empty(); }

 private:
  UnitContext context_;
  UnitState state_;
  std::vector<NodeAction> actions_;
  PartAnswer answer_;
};

Node FrozenSource() {
  Node node = Node::Source();
  node.On(FreezeEvent{kOpen});
  return node;
}

Node ImportingTarget() {
  Node node = Node::Target();
  node.On(RecordEvent{kOpen});
  node.On(ReservedEvent{MoveId{1}, true});
  return node;
}

Node SealedTarget() {
  Node node = ImportingTarget();
  for (std::uint32_t c = 0; c < 2; ++c) node.On(ChunkEvent{{MoveId{1}, c, Lsn{0}, Lsn{1}}});
  node.On(FinalEvent{{MoveId{1}, Lsn{1}, {Lsn{1}, Lsn{1}}, {}}});
  return node;
}

TEST(NodeStepUpdate, IsDecidedOnceAndRepeatedIsDuplicate) {
  Node node = Node::Source();
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
  EXPECT_EQ(node.answer().lsn, Lsn{2});
  EXPECT_NE(node.Find<WriteRows>(), nullptr);
  EXPECT_EQ(node.Update(1), PartStatus::kDuplicate);
  EXPECT_EQ(node.Find<WriteRows>(), nullptr);
}

TEST(NodeStepUpdate, FrozenUnitAnswersFrozenAndServesLookups) {
  Node node = FrozenSource();
  EXPECT_EQ(node.Update(1), PartStatus::kFrozen);
  EXPECT_EQ(CheckLookup(node.state(), UnitEpoch{1}).status, PartStatus::kApplied);
}

TEST(NodeStepUpdate, AfterTheCommitAnswersMovedWithTheOwner) {
  Node node = FrozenSource();
  node.On(RecordEvent{kCommitted});
  EXPECT_EQ(node.Update(1), PartStatus::kMoved);
  EXPECT_EQ(node.answer().owner, kTarget);
  EXPECT_EQ(node.answer().epoch, UnitEpoch{2});
}

TEST(NodeStepUpdate, NewerEpochThanTheNodeKnowsIsEpochAhead) {
  EXPECT_EQ(CheckLookup(SealedTarget().state(), UnitEpoch{2}).status, PartStatus::kEpochAhead);
}

TEST(NodeStepSource, SendsChunksWithinTheCreditThenSaysItIsCaughtUp) {
  Node node = Node::Source();
  node.PullHolding({Lsn{0}, Lsn{0}});
  ASSERT_NE(node.Find<SendChunk>(), nullptr);
  EXPECT_EQ(node.Find<SendChunk>()->chunk, (Chunk{MoveId{1}, 0, Lsn{0}, Lsn{1}}));
  node.PullHolding({Lsn{1}, Lsn{0}});
  EXPECT_EQ(node.Find<SendChunk>()->chunk.chunk, 1u);
  node.PullHolding({Lsn{1}, Lsn{1}});
  EXPECT_EQ(node.Find<SendReport>()->report.kind, ReportKind::kCaughtUp);
}

TEST(NodeStepSource, SendsADeltaForAChunkThatWasUpdated) {
  Node node = Node::Source();
  node.Update(1, /*chunk=*/1);
  node.Written();
  node.PullHolding({Lsn{1}, Lsn{1}});
  ASSERT_NE(node.Find<SendChunk>(), nullptr);
  EXPECT_EQ(node.Find<SendChunk>()->chunk, (Chunk{MoveId{1}, 1, Lsn{1}, Lsn{2}}));
}

TEST(NodeStepSource, FreezeWaitsForDecidedUpdatesThenLogsAndCuts) {
  Node node = Node::Source();
  node.Update(1);
  node.On(FreezeEvent{kOpen});
  EXPECT_FALSE(node.has_actions());
  EXPECT_EQ(node.Update(2), PartStatus::kFrozen);
  node.Written();
  EXPECT_NE(node.Find<LogAction>(), nullptr);
  ASSERT_NE(node.Find<SendFinal>(), nullptr);
  EXPECT_EQ(node.Find<SendFinal>()->cut.lsn, Lsn{2});
  EXPECT_EQ(node.Find<SendFinal>()->cut.windows.sessions().size(), 1u);
}

TEST(NodeStepSource, TheCutDoesNotOvertakeChunksOnTheirWay) {
  Node node = Node::Source();
  node.PullHolding({Lsn{1}, Lsn{0}});
  ASSERT_NE(node.Find<SendChunk>(), nullptr);
  node.On(FreezeEvent{kOpen});
  EXPECT_EQ(node.Find<SendFinal>(), nullptr);
  EXPECT_EQ(node.Find<SendChunk>(), nullptr);
  node.PullHolding({Lsn{1}, Lsn{1}});
  EXPECT_NE(node.Find<SendFinal>(), nullptr);
}

TEST(NodeStepSource, ARepeatedFreezeSaysTheCutWhateverIsOnItsWay) {
  Node node = Node::Source();
  node.PullHolding({Lsn{1}, Lsn{0}});
  node.On(FreezeEvent{kOpen});
  node.On(FreezeEvent{kOpen});
  EXPECT_NE(node.Find<SendFinal>(), nullptr);
}

TEST(NodeStepSource, FreezeSurvivesARestartAndDeadlineOnlyAsksForTheAbort) {
  Node node = FrozenSource();
  node.On(FreezeDeadline{});
  ASSERT_NE(node.Find<PutRecord>(), nullptr);
  EXPECT_EQ(node.Find<PutRecord>()->desired, kAborted);
  node.Restart();
  node.On(FreezeDeadline{});
  EXPECT_NE(node.Find<ReadRecord>(), nullptr);
  EXPECT_EQ(node.Update(1), PartStatus::kFrozen);
}

TEST(NodeStepSource, AbortEndsTheFreezeAndALateFreezeDoesNothing) {
  Node node = FrozenSource();
  node.On(RecordEvent{kAborted});
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
  node.On(FreezeEvent{kOpen});
  EXPECT_EQ(node.Update(2), PartStatus::kApplied);
}

TEST(NodeStepSource, KeepsRowsFromCommitToCleanup) {
  Node node = FrozenSource();
  node.On(RecordEvent{kCommitted});
  EXPECT_EQ(node.Find<TrimRows>(), nullptr);
  EXPECT_EQ(node.state().durable.retained, MoveId{1});
  node.On(RecordEvent{kCleaned});
  EXPECT_NE(node.Find<TrimRows>(), nullptr);
}

TEST(NodeStepSource, RefusesATargetThatHoldsWhatTheSourceLost) {
  Node node = Node::Source();
  node.PullHolding({Lsn{9}, Lsn{1}});
  EXPECT_EQ(node.Find<SendReport>()->report.kind, ReportKind::kRefused);
}

// Its log is older than the move, or the store was.
TEST(NodeStepSource, KeepsRowsThatItNeverHandedOverAsideUntilAnOperatorGivesThemUp) {
  Node node = Node::Source();
  ASSERT_EQ(node.Update(1), PartStatus::kApplied);
  node.Written();
  node.On(RecordEvent{kCleaned});
  EXPECT_EQ(node.Update(2), PartStatus::kMoved);
  EXPECT_EQ(node.state().durable.retained, kAside);
  EXPECT_EQ(node.Find<TrimRows>(), nullptr);
  const UnitRecord back = *Opened(kCleaned, kSource);
  for (const UnitRecord& record : {kCommitted, kCleaned, back}) {
    node.On(RecordEvent{record});
    EXPECT_EQ(node.Find<TrimRows>(), nullptr);
    EXPECT_EQ(node.Find<ReserveImport>(), nullptr);
  }
  ASSERT_NE(node.Find<SendReport>(), nullptr);
  EXPECT_EQ(node.Find<SendReport>()->report.kind, ReportKind::kRefused);
  node.Restart();
  node.On(DropAsideEvent{});
  EXPECT_NE(node.Find<TrimRows>(), nullptr);
  node.On(RecordEvent{*Opened(*Aborted(back, MoveId{2}), kSource)});
  EXPECT_NE(node.Find<ReserveImport>(), nullptr);
}

TEST(NodeStepSource, OfTwoOwnersOfOneEpochTheOneOfTheRecordStays) {
  Node node = Node::Source();
  node.On(RecordEvent{{.owner = kTarget}});
  EXPECT_EQ(node.state().durable.retained, kAside);
}

TEST(NodeStepSource, GivesUpNothingThatIsNotAside) {
  Node node = FrozenSource();
  node.On(DropAsideEvent{});
  EXPECT_FALSE(node.has_actions());
  node.On(RecordEvent{kCommitted});
  node.On(DropAsideEvent{});
  EXPECT_FALSE(node.has_actions());
}

TEST(StandingOf, TellsWhatTheNodeKnowsOfTheUnitsLastMove) {
  using State = UnitStanding::State;
  const auto standing = [](const Node& node) { return StandingOf(node.state()); };
  EXPECT_EQ(standing(Node::Source()), (UnitStanding{State::kOwned, UnitEpoch{1}, MoveId{0}, {}}));
  Node source = FrozenSource();
  EXPECT_EQ(standing(source), (UnitStanding{State::kOwned, UnitEpoch{1}, MoveId{1}, {}}));
  Node other = source;
  other.On(RecordEvent{kAborted});
  EXPECT_EQ(standing(other), (UnitStanding{State::kOwned, UnitEpoch{1}, MoveId{1}, {}}));
  source.On(RecordEvent{kCommitted});
  EXPECT_EQ(standing(source).state, State::kHandedOver);
  EXPECT_EQ(standing(source).last_move, MoveId{1});
  Node target = SealedTarget();
  EXPECT_EQ(standing(target), (UnitStanding{State::kSealed, UnitEpoch{1}, MoveId{1}, kSource}));
  target.On(RecordEvent{kCommitted});
  EXPECT_EQ(standing(target), (UnitStanding{State::kOwned, UnitEpoch{2}, MoveId{1}, {}}));
}

TEST(NodeStepTarget, ReservesThenImportsThenPulls) {
  Node node = Node::Target();
  node.On(RecordEvent{kOpen});
  EXPECT_NE(node.Find<ReserveImport>(), nullptr);
  node.On(ReservedEvent{MoveId{1}, true});
  ASSERT_NE(node.Find<SendPull>(), nullptr);
  EXPECT_EQ(node.Find<SendPull>()->to, kSource);
}

TEST(NodeStepTarget, WithoutRoomRefuses) {
  Node node = Node::Target();
  node.On(RecordEvent{kOpen});
  node.On(ReservedEvent{MoveId{1}, false});
  EXPECT_EQ(node.Find<SendReport>()->report.kind, ReportKind::kRefused);
}

TEST(NodeStepTarget, StagesNewerChunksOnTheirBaseOnly) {
  Node node = ImportingTarget();
  node.On(ChunkEvent{{MoveId{1}, 0, Lsn{2}, Lsn{3}}});
  EXPECT_EQ(node.Find<StageChunk>(), nullptr);
  node.On(ChunkEvent{{MoveId{1}, 0, Lsn{0}, Lsn{2}}});
  EXPECT_NE(node.Find<StageChunk>(), nullptr);
  node.On(ChunkEvent{{MoveId{1}, 0, Lsn{0}, Lsn{1}}});
  EXPECT_EQ(node.Find<StageChunk>(), nullptr);
}

TEST(NodeStepTarget, SealsOnlyWithEveryChunkAndInstallsOnlyWhenCommitted) {
  Node node = ImportingTarget();
  node.On(FinalEvent{{MoveId{1}, Lsn{1}, {Lsn{1}, Lsn{1}}, {}}});
  EXPECT_NE(node.Find<SendPull>(), nullptr);
  Node sealed = SealedTarget();
  EXPECT_EQ(sealed.Find<SendReport>()->report.kind, ReportKind::kSealed);
  EXPECT_EQ(sealed.Update(1), PartStatus::kMoved);
  sealed.Restart();
  sealed.On(RecordEvent{kCommitted});
  EXPECT_NE(sealed.Find<InstallStaged>(), nullptr);
  EXPECT_EQ(sealed.Update(1), PartStatus::kApplied);
}

TEST(NodeStepTarget, AbortDiscardsAndTheOldRecordDoesNotImportAgain) {
  Node node = ImportingTarget();
  node.On(RecordEvent{kAborted});
  EXPECT_NE(node.Find<DiscardStaged>(), nullptr);
  node.On(RecordEvent{kOpen});
  EXPECT_FALSE(node.has_actions());
}

// A move between devices of the source.
const UnitRecord kWithin = *Opened(kFresh, kSource);
const UnitRecord kWithinCommitted = *Committed(kWithin, MoveId{1});

Node NodeWithRoom() {
  Node node = Node::Source();
  node.On(RecordEvent{kWithin});
  node.On(ReservedEvent{MoveId{1}, true});
  return node;
}

TEST(NodeStepWithinANode, ReportsItsRoomAndGoesOnTakingUpdates) {
  Node node = NodeWithRoom();
  ASSERT_NE(node.Find<SendReport>(), nullptr);
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kSealed, MoveId{1}}));
  EXPECT_EQ(node.Find<SendPull>(), nullptr);
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
  node.On(RecordEvent{kWithin});
  EXPECT_EQ(node.Find<RelocateRows>(), nullptr);
  EXPECT_NE(node.Find<SendReport>(), nullptr);
}

TEST(NodeStepWithinANode, RowsChangeDevicesOnceTheRecordSaysSo) {
  Node node = NodeWithRoom();
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
  node.On(RecordEvent{kWithinCommitted});
  ASSERT_NE(node.Find<RelocateRows>(), nullptr);
  EXPECT_EQ(node.Find<RelocateRows>()->move, MoveId{1});
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kCovered, MoveId{1}}));
  EXPECT_EQ(node.Update(1), PartStatus::kDuplicate);
  EXPECT_EQ(node.Update(2), PartStatus::kApplied);
  node.On(RecordEvent{kWithinCommitted});
  EXPECT_EQ(node.Find<RelocateRows>(), nullptr);
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kCovered, MoveId{1}}));
  node.On(RecordEvent{kWithin});
  EXPECT_FALSE(node.has_actions());
}

TEST(NodeStepWithinANode, AnAbortGivesTheRoomBack) {
  Node node = NodeWithRoom();
  node.On(RecordEvent{*Aborted(kWithin, MoveId{1})});
  EXPECT_NE(node.Find<DiscardStaged>(), nullptr);
  node.On(RecordEvent{kWithin});
  EXPECT_FALSE(node.has_actions());
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
}

TEST(NodeStepWithinANode, WithoutRoomItIsRefused) {
  Node node = Node::Source();
  node.On(RecordEvent{kWithin});
  node.On(ReservedEvent{MoveId{1}, false});
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kRefused, MoveId{1}}));
}

TEST(NodeStepWithinANode, AProcessThatLostItsRoomReservesAgainAfterTheCommit) {
  Node node = Node::Source();
  node.On(RecordEvent{kWithinCommitted});
  ASSERT_NE(node.Find<ReserveImport>(), nullptr);
  node.On(ReservedEvent{MoveId{1}, true});
  EXPECT_NE(node.Find<RelocateRows>(), nullptr);
}

TEST(NodeStepWithinANode, WhatAPeerSendsIsNotTakenIn) {
  Node node = NodeWithRoom();
  node.On(ChunkEvent{{MoveId{1}, 0, Lsn{0}, Lsn{1}}});
  EXPECT_FALSE(node.has_actions());
  node.On(FinalEvent{{MoveId{1}, Lsn{1}, {Lsn{1}, Lsn{1}}, {}}});
  EXPECT_FALSE(node.has_actions());
}

TEST(NodeStepWithinANode, ReplayingTheLogYieldsTheSame) {
  UnitDurable durable = FreshUnit(2);
  Replay(ImportRecord{MoveId{1}, kSource, UnitEpoch{1}}, durable);
  Replay(RelocateRecord{MoveId{1}}, durable);
  Node node = NodeWithRoom();
  node.On(RecordEvent{kWithinCommitted});
  EXPECT_EQ(durable, node.state().durable);
}

TEST(CoordinatorStep, AMoveWithinANodeIsToldOnce) {
  EXPECT_EQ(StepCoordinator(CoordinatedUnit(), StoredRecord{kWithin}).actions.size(), 1u);
}

TEST(CoordinatorStep, CommitsOnItsOwnSealOnly) {
  CoordinatedUnit unit;
  unit.record = kOpen;
  const auto after = [&](ReportKind kind, MoveId move) {
    return StepCoordinator(unit, ReportEvent{{kind, move}}).actions;
  };
  ASSERT_EQ(after(ReportKind::kSealed, MoveId{1}).size(), 1u);
  EXPECT_EQ(std::get<PutToStore>(after(ReportKind::kSealed, MoveId{1})[0]).desired, kCommitted);
  EXPECT_TRUE(after(ReportKind::kSealed, MoveId{2}).empty());
  EXPECT_TRUE(after(ReportKind::kCovered, MoveId{1}).empty());
  EXPECT_EQ(std::get<PutToStore>(after(ReportKind::kRefused, MoveId{1})[0]).desired, kAborted);
  EXPECT_EQ(std::get<TellFreeze>(after(ReportKind::kCaughtUp, MoveId{1})[0]).to, kSource);
}

TEST(CoordinatorStep, AfterARestartReadsTheStoreAndTellsBothEnds) {
  EXPECT_TRUE(std::holds_alternative<ReadFromStore>(
      StepCoordinator(CoordinatedUnit(), CoordinatorTick{}).actions.at(0)));
  const auto told = StepCoordinator(CoordinatedUnit(), StoredRecord{kOpen}).actions;
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(std::get<TellRecord>(told[0]).to, kSource);
  EXPECT_EQ(std::get<TellRecord>(told[1]).to, kTarget);
}

TEST(CoordinatorStep, CoveredCopyIsCleanedUp) {
  CoordinatedUnit unit;
  unit.record = kCommitted;
  const auto actions =
      StepCoordinator(unit, ReportEvent{{ReportKind::kCovered, MoveId{1}}}).actions;
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<PutToStore>(actions[0]).desired, kCleaned);
}

}  // namespace
}  // namespace embla
