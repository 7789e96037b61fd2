// Members of tables with synchronous steps: ranks join, leave and are silent, and every node
// answers before a change is decided.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CoordinatorSteps : public ::testing::Test {
 protected:
  CoordinatorSteps() { Create("t"); }

  static TableSpec Spec(const std::string& name, OnSilence on_silence) {
    TableSpec spec = CoordinatorHarness::Spec(name);
    spec.sync = SyncSpec{.on_silence = on_silence};
    return spec;
  }
  void Create(const std::string& name, OnSilence on_silence = OnSilence::kClose) {
    ASSERT_THAT(c_->StartCreateTable(Spec(name, on_silence),
                                     {.sharding = ShardingType::kRowWise, .nodes = {"n0", "n1"}},
                                     {}, c_.now()),
                IsOk());
    for (const NodeId node : nodes_) ASSERT_THAT(c_.Install(node), IsOk());
    ASSERT_NE(c_.Outcomes().size(), 0u);
  }

  SessionGrant Open(std::uint32_t rank, std::uint32_t ranks, const std::string& trainer = "",
                    std::uint64_t client_nonce = 1) {
    const auto grant = OpenAgain(rank, ranks, trainer, client_nonce, {});
    EXPECT_THAT(grant, IsOk());
    return grant.value_or(SessionGrant());
  }
  absl::StatusOr<SessionGrant> OpenAgain(std::uint32_t rank, std::uint32_t ranks,
                                         const std::string& trainer, std::uint64_t client_nonce,
                                         SessionId replaces) {
    return c_->OpenSession({.trainer = trainer,
                            .client_nonce = trainer.empty() ? 0 : client_nonce,
                            .replaces = replaces,
                            .rank = Rank{rank},
                            .ranks = ranks});
  }
  // The trainer is started again: its session before is closed on all nodes, then the next begins.
  SessionGrant Replace(const SessionGrant& before, std::uint32_t rank, std::uint32_t ranks,
                       const std::string& trainer) {
    EXPECT_THAT(OpenAgain(rank, ranks, trainer, 2, before.session),
                StatusIs(absl::StatusCode::kUnavailable));
    Settle();
    const auto grant = OpenAgain(rank, ranks, trainer, 2, before.session);
    EXPECT_THAT(grant, IsOk());
    return grant.value_or(SessionGrant());
  }
  // All nodes take in which sessions are closed.
  void Settle() {
    c_->Tick(c_.now());
    c_->TakeEffects();
    for (const NodeId node : nodes_) {
      HeartbeatInfo info = Info();
      info.sessions_heard = c_->all_sessions().number;
      EXPECT_THAT(c_->Heartbeat(node, 1, info, c_.now()), IsOk());
    }
    c_->Tick(c_.now());
  }
  absl::Status Join(const SessionGrant& grant, const std::string& table = "t") {
    const TableId ids[] = {Table(table).spec.id};
    return c_->JoinSteps(grant.session, grant.proof, ids, c_.now());
  }

  const TablePlan& Table(const std::string& name = "t") {
    plan_ = c_->GetPlan();
    return *plan_->FindTable(name);
  }
  const StepPlan& Steps(const std::string& name = "t") { return Table(name).steps; }
  std::vector<Rank> Members(const std::string& name = "t") {
    const StepPlan& steps = Steps(name);
    return steps.members.empty() ? std::vector<Rank>() : steps.members.back().ranks;
  }

  HeartbeatInfo Info() {
    HeartbeatInfo info;
    info.plan_version = c_->GetPlan()->version();
    return info;
  }
  // The node has the plan, and made steps up to `first_unmade`.
  void Answer(NodeId node, std::uint64_t first_unmade, const std::string& table = "t") {
    HeartbeatInfo info = Info();
    info.steps = {{.table = Table(table).spec.id,
                   .change = Steps(table).changes,
                   .first_unmade = first_unmade}};
    EXPECT_THAT(c_->Heartbeat(node, 1, info, c_.now()), IsOk());
  }
  void AnswerAll(std::uint64_t first_unmade, const std::string& table = "t") {
    for (const NodeId node : nodes_) Answer(node, first_unmade, table);
  }
  // At step `step` others have waited too long for `ranks`, by a plan with `change`.
  void Lack(NodeId node, std::uint64_t step, std::vector<Rank> ranks, std::uint64_t change,
            const std::string& table = "t") {
    HeartbeatInfo info = Info();
    info.steps = {{.table = Table(table).spec.id,
                   .change = change,
                   .first_unmade = step,
                   .step = step,
                   .lacks = std::move(ranks)}};
    EXPECT_THAT(c_->Heartbeat(node, 1, info, c_.now()), IsOk());
  }
  // Ranks 0 to `ranks` - 1 train the table from its first step on.
  std::vector<SessionGrant> Train(std::uint32_t ranks, const std::string& table = "t") {
    std::vector<SessionGrant> grants;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      grants.push_back(Open(rank, ranks, "t" + std::to_string(rank)));
      EXPECT_THAT(Join(grants.back(), table), IsOk());
    }
    AnswerAll(0, table);
    EXPECT_EQ(Members(table).size(), ranks);
    return grants;
  }
  void Tick() { c_->Tick(c_.now()); }

  CoordinatorHarness c_;
  const NodeId nodes_[3] = {c_.Register("n0"), c_.Register("n1"), c_.Register("n2")};
  PlanPtr plan_;
};

TEST_F(CoordinatorSteps, AllRanksJoinAtOnceWhenTheLastHasAsked) {
  const SessionGrant grants[] = {Open(0, 3), Open(1, 3), Open(2, 3)};
  ASSERT_THAT(Join(grants[2]), IsOk());
  ASSERT_THAT(Join(grants[0]), IsOk());
  ASSERT_THAT(Join(grants[2]), IsOk());
  Tick();
  EXPECT_EQ(Steps(), StepPlan());
  ASSERT_THAT(Join(grants[1]), IsOk());
  ASSERT_TRUE(Steps().open.has_value());
  EXPECT_EQ(Steps().open->kind, MemberChange::Kind::kJoin);
  EXPECT_THAT(Steps().open->ranks, ElementsAre(Rank{0}, Rank{1}, Rank{2}));
  EXPECT_EQ(Steps().version, c_->GetPlan()->version());
  EXPECT_EQ(c_.published()->version(), c_->GetPlan()->version());
  AnswerAll(0);
  EXPECT_FALSE(Steps().open.has_value());
  EXPECT_THAT(Members(), ElementsAre(Rank{0}, Rank{1}, Rank{2}));
  EXPECT_EQ(Steps().members.back().first_step, 0u);
  EXPECT_EQ(Steps().version, c_->GetPlan()->version());
  EXPECT_EQ(c_.published()->version(), c_->GetPlan()->version());
  const PlanVersion version = c_->GetPlan()->version();
  ASSERT_THAT(Join(grants[1]), IsOk());
  Tick();
  EXPECT_EQ(c_->GetPlan()->version(), version);
}

TEST_F(CoordinatorSteps, AChangeIsDecidedByTheFarthestNodeWhenAllHaveAnsweredToIt) {
  Train(2);
  ASSERT_THAT(Join(Open(2, 3)), IsOk());
  Answer(nodes_[0], 7);
  Answer(nodes_[2], 0);
  Lack(nodes_[1], 9, {}, Steps().changes - 1);  // The node has not heard of the change.
  ASSERT_TRUE(Steps().open.has_value());
  Answer(nodes_[1], 9);
  ASSERT_FALSE(Steps().open.has_value());
  EXPECT_THAT(Members(), ElementsAre(Rank{0}, Rank{1}, Rank{2}));
  EXPECT_EQ(Steps().members.back().first_step, 9u);
  EXPECT_THAT(Steps().At(8)->ranks, ElementsAre(Rank{0}, Rank{1}));
}

TEST_F(CoordinatorSteps, ChangesOfATableGoOneAfterTheOther) {
  Train(2);
  ASSERT_THAT(Join(Open(2, 3)), IsOk());
  ASSERT_THAT(Join(Open(3, 4)), IsOk());
  ASSERT_THAT(Join(Open(4, 5)), IsOk());
  EXPECT_THAT(Steps().open->ranks, ElementsAre(Rank{2}));
  AnswerAll(5);
  Tick();
  EXPECT_THAT(Steps().open->ranks, ElementsAre(Rank{3}, Rank{4}));
  AnswerAll(5);
  EXPECT_EQ(Members().size(), 5u);
}

TEST_F(CoordinatorSteps, ASilentRankIsClosedAtTheStepThatLacksIt) {
  Train(3);
  Lack(nodes_[0], 5, {Rank{1}}, Steps().changes);
  ASSERT_TRUE(Steps().open.has_value());
  EXPECT_EQ(Steps().open->kind, MemberChange::Kind::kClose);
  EXPECT_EQ(Steps().open->step, 5u);
  const std::uint64_t change = Steps().changes;
  AnswerAll(5);
  EXPECT_THAT(Members(), ElementsAre(Rank{0}, Rank{2}));
  EXPECT_EQ(Steps().members.back().first_step, 5u);
  // Late words: of before the change, and about a rank that is no member any more.
  Lack(nodes_[0], 5, {Rank{2}}, change - 1);
  Lack(nodes_[0], 6, {Rank{1}}, change);
  EXPECT_FALSE(Steps().open.has_value());
}

TEST_F(CoordinatorSteps, SilenceIsDecidedAtTheLowestStepFirst) {
  Train(4);
  c_.store().FailCommits(true);
  Lack(nodes_[0], 6, {Rank{3}}, Steps().changes);
  Lack(nodes_[1], 5, {Rank{1}}, Steps().changes);
  Lack(nodes_[2], 5, {Rank{0}}, Steps().changes);
  c_.store().FailCommits(false);
  Tick();
  ASSERT_TRUE(Steps().open.has_value());
  EXPECT_EQ(Steps().open->step, 5u);
  EXPECT_THAT(Steps().open->ranks, ElementsAre(Rank{0}, Rank{1}));
}

TEST_F(CoordinatorSteps, ATableThatFailsGoesOnWhenAllRanksHaveAskedAgain) {
  Create("f", OnSilence::kFail);
  const std::vector<SessionGrant> grants = Train(2, "f");
  Lack(nodes_[1], 5, {Rank{1}}, Steps("f").changes, "f");
  EXPECT_EQ(Steps("f").open->kind, MemberChange::Kind::kFail);
  ASSERT_THAT(Join(grants[0], "f"), IsOk());
  AnswerAll(5, "f");
  EXPECT_TRUE(Steps("f").members.back().fails());
  Tick();
  EXPECT_FALSE(Steps("f").open.has_value());
  ASSERT_THAT(Join(grants[1], "f"), IsOk());
  AnswerAll(5, "f");
  EXPECT_THAT(Members("f"), ElementsAre(Rank{0}, Rank{1}));
}

TEST_F(CoordinatorSteps, ARankLeavesWhenItsSessionIsClosed) {
  const std::vector<SessionGrant> grants = Train(3);
  ASSERT_THAT(c_->CloseSession(grants[1].session, grants[1].proof), IsOk());
  Tick();
  ASSERT_TRUE(Steps().open.has_value());
  EXPECT_EQ(Steps().open->kind, MemberChange::Kind::kClose);
  EXPECT_EQ(Steps().open->step, 0u);
  AnswerAll(7);
  EXPECT_THAT(Members(), ElementsAre(Rank{0}, Rank{2}));
  Tick();
  EXPECT_FALSE(Steps().open.has_value());
  EXPECT_EQ(c_.store().List("sessions/ranks/")->size(), 2u);
}

TEST_F(CoordinatorSteps, ARankLeavesWhenItsLeaseIsOver) {
  Train(1);
  for (absl::Duration lived; lived < absl::Minutes(11); lived += absl::Seconds(1)) {
    c_.Advance(absl::Seconds(1));
    AnswerAll(3);
    Tick();
  }
  EXPECT_TRUE(Members().empty());
}

TEST_F(CoordinatorSteps, ARankThatLeavesDuringAChangeLeavesAfterIt) {
  const std::vector<SessionGrant> grants = Train(2);
  ASSERT_THAT(Join(Open(2, 3)), IsOk());
  ASSERT_THAT(c_->CloseSession(grants[0].session, grants[0].proof), IsOk());
  c_.Restart();
  for (const char* const name : {"n0", "n1", "n2"}) c_.Register(name);
  AnswerAll(4);
  EXPECT_EQ(Members().size(), 3u);
  Tick();
  AnswerAll(4);
  EXPECT_THAT(Members(), ElementsAre(Rank{1}, Rank{2}));
}

TEST_F(CoordinatorSteps, ACoordinatorThatRestartsGathersTheAnswersAnew) {
  Train(2);
  ASSERT_THAT(Join(Open(2, 3)), IsOk());
  Answer(nodes_[0], 8);
  Answer(nodes_[1], 9);
  c_.Restart();
  for (const char* const name : {"n0", "n1", "n2"}) c_.Register(name);
  ASSERT_TRUE(Steps().open.has_value());
  Answer(nodes_[0], 8);
  Answer(nodes_[2], 0);
  ASSERT_TRUE(Steps().open.has_value());
  Answer(nodes_[1], 9);
  EXPECT_FALSE(Steps().open.has_value());
  EXPECT_EQ(Steps().members.back().first_step, 9u);
}

TEST_F(CoordinatorSteps, AWishIsHeardAgainAfterARestart) {
  const SessionGrant grants[] = {Open(0, 2), Open(1, 2)};
  ASSERT_THAT(Join(grants[0]), IsOk());
  c_.Restart();
  for (const char* const name : {"n0", "n1", "n2"}) c_.Register(name);
  ASSERT_THAT(Join(grants[1]), IsOk());
  EXPECT_FALSE(Steps().open.has_value());
  ASSERT_THAT(Join(grants[0]), IsOk());
  EXPECT_TRUE(Steps().open.has_value());
}

TEST_F(CoordinatorSteps, ADeadNodeHoldsAChangeUpIfItHasSlices) {
  Train(2);
  c_.Advance(absl::Seconds(10));
  ASSERT_THAT(c_.Beat(nodes_[0]), IsOk());
  Tick();  // n1, which has slices, and n2 are dead.
  ASSERT_THAT(Join(Open(2, 3)), IsOk());
  Answer(nodes_[0], 4);
  Tick();
  EXPECT_TRUE(Steps().open.has_value());
  c_.Register("n1", 2);
  HeartbeatInfo info = Info();
  info.steps = {{.table = Table().spec.id, .change = Steps().changes, .first_unmade = 6}};
  ASSERT_THAT(c_->Heartbeat(nodes_[1], 2, info, c_.now()), IsOk());
  EXPECT_FALSE(Steps().open.has_value());
  EXPECT_EQ(Steps().members.back().first_step, 6u);
}

TEST_F(CoordinatorSteps, ANodeThatGaveItsUnitsAwayAndStoppedCountsByItsLastWord) {
  Train(2);
  Answer(nodes_[2], 9);
  c_.Advance(absl::Seconds(10));
  Answer(nodes_[0], 3);
  Answer(nodes_[1], 3);
  Tick();  // n2 is dead.
  ASSERT_THAT(Join(Open(2, 3)), IsOk());
  Answer(nodes_[0], 3);
  Answer(nodes_[1], 3);
  ASSERT_FALSE(Steps().open.has_value());
  EXPECT_EQ(Steps().members.back().first_step, 9u);
}

TEST_F(CoordinatorSteps, ALiveNodeWithoutSlicesIsWaitedForUntilItDies) {
  Train(2);
  ASSERT_THAT(Join(Open(2, 3)), IsOk());
  Answer(nodes_[0], 4);
  Answer(nodes_[1], 4);
  Tick();
  EXPECT_TRUE(Steps().open.has_value());
  c_.Advance(absl::Seconds(10));
  Answer(nodes_[0], 4);
  Answer(nodes_[1], 4);
  Tick();
  EXPECT_FALSE(Steps().open.has_value());
}

TEST_F(CoordinatorSteps, ATrainerThatIsStartedAgainKeepsItsRankAMember) {
  const std::vector<SessionGrant> grants = Train(2);
  const SessionGrant next = Replace(grants[1], 1, 2, "t1");
  Tick();
  EXPECT_FALSE(Steps().open.has_value());
  EXPECT_THAT(Members(), ElementsAre(Rank{0}, Rank{1}));
  ASSERT_THAT(c_->CloseSession(next.session, next.proof), IsOk());  // Now it leaves.
  Tick();
  EXPECT_THAT(Steps().open->ranks, ElementsAre(Rank{1}));
}

TEST_F(CoordinatorSteps, ATrainerThatComesBackWithAnotherRankGivesTheOldOneUp) {
  const std::vector<SessionGrant> grants = Train(2);
  const SessionGrant next = Replace(grants[1], 2, 3, "t1");
  Tick();
  ASSERT_TRUE(Steps().open.has_value());
  EXPECT_THAT(Steps().open->ranks, ElementsAre(Rank{1}));
  ASSERT_THAT(Join(next), IsOk());
  AnswerAll(3);
  Tick();
  AnswerAll(3);
  EXPECT_THAT(Members(), ElementsAre(Rank{0}, Rank{2}));
}

TEST_F(CoordinatorSteps, ARankIsOneOpenSessions) {
  const std::vector<SessionGrant> grants = Train(2);
  const SessionGrant other = Open(1, 2, "other");
  EXPECT_THAT(Join(other), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    AllOf(HasSubstr(std::to_string(ToInt(grants[1].session))),
                                          HasSubstr("trainer t1"))));
  Create("u");
  EXPECT_THAT(Join(other, "u"), IsOk());  // Another table's ranks are other trainers.
  ASSERT_THAT(c_->CloseSession(grants[1].session, grants[1].proof), IsOk());
  EXPECT_THAT(Join(other), IsOk());
  Tick();
  EXPECT_FALSE(Steps().open.has_value()) << "the rank stays, as another session has it now";
}

TEST_F(CoordinatorSteps, WishesEndWithTheirSessionsAndTables) {
  const SessionGrant grants[] = {Open(0, 2), Open(1, 2), Open(0, 2)};
  ASSERT_THAT(Join(grants[0]), IsOk());
  ASSERT_THAT(c_->CloseSession(grants[0].session, grants[0].proof), IsOk());
  ASSERT_THAT(Join(grants[1]), IsOk());
  EXPECT_FALSE(Steps().open.has_value());
  ASSERT_THAT(c_->DropTable("t", c_.now()), IsOk());
  Tick();
  Create("t");
  ASSERT_THAT(Join(grants[2]), IsOk());
  EXPECT_FALSE(Steps().open.has_value());
  ASSERT_THAT(Join(grants[1]), IsOk());
  EXPECT_TRUE(Steps().open.has_value());
}

TEST_F(CoordinatorSteps, JoinNamesWhatIsWrong) {
  c_.CreateOn("plain", {nodes_[0], nodes_[1], nodes_[2]});
  const SessionGrant grant = Open(0, 1);
  const SessionGrant rankless = *c_->OpenSession({.client_name = "a"});
  EXPECT_THAT(Join(rankless), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank")));
  EXPECT_THAT(Join(grant, "plain"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("plain")));
  const TableId unknown[] = {Table().spec.id, TableId{77}};
  EXPECT_THAT(c_->JoinSteps(grant.session, grant.proof, unknown, c_.now()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("77")));
  EXPECT_THAT(c_->JoinSteps(grant.session, rankless.proof, {}, c_.now()),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("session_proof")));
  const std::vector<TableId> many(16'385, Table().spec.id);
  EXPECT_THAT(c_->JoinSteps(grant.session, grant.proof, many, c_.now()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("16385")));
  EXPECT_EQ(Steps(), StepPlan()) << "all or nothing";
  ASSERT_THAT(c_->CloseSession(grant.session, grant.proof), IsOk());
  EXPECT_THAT(Join(grant), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("closed")));
}

TEST_F(CoordinatorSteps, ARankIsStatedWholeAndBelowRanks) {
  const auto open = [&](std::optional<Rank> rank, std::uint32_t ranks) {
    return c_->OpenSession({.rank = rank, .ranks = ranks});
  };
  EXPECT_THAT(open(Rank{0}, 0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("both")));
  EXPECT_THAT(open({}, 2), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no rank")));
  EXPECT_THAT(open(Rank{2}, 2), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 2")));
  EXPECT_THAT(open(Rank{0}, 4097), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(open(Rank{4095}, 4096), IsOk());
  EXPECT_THAT(open({}, 0), IsOk());
}

TEST_F(CoordinatorSteps, OlderPlansHaveTheirMembersAgain) {
  const StepPlan before = Steps();
  const PlanVersion version = c_->GetPlan()->version();
  Train(2);
  const auto old = PlanAt(c_.store(), *c_->GetPlan(), version);
  ASSERT_THAT(old, IsOk());
  EXPECT_EQ(old->FindTable("t")->steps, before);
}

TEST_F(CoordinatorSteps, AStoreThatGoesBackTakesMembersFromItsNodes) {
  const std::vector<StateEntry> copy = *c_.store().List("");
  Train(2);
  const PlanPtr seen = c_->GetPlan();
  const StepPlan steps = Steps();
  c_.RestoreStore(copy);
  EXPECT_EQ(Steps(), StepPlan());
  for (const char* const name : {"n0", "n1", "n2"}) {
    NodeRegistration registration = CoordinatorHarness::Registration(name);
    registration.cluster_id = seen->cluster_id();
    registration.installed = seen;
    ASSERT_THAT(c_->RegisterNode(registration, c_.now()), IsOk());
  }
  EXPECT_EQ(Steps(), steps);
}

}  // namespace
}  // namespace embla
