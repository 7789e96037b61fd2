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
const UnitRecord kMoved = *HandedOver(kOpen, MoveId{1});
const ReleaseSynced kSynced{MoveId{1}};

// One node; keeps what each step asked for.
class Node {
 public:
  Node(NodeId self, UnitDurable durable, std::uint32_t behind_max = 0, std::uint32_t rounds_max = 0)
      : state_(Recovered(std::move(durable), {}, 2)) {
    context_.self = self;
    context_.behind_max = behind_max;
    context_.rounds_max = rounds_max;
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

// The target has everything.
Node FrozenSource() {
  Node node = Node::Source();
  node.On(RecordEvent{kOpen});
  node.PullHolding({Lsn{1}, Lsn{1}});
  return node;
}

Node ReleasingSource() {
  Node node = FrozenSource();
  node.On(HoldsEvent{kTarget, {MoveId{1}, Lsn{1}}});
  return node;
}

Node ReleasedSource() {
  Node node = ReleasingSource();
  node.On(kSynced);
  return node;
}

Node ImportingTarget() {
  Node node = Node::Target();
  node.On(RecordEvent{kOpen});
  node.On(ReservedEvent{MoveId{1}, true});
  return node;
}

Node HoldingTarget() {
  Node node = ImportingTarget();
  for (std::uint32_t c = 0; c < 2; ++c) node.On(ChunkEvent{{MoveId{1}, c, Lsn{0}, Lsn{1}}});
  node.On(FinalEvent{{MoveId{1}, Lsn{1}, {Lsn{1}, Lsn{1}}, {}}});
  return node;
}

const ReleaseEvent kRelease{kSource, {MoveId{1}, UnitEpoch{2}, Lsn{1}}};

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

// Until it is on disk, a crash may undo it: nobody is sent away, and nobody else answers lookups.
TEST(NodeStepUpdate, UntilTheReleaseIsSyncedItIsRefusedAndLookupsAreServed) {
  Node node = ReleasingSource();
  EXPECT_EQ(node.Update(1), PartStatus::kFrozen);
  EXPECT_EQ(CheckLookup(node.state(), UnitEpoch{1}).status, PartStatus::kApplied);
  EXPECT_EQ(node.Find<SendRelease>(), nullptr);
}

TEST(NodeStepUpdate, AfterwardsTheNewOwnerIsNamed) {
  Node node = ReleasedSource();
  for (int process = 0; process < 2; ++process) {
    EXPECT_EQ(node.Update(1), PartStatus::kMoved);
    EXPECT_EQ(node.answer().owner, kTarget);
    EXPECT_EQ(node.answer().epoch, UnitEpoch{2});
    EXPECT_EQ(CheckLookup(node.state(), UnitEpoch{1}).status, PartStatus::kMoved);
    node.Restart();
  }
}

TEST(NodeStepUpdate, AlsoWhenItsRowsAreGoneAndTheProcessIsAnotherOne) {
  Node node = ReleasedSource();
  node.On(CoveredEvent{{MoveId{1}}});
  ASSERT_NE(node.Find<TrimRows>(), nullptr);
  node.Restart();
  EXPECT_EQ(node.Update(1), PartStatus::kMoved);
  EXPECT_EQ(node.answer().owner, kTarget);
  EXPECT_EQ(node.answer().epoch, UnitEpoch{2});
  node.On(RecordEvent{kOpen});
  ASSERT_NE(node.Find<SendReport>(), nullptr) << "the coordinator knows less";
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kHandedOver, MoveId{1}}));
}

TEST(NodeStepUpdate, NewerEpochThanTheNodeKnowsIsEpochAhead) {
  EXPECT_EQ(CheckLookup(HoldingTarget().state(), UnitEpoch{2}).status, PartStatus::kEpochAhead);
}

TEST(NodeStepSource, SendsChunksWithinTheCreditThenFreezes) {
  Node node = Node::Source();
  node.On(RecordEvent{kOpen});
  node.PullHolding({Lsn{0}, Lsn{0}});
  ASSERT_NE(node.Find<SendChunk>(), nullptr);
  EXPECT_EQ(node.Find<SendChunk>()->chunk, (Chunk{MoveId{1}, 0, Lsn{0}, Lsn{1}}));
  node.PullHolding({Lsn{1}, Lsn{0}});
  EXPECT_EQ(node.Find<SendChunk>()->chunk.chunk, 1u);
  EXPECT_FALSE(IsFrozen(node.state()));
  node.PullHolding({Lsn{1}, Lsn{1}});
  EXPECT_TRUE(IsFrozen(node.state()));
  EXPECT_NE(node.Find<SendFinal>(), nullptr);
}

TEST(NodeStepSource, WithoutTheOrderItSendsAndDoesNotFreeze) {
  Node node = Node::Source();
  node.PullHolding({Lsn{1}, Lsn{1}});
  EXPECT_FALSE(IsFrozen(node.state()));
  node.On(HoldsEvent{kTarget, {MoveId{1}, Lsn{1}}});
  EXPECT_FALSE(node.has_actions());
}

TEST(NodeStepSource, SendsADeltaForAChunkThatWasUpdated) {
  Node node = Node::Source();
  node.Update(1, /*chunk=*/1);
  node.Written();
  node.PullHolding({Lsn{1}, Lsn{1}});
  ASSERT_NE(node.Find<SendChunk>(), nullptr);
  EXPECT_EQ(node.Find<SendChunk>()->chunk, (Chunk{MoveId{1}, 1, Lsn{1}, Lsn{2}}));
}

TEST(NodeStepSource, AFreezeWaitsForDecidedUpdatesThenCuts) {
  Node node(kSource, FreshUnit(2), /*behind_max=*/1);
  node.On(RecordEvent{kOpen});
  node.Update(1);
  node.PullHolding({Lsn{1}, Lsn{1}});
  EXPECT_EQ(node.Find<SendFinal>(), nullptr);
  EXPECT_EQ(node.Update(2), PartStatus::kFrozen);
  node.Written();
  ASSERT_NE(node.Find<SendChunk>(), nullptr) << "the rest";
  EXPECT_EQ(node.Find<LogAction>(), nullptr) << "a freeze is a memory";
  ASSERT_NE(node.Find<SendFinal>(), nullptr);
  EXPECT_TRUE(node.Find<SendFinal>()->cut.chunks_follow);
  EXPECT_EQ(node.Find<SendFinal>()->cut.lsn, Lsn{2});
  EXPECT_EQ(node.Find<SendFinal>()->cut.windows.sessions().size(), 1u);
}

// Each pull finds both chunks behind, and lets one be sent.
TEST(NodeStepSource, FreezesAfterSomeRoundsThoughUpdatesKeepUpWithTheCopy) {
  Node node(kSource, FreshUnit(2), /*behind_max=*/0, /*rounds_max=*/2);
  node.On(RecordEvent{kOpen});
  std::uint64_t seq = 0;
  const auto pull = [&] {
    EXPECT_FALSE(IsFrozen(node.state())) << seq;
    for (const std::uint32_t chunk : {0u, 1u}) node.Update(++seq, chunk);
    node.Written();
    node.PullHolding({Lsn{1}, Lsn{1}});
  };
  for (int sent = 0; sent < 4; ++sent) pull();
  EXPECT_TRUE(IsFrozen(node.state()));
  EXPECT_NE(node.Find<SendFinal>(), nullptr);
  // The rest took too long: the same again, not at once.
  node.On(FreezeDeadline{});
  node.On(NodeTick{});
  for (int sent = 0; sent < 4; ++sent) pull();
  EXPECT_TRUE(IsFrozen(node.state()));
}

TEST(NodeStepSource, ATickSaysTheCutWhateverIsOnItsWay) {
  Node node = FrozenSource();
  node.On(NodeTick{});
  EXPECT_NE(node.Find<SendFinal>(), nullptr);
}

TEST(NodeStepSource, AFreezeThatLastsTooLongEndsAndRestsUntilTheNextTick) {
  Node node = FrozenSource();
  node.On(FreezeDeadline{});
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
  node.Written();
  node.PullHolding({Lsn{2}, Lsn{1}});
  EXPECT_FALSE(IsFrozen(node.state()));
  node.On(NodeTick{});
  node.PullHolding({Lsn{2}, Lsn{1}});
  EXPECT_TRUE(IsFrozen(node.state()));
}

TEST(NodeStepSource, ARestartEndsAFreeze) {
  Node node = FrozenSource();
  node.Restart();
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
}

TEST(NodeStepSource, LetsGoOnlyOfTheCutThatTheTargetHolds) {
  Node node = FrozenSource();
  node.On(FreezeDeadline{});
  node.Update(1);
  node.Written();
  node.On(HoldsEvent{kTarget, {MoveId{1}, Lsn{1}}});
  EXPECT_FALSE(node.has_actions());
  node.On(HoldsEvent{kTarget, {MoveId{1}, Lsn{2}}});
  ASSERT_NE(node.Find<LogAction>(), nullptr);
  const auto& release = std::get<ReleaseRecord>(node.Find<LogAction>()->record);
  EXPECT_EQ(release.released, (ReleasedState{MoveId{1}, kTarget, UnitEpoch{2}}));
  EXPECT_EQ(release.lsn, Lsn{2});
}

TEST(NodeStepSource, TellsTargetAndCoordinatorOnceItIsSyncedAndAgainAtEachTick) {
  Node node = ReleasedSource();
  for (int time = 0; time < 2; ++time) {
    ASSERT_NE(node.Find<SendRelease>(), nullptr);
    EXPECT_EQ(node.Find<SendRelease>()->release, kRelease.release);
    EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kHandedOver, MoveId{1}}));
    node.Restart();
    node.On(NodeTick{});
  }
}

// The target has died since, and lost what it had not synced.
TEST(NodeStepSource, SendsWhatItKeepsUntilTheTargetIsCovered) {
  Node node = ReleasedSource();
  node.Restart();
  node.PullHolding({Lsn{0}, Lsn{1}});
  EXPECT_NE(node.Find<SendChunk>(), nullptr);
  node.PullHolding({Lsn{1}, Lsn{1}});
  EXPECT_NE(node.Find<SendFinal>(), nullptr);
  node.On(HoldsEvent{kTarget, {MoveId{1}, Lsn{1}}});
  EXPECT_NE(node.Find<SendRelease>(), nullptr);
  EXPECT_EQ(node.Find<LogAction>(), nullptr);
  node.On(CoveredEvent{{MoveId{1}}});
  EXPECT_NE(node.Find<TrimRows>(), nullptr);
  node.On(NodeTick{});
  EXPECT_FALSE(node.has_actions());
}

TEST(NodeStepSource, ACancelIsAnsweredByItsWordWhichIsLoggedFirst) {
  Node node = FrozenSource();
  node.On(CancelEvent{kOpen});
  ASSERT_NE(node.Find<LogAction>(), nullptr);
  EXPECT_TRUE(std::holds_alternative<AbortRecord>(node.Find<LogAction>()->record));
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kAborted, MoveId{1}}));
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
  node.Restart();
  node.On(RecordEvent{kOpen});
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kAborted, MoveId{1}}));
  node.PullHolding({Lsn{1}, Lsn{1}});
  EXPECT_FALSE(node.has_actions());
}

TEST(NodeStepSource, ACancelThatComesTooLateHearsThatItIsHandedOver) {
  Node releasing = ReleasingSource();
  releasing.On(CancelEvent{kOpen});
  EXPECT_FALSE(releasing.has_actions());
  Node node = ReleasedSource();
  node.On(CancelEvent{kOpen});
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kHandedOver, MoveId{1}}));
}

TEST(NodeStepSource, RefusesATargetThatHoldsWhatTheSourceLost) {
  Node node = Node::Source();
  node.PullHolding({Lsn{9}, Lsn{1}});
  EXPECT_EQ(node.Find<SendReport>()->report.kind, ReportKind::kAborted);
}

// Its log is older than the move, or the store was.
TEST(NodeStepSource, KeepsRowsThatItNeverHandedOverAsideUntilAnOperatorGivesThemUp) {
  Node node = Node::Source();
  ASSERT_EQ(node.Update(1), PartStatus::kApplied);
  node.Written();
  node.On(RecordEvent{kMoved});
  EXPECT_EQ(node.Update(2), PartStatus::kMoved);
  EXPECT_TRUE(IsAside(node.state().durable));
  EXPECT_EQ(node.Find<TrimRows>(), nullptr);
  const UnitRecord back = *Opened(kMoved, kSource);
  for (const UnitRecord& record : {kMoved, back}) {
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
  EXPECT_TRUE(IsAside(node.state().durable));
}

TEST(NodeStepSource, GivesUpNothingThatIsNotAside) {
  Node node = FrozenSource();
  node.On(DropAsideEvent{});
  EXPECT_FALSE(node.has_actions());
  Node released = ReleasedSource();
  released.On(DropAsideEvent{});
  EXPECT_FALSE(released.has_actions());
}

TEST(StandingOf, TellsWhatTheNodeKnowsOfTheUnitsLastMove) {
  using State = UnitStanding::State;
  const auto standing = [](const Node& node) { return StandingOf(node.state()); };
  EXPECT_EQ(standing(Node::Source()), (UnitStanding{State::kOwned, UnitEpoch{1}, MoveId{0}, {}}));
  Node aborted = FrozenSource();
  EXPECT_EQ(standing(aborted).last_move, MoveId{0}) << "nothing has become of it yet";
  aborted.On(CancelEvent{kOpen});
  EXPECT_EQ(standing(aborted), (UnitStanding{State::kOwned, UnitEpoch{1}, MoveId{1}, {}}));
  EXPECT_EQ(standing(ReleasedSource()),
            (UnitStanding{State::kHandedOver, UnitEpoch{2}, MoveId{1}, kTarget}));
  Node target = HoldingTarget();
  EXPECT_EQ(standing(target), (UnitStanding{State::kComing, UnitEpoch{1}, MoveId{1}, kSource}));
  target.On(kRelease);
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

TEST(NodeStepTarget, HoldsACutOnlyWithEveryChunkAndServesOnTheSourcesWord) {
  Node node = ImportingTarget();
  node.On(FinalEvent{{MoveId{1}, Lsn{1}, {Lsn{1}, Lsn{1}}, {}}});
  EXPECT_NE(node.Find<SendPull>(), nullptr);
  Node holding = HoldingTarget();
  ASSERT_NE(holding.Find<SendHolds>(), nullptr);
  EXPECT_EQ(holding.Find<SendHolds>()->holds, (Holds{MoveId{1}, Lsn{1}}));
  EXPECT_EQ(holding.Update(1), PartStatus::kMoved);
  holding.On(RecordEvent{kMoved});
  EXPECT_EQ(holding.Find<InstallStaged>(), nullptr) << "the record does not name the cut";
  holding.On(kRelease);
  EXPECT_NE(holding.Find<InstallStaged>(), nullptr);
  EXPECT_EQ(holding.Update(1), PartStatus::kApplied);
}

// In whatever order they come; nothing is asked for meanwhile.
TEST(NodeStepTarget, HoldsACutWhoseChunksFollowWhenTheLastOneHasCome) {
  Node node = ImportingTarget();
  node.On(ChunkEvent{{MoveId{1}, 0, Lsn{0}, Lsn{1}}});
  node.On(FinalEvent{
      {.move = MoveId{1}, .lsn = Lsn{2}, .needed = {Lsn{1}, Lsn{2}}, .chunks_follow = true}});
  EXPECT_FALSE(node.has_actions());
  node.On(ChunkEvent{{MoveId{1}, 1, Lsn{0}, Lsn{2}}});
  ASSERT_NE(node.Find<SendHolds>(), nullptr);
  EXPECT_EQ(node.Find<SendHolds>()->holds, (Holds{MoveId{1}, Lsn{2}}));
  EXPECT_EQ(node.Find<SendPull>(), nullptr);
}

// Its updates are in no window of the cut: they would be applied twice.
TEST(NodeStepTarget, AChunkBeyondACutIsNotPartOfIt) {
  Node node = ImportingTarget();
  node.On(FinalEvent{
      {.move = MoveId{1}, .lsn = Lsn{2}, .needed = {Lsn{1}, Lsn{2}}, .chunks_follow = true}});
  node.On(ChunkEvent{{MoveId{1}, 0, Lsn{0}, Lsn{1}}});
  node.On(ChunkEvent{{MoveId{1}, 1, Lsn{0}, Lsn{3}}});
  EXPECT_EQ(node.Find<SendHolds>(), nullptr);
}

TEST(NodeStepTarget, AReleaseOfAnotherCutMakesItAskForTheRest) {
  Node node = HoldingTarget();
  node.On(ReleaseEvent{kSource, {MoveId{1}, UnitEpoch{2}, Lsn{2}}});
  EXPECT_NE(node.Find<SendPull>(), nullptr);
  EXPECT_EQ(node.Find<InstallStaged>(), nullptr);
  Node restarted = HoldingTarget();
  restarted.Restart();
  restarted.On(kRelease);
  EXPECT_NE(restarted.Find<SendPull>(), nullptr) << "what it holds has to be said again";
}

TEST(NodeStepTarget, SaysThatItIsCoveredOnceItsLogIsSynced) {
  Node node = HoldingTarget();
  node.On(kRelease);
  EXPECT_EQ(node.Find<SendCovered>(), nullptr);
  node.On(kRelease);
  EXPECT_EQ(node.Find<SendCovered>(), nullptr);
  node.On(OwnSynced{});
  ASSERT_NE(node.Find<SendCovered>(), nullptr);
  EXPECT_EQ(node.Find<SendCovered>()->to, kSource);
  node.On(kRelease);
  EXPECT_NE(node.Find<SendCovered>(), nullptr) << "the first one was lost";
}

TEST(NodeStepTarget, WithALostSourceItPromisesToTakeNothingOver) {
  const CancelEvent lost{kOpen, /*source_is_lost=*/true};
  Node node = HoldingTarget();
  node.On(lost);
  EXPECT_NE(node.Find<DiscardStaged>(), nullptr);
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kAborted, MoveId{1}}));
  node.On(kRelease);
  EXPECT_EQ(node.Find<InstallStaged>(), nullptr);
  Node unaware = Node::Target();
  unaware.On(lost);
  EXPECT_NE(unaware.Find<LogAction>(), nullptr);
  unaware.On(RecordEvent{kOpen});
  EXPECT_EQ(unaware.Find<ReserveImport>(), nullptr);
  Node owner = HoldingTarget();
  owner.On(kRelease);
  owner.On(lost);
  EXPECT_EQ(owner.Find<SendReport>(), nullptr) << "a death may undo it";
  owner.On(OwnSynced{});
  EXPECT_EQ(owner.Find<SendReport>()->report, (MoveReport{ReportKind::kHandedOver, MoveId{1}}));
  owner.On(lost);
  EXPECT_EQ(owner.Find<SendReport>()->report, (MoveReport{ReportKind::kHandedOver, MoveId{1}}));
}

// A later cut is here already; both name rows that the target has.
TEST(NodeStepTarget, AnOlderCutIsNotWhatItHolds) {
  Node node = ImportingTarget();
  node.On(ChunkEvent{{MoveId{1}, 0, Lsn{0}, Lsn{5}}});
  node.On(ChunkEvent{{MoveId{1}, 1, Lsn{0}, Lsn{5}}});
  node.On(FinalEvent{{MoveId{1}, Lsn{4}, {Lsn{1}, Lsn{4}}}});
  EXPECT_EQ(node.Find<SendHolds>(), nullptr);
  EXPECT_FALSE(node.state().held.has_value());
  node.On(FinalEvent{{MoveId{1}, Lsn{5}, {Lsn{1}, Lsn{5}}}});
  EXPECT_NE(node.Find<SendHolds>(), nullptr);
}

// The unit had come and was to go on, in a life of the node that its log has lost.
TEST(NodeStepTarget, WhatIsToLeaveBeforeItHasComeWillNotLeaveInThatMove) {
  Node node = ImportingTarget();
  const UnitRecord onward = *Opened(kMoved, NodeId{3});
  node.On(CancelEvent{onward});
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kAborted, MoveId{2}}));
  EXPECT_EQ(StandingOf(node.state()).last_move, MoveId{1});
  node.On(CancelEvent{onward});
  EXPECT_EQ(node.Find<LogAction>(), nullptr) << "it has said so before";
  EXPECT_NE(node.Find<SendReport>(), nullptr);
}

// The coordinator knows that it was handed over, and its source is lost with the cut.
TEST(NodeStepTarget, WithALostSourceItTakesOverWhatTheRecordSaysIsItsOwn) {
  const RecordEvent granted{kMoved, /*source_is_lost=*/true};
  Node holding = HoldingTarget();
  holding.On(granted);
  EXPECT_NE(holding.Find<InstallStaged>(), nullptr);
  EXPECT_EQ(holding.Find<ResetStaged>(), nullptr);
  EXPECT_EQ(holding.state().durable.epoch, UnitEpoch{2});
  Node importing = ImportingTarget();
  importing.On(granted);
  EXPECT_NE(importing.Find<ResetStaged>(), nullptr) << "nobody has its rows";
  EXPECT_EQ(std::get<OwnRecord>(importing.Find<LogAction>()->record).lsn, kFirstLsn);
}

// A second RELEASE of its own says nothing of OWN until it is synced.
TEST(NodeStepTarget, WhileItLetsGoOfTheUnitItselfNothingIsCovered) {
  Node node = HoldingTarget();
  node.On(kRelease);
  const UnitRecord onward = *Opened(kMoved, NodeId{3});
  node.On(RecordEvent{onward});
  node.On(HoldsEvent{NodeId{3}, {MoveId{2}, node.state().durable.lsn}});
  ASSERT_TRUE(node.state().is_releasing);
  node.On(kRelease);
  EXPECT_EQ(node.Find<SendCovered>(), nullptr);
  node.On(ReleaseSynced{MoveId{2}});
  node.On(kRelease);
  EXPECT_NE(node.Find<SendCovered>(), nullptr);
}

TEST(NodeStepTarget, AUnitThatNobodyHasBeginsByTheRecord) {
  const UnitRecord open = *OpenedAnew(kFresh, kTarget);
  Node node = Node::Target();
  node.On(RecordEvent{open});
  node.On(ReservedEvent{MoveId{1}, true});
  EXPECT_NE(node.Find<ResetStaged>(), nullptr);
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kReady, MoveId{1}}));
  node.On(RecordEvent{*HandedOver(open, MoveId{1})});
  EXPECT_NE(node.Find<InstallStaged>(), nullptr);
  EXPECT_EQ(node.state().durable.epoch, UnitEpoch{2});
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

TEST(NodeStepWithinANode, RowsChangeDevicesAsSoonAsThereIsRoom) {
  Node node = Node::Source();
  node.On(RecordEvent{kWithin});
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
  node.On(ReservedEvent{MoveId{1}, true});
  ASSERT_NE(node.Find<RelocateRows>(), nullptr);
  EXPECT_EQ(node.Find<RelocateRows>()->move, MoveId{1});
  const MoveReport done{ReportKind::kHandedOver, MoveId{1}};
  EXPECT_EQ(node.Find<SendReport>()->report, done);
  EXPECT_EQ(node.Update(1), PartStatus::kDuplicate);
  EXPECT_EQ(node.Update(2), PartStatus::kApplied);
  node.Restart();
  for (const NodeEvent& again :
       {NodeEvent(RecordEvent{kWithin}), NodeEvent(CancelEvent{kWithin})}) {
    node.On(again);
    EXPECT_EQ(node.Find<RelocateRows>(), nullptr);
    EXPECT_EQ(node.Find<SendReport>()->report, done);
  }
}

TEST(NodeStepWithinANode, AnAbortGivesTheRoomBack) {
  Node node = Node::Source();
  node.On(RecordEvent{kWithin});
  node.On(CancelEvent{kWithin});
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kAborted, MoveId{1}}));
  node.On(ReservedEvent{MoveId{1}, true});
  EXPECT_FALSE(node.has_actions());
  EXPECT_EQ(node.Update(1), PartStatus::kApplied);
}

TEST(NodeStepWithinANode, WithoutRoomItIsRefused) {
  Node node = Node::Source();
  node.On(RecordEvent{kWithin});
  node.On(ReservedEvent{MoveId{1}, false});
  EXPECT_EQ(node.Find<SendReport>()->report, (MoveReport{ReportKind::kRefused, MoveId{1}}));
}

TEST(NodeStepWithinANode, ReplayingTheLogYieldsTheSame) {
  UnitDurable durable = FreshUnit(2);
  Replay(ImportRecord{MoveId{1}, kSource, UnitEpoch{1}}, durable);
  Replay(RelocateRecord{MoveId{1}}, durable);
  Node node = Node::Source();
  node.On(RecordEvent{kWithin});
  node.On(ReservedEvent{MoveId{1}, true});
  EXPECT_EQ(durable, node.state().durable);
}

TEST(CoordinatorStep, AMoveWithinANodeIsToldOnce) {
  EXPECT_EQ(StepCoordinator(CoordinatedUnit(), StoredRecord{kWithin}).actions.size(), 1u);
}

TEST(CoordinatorStep, RecordsWhatHasBecomeOfItsOwnMove) {
  CoordinatedUnit unit;
  unit.record = kOpen;
  const auto after = [&](ReportKind kind, MoveId move) {
    return StepCoordinator(unit, ReportEvent{{kind, move}}).actions;
  };
  ASSERT_EQ(after(ReportKind::kHandedOver, MoveId{1}).size(), 1u);
  EXPECT_EQ(std::get<PutToStore>(after(ReportKind::kHandedOver, MoveId{1})[0]).desired, kMoved);
  EXPECT_TRUE(after(ReportKind::kHandedOver, MoveId{2}).empty());
  EXPECT_TRUE(after(ReportKind::kReady, MoveId{1}).empty()) << "it does not begin anew";
  EXPECT_EQ(std::get<PutToStore>(after(ReportKind::kAborted, MoveId{1})[0]).desired, kAborted);
}

TEST(CoordinatorStep, AsksTheSourceForTheEndOfAMoveAndTheTargetIfThatIsLost) {
  CoordinatedUnit unit;
  unit.record = kOpen;
  const auto told = [&](const CoordinatorEvent& event) {
    const auto actions = StepCoordinator(unit, event).actions;
    EXPECT_EQ(actions.size(), 1u);
    return std::get<TellCancel>(actions.at(0));
  };
  EXPECT_EQ(told(CancelMove{}).to, kSource);
  EXPECT_EQ(told(ReportEvent{{ReportKind::kRefused, MoveId{1}}}).to, kSource);
  EXPECT_EQ(told(CancelMove{.source_is_lost = true}).to, kTarget);
  unit.record = *OpenedAnew(kFresh, kTarget);
  const auto actions = StepCoordinator(unit, CancelMove{}).actions;
  EXPECT_EQ(std::get<PutToStore>(actions.at(0)).desired.phase, MovePhase::kAborted);
}

TEST(CoordinatorStep, AfterARestartReadsTheStoreAndTellsBothEnds) {
  EXPECT_TRUE(std::holds_alternative<ReadFromStore>(
      StepCoordinator(CoordinatedUnit(), CoordinatorTick{}).actions.at(0)));
  const auto told = StepCoordinator(CoordinatedUnit(), StoredRecord{kOpen}).actions;
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(std::get<TellRecord>(told[0]).to, kSource);
  EXPECT_EQ(std::get<TellRecord>(told[1]).to, kTarget);
}

}  // namespace
}  // namespace embla
