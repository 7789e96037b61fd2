// Nodes that are lost: what they had begins anew or goes on elsewhere, whoever waits for them waits
// no more, and they do not come back.
#include <set>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/copy_change.h"
#include "server/coordinator/move_jobs.h"
#include "server/coordinator/move_world_test_support.h"
#include "server/migration/copy_orders.h"

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// A row_wise table of 24 units on nodes a and b, and node c with nothing.
class ForgetNodeTest : public ::testing::Test {
 protected:
  ForgetNodeTest() : world_(7) {
    world_.AddNode("a");
    world_.AddNode("b");
    world_.AddTable("t");
    world_.AddNode("c");
    world_.CoordinatorTick(absl::ZeroDuration());
  }

  Coordinator& coordinator() { return world_.coordinator(); }
  absl::Time now() { return world_.harness().now(); }
  NodeId IdOf(const std::string& name) { return *world_.FindNode(name); }
  void Kill(const std::string& name) {
    world_.Kill(IdOf(name));
    for (int i = 0; i < 8; ++i) world_.CoordinatorTick(absl::Seconds(1));
  }
  JobView Get(std::uint64_t id) { return *coordinator().GetJob(id, now()); }

  MoveWorld world_;
};

TEST_F(ForgetNodeTest, WithoutTheWordWhatWouldBeLostIsListed) {
  Kill("b");
  const auto refused = world_.Forget("b", /*lose_rows=*/false);
  EXPECT_THAT(refused, StatusIs(kRefused, HasSubstr("500 rows of table t in 12 units")));
  const auto dry =
      coordinator().ForgetNode({.node = "b", .lose_rows = true, .dry_run = true}, now());
  ASSERT_THAT(dry, IsOk());
  EXPECT_FALSE(dry->job.has_value());
  ASSERT_EQ(dry->lost.size(), 1u);
  EXPECT_EQ(dry->lost[0].rows, 500u);
  EXPECT_EQ(dry->lost[0].units, 12u);
  EXPECT_NE(coordinator().GetPlan()->FindNode("b"), nullptr);
}

TEST_F(ForgetNodeTest, ItsUnitsBeginAnewWithNewEpochsWhateverDiesMeanwhile) {
  const NodeId lost = IdOf("b");
  Kill("b");
  const auto forgotten = world_.Forget("b", /*lose_rows=*/true);
  ASSERT_THAT(forgotten, IsOk());
  const std::uint64_t job = forgotten->job->job.id;
  ASSERT_TRUE(world_.RunToEnd(job, 400000));
  EXPECT_EQ(Get(job).job.state, JobState::kDone) << Get(job).job.error;
  EXPECT_EQ(Get(job).job.units_moved, 12u);
  world_.Settle();
  world_.Check();
  world_.CheckAtRest();
  EXPECT_EQ(coordinator().GetPlan()->FindNode("b"), nullptr);
  int anew = 0;
  const auto units = coordinator().ListUnits("t");
  ASSERT_THAT(units, IsOk());
  for (const auto& [unit, record] : *units) {
    EXPECT_NE(record.owner, lost);
    anew += record.epoch > UnitEpoch{1} ? 1 : 0;
  }
  EXPECT_EQ(anew, 12);
}

TEST_F(ForgetNodeTest, RowsAreCountedAndTheNodeIsNowhereAnyMore) {
  Kill("b");
  ASSERT_THAT(world_.Forget("b", /*lose_rows=*/true), IsOk());
  EXPECT_EQ(coordinator().Status().rows_lost, 500u);
  ASSERT_TRUE(world_.RunToEnd(1, 400000));
  EXPECT_EQ(coordinator().Status().nodes_total, 2u);
  EXPECT_EQ(coordinator().Status().nodes_live, 2u);
  EXPECT_EQ(coordinator().Nodes().size(), 2u);
  EXPECT_THAT(PlanAt(coordinator().store(), *coordinator().GetPlan(), PlanVersion{2}),
              IsOk());  // The history knows it.
}

TEST_F(ForgetNodeTest, ItsDirectoryIsRefusedAndItsNameIsFree) {
  const NodeId lost = IdOf("b");
  Kill("b");
  ASSERT_THAT(world_.Forget("b", /*lose_rows=*/true), IsOk());
  NodeRegistration back = CoordinatorHarness::Registration("b", 77);
  EXPECT_THAT(coordinator().RegisterNode(back, now()),
              StatusIs(kRefused, HasSubstr("is being forgotten")));
  EXPECT_THAT(coordinator().Heartbeat(lost, 1, {}, now()), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_TRUE(world_.RunToEnd(1, 400000));
  back.past.node = lost;
  EXPECT_THAT(coordinator().RegisterNode(back, now()),
              StatusIs(kRefused, HasSubstr("was forgotten with its rows")));
  world_.RestartCoordinator();
  EXPECT_THAT(coordinator().RegisterNode(back, now()), StatusIs(kRefused));
  EXPECT_EQ(coordinator().GetPlan()->FindNode("b"), nullptr);
  back.past = {};
  const auto fresh = coordinator().RegisterNode(back, now());
  ASSERT_THAT(fresh, IsOk());
  EXPECT_NE(*fresh, lost);
}

TEST_F(ForgetNodeTest, ALiveNodeIsRefusedAndOneWithoutRowsJustGoes) {
  EXPECT_THAT(world_.Forget("c", false), StatusIs(kRefused, HasSubstr("node drain c")));
  EXPECT_THAT(coordinator().ForgetNode({.node = "nope"}, now()),
              StatusIs(absl::StatusCode::kNotFound));
  coordinator().NodeDisconnected(IdOf("a"), 1, now());
  EXPECT_THAT(world_.Forget("a", true), StatusIs(kRefused, HasSubstr("when it is dead")));
  coordinator().NodeDisconnected(IdOf("c"), 1, now());
  ASSERT_THAT(world_.Forget("c", false), IsOk());
  world_.CoordinatorTick(absl::ZeroDuration());
  EXPECT_EQ(coordinator().GetPlan()->FindNode("c"), nullptr);
  EXPECT_EQ(Get(1).job.state, JobState::kDone);
}

TEST_F(ForgetNodeTest, AJobThatNeedsTheNodeEndsFirst) {
  ASSERT_THAT(coordinator().StartJob({.goal = ReshardGoal{"t", 6}}, now()), IsOk());
  world_.TakeEffects();
  for (int i = 0; i < 300; ++i) world_.Step();
  Kill("c");
  ASSERT_FALSE(IsOver(Get(1).job.state));
  const auto forgotten = world_.Forget("c", /*lose_rows=*/true);
  ASSERT_THAT(forgotten, IsOk());
  ASSERT_TRUE(world_.RunToEnd(forgotten->job->job.id, 400000));
  EXPECT_EQ(Get(1).job.state, JobState::kFailed);
  EXPECT_THAT(Get(1).job.error, HasSubstr("node c is forgotten"));
  EXPECT_EQ(Get(2).job.state, JobState::kDone) << Get(2).job.error;
  world_.Settle();
  world_.Check();
  world_.CheckAtRest();
}

TEST_F(ForgetNodeTest, WhatCannotBePlannedLetsTheNodeComeBack) {
  Kill("b");
  world_.Kill(IdOf("a"));
  world_.Kill(IdOf("c"));
  for (int i = 0; i < 8; ++i) world_.CoordinatorTick(absl::Seconds(1));
  ASSERT_THAT(coordinator().ForgetNode({.node = "b", .lose_rows = true}, now()), IsOk());
  EXPECT_EQ(Get(1).job.state, JobState::kFailed);
  EXPECT_EQ(coordinator().Status().rows_lost, 0u);
  world_.CoordinatorTick(absl::Seconds(1));
  EXPECT_THAT(coordinator().RegisterNode(CoordinatorHarness::Registration("b", 5), now()), IsOk());
}

TEST_F(ForgetNodeTest, ATakeoverOfATrainerDoesWithoutIt) {
  const SessionRequest first{.trainer = "w", .client_nonce = 1};
  const auto held = coordinator().OpenSession(first);
  ASSERT_THAT(held, IsOk());
  Kill("b");
  const SessionRequest next{.trainer = "w", .client_nonce = 2, .replaces = held->session};
  EXPECT_THAT(coordinator().OpenSession(next),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("are not: b")));
  ASSERT_THAT(world_.Forget("b", /*lose_rows=*/true), IsOk());
  EXPECT_THAT(coordinator().OpenSession(next),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("refuse it: a, c;")));
  HeartbeatInfo info;
  info.plan_version = coordinator().GetPlan()->version();
  coordinator().Tick(now());
  for (const Effect& effect : coordinator().TakeEffects()) {
    const auto* const sessions = std::get_if<PublishSessions>(&effect);
    if (sessions != nullptr) info.sessions_heard = sessions->news.number;
  }
  ASSERT_THAT(coordinator().Heartbeat(IdOf("a"), 1, info, now()), IsOk());
  ASSERT_THAT(coordinator().Heartbeat(IdOf("c"), 1, info, now()), IsOk());
  EXPECT_THAT(coordinator().OpenSession(next), IsOk());
}

// A data_parallel table with a copy on each of three nodes. Nodes say of their copies what
// `says_` says, else what the plan does.
class ForgetCopiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b", "c"}) nodes_.push_back(c_.Register(name));
    c_.CreateOn("t", nodes_, {.sharding = ShardingType::kDataParallel});
  }
  std::vector<NodeId> Copies() {
    std::vector<NodeId> nodes;
    for (const DeviceId device : CopiesOf(*c_->GetPlan()->FindTable("t"))) {
      nodes.push_back(device.node);
    }
    return nodes;
  }
  void Turn() {
    c_.Advance(absl::Milliseconds(500));
    for (const NodeId node : nodes_) {
      if (dead_.contains(node)) continue;
      ASSERT_THAT(c_.Install(node), IsOk());
    }
    c_->Tick(c_.now());
    for (Effect& effect : c_->TakeEffects()) {
      const auto* const orders = std::get_if<SendOrders>(&effect);
      if (orders == nullptr || dead_.contains(orders->node)) continue;
      for (const UnitOrder& order : orders->orders) Answer(orders->node, order);
    }
  }
  void Answer(NodeId node, const UnitOrder& order) {
    UnitReport::Kind kind = kCopyServes;
    if (Copies().front() == node) kind = kCopyLeads;
    if (says_.contains(node)) kind = says_[node];
    if (order.source_is_lost && Copies().front() == node) {
      forced_ = node;
      kind = kCopyLeads;
    }
    const UnitReport reports[] = {AnswerAboutCopy(order.unit.table, PlanOf(order), kind)};
    c_->OnMoveReports(node, reports, c_.now());
  }
  NodeId Lose(std::size_t copy) {
    const NodeId node = Copies()[copy];
    dead_.insert(node);
    for (int i = 0; i < 15; ++i) Turn();
    return node;
  }
  absl::StatusOr<ForgottenNode> Forget(NodeId node, bool lose_rows) {
    return c_->ForgetNode({.node = c_->GetPlan()->FindNode(node)->name, .lose_rows = lose_rows},
                          c_.now());
  }
  JobView Job() { return c_->ListJobs(c_.now()).front(); }

  CoordinatorHarness c_;
  std::vector<NodeId> nodes_;
  std::set<NodeId> dead_;
  std::map<NodeId, UnitReport::Kind> says_;
  NodeId forced_{};
};

TEST_F(ForgetCopiesTest, AReplicaJustGoes) {
  const NodeId lost = Lose(2);
  ASSERT_THAT(Forget(lost, false), IsOk());
  for (int i = 0; i < 5; ++i) Turn();
  EXPECT_EQ(Job().job.state, JobState::kDone) << Job().job.error;
  EXPECT_EQ(Copies().size(), 2u);
  EXPECT_EQ(c_->GetPlan()->FindNode(lost), nullptr);
}

TEST_F(ForgetCopiesTest, OfThePrimaryACopyThatHasEverythingInherits) {
  const NodeId heir = Copies()[2];
  says_[Copies()[1]] = kCopyOnItsWay;
  const NodeId lost = Lose(0);
  ASSERT_THAT(Forget(lost, false), IsOk());
  for (int i = 0; i < 3; ++i) Turn();
  c_.Restart();
  for (const NodeId node : nodes_) {
    if (!dead_.contains(node)) c_.Register(c_->GetPlan()->FindNode(node)->name);
  }
  for (int i = 0; i < 30; ++i) Turn();
  EXPECT_EQ(Job().job.state, JobState::kDone) << Job().job.error;
  EXPECT_EQ(Copies().front(), heir);
  EXPECT_EQ(Copies().size(), 2u);
  EXPECT_EQ(forced_, NodeId{});
}

TEST_F(ForgetCopiesTest, AnHeirThatHasLostTheRowsIsReplaced) {
  const NodeId first = Copies()[1];
  const NodeId second = Copies()[2];
  says_[second] = kCopyOnItsWay;
  const NodeId lost = Lose(0);
  ASSERT_THAT(Forget(lost, false), IsOk());
  while (Copies().front() != first) Turn();
  says_ = {{first, kCopyOnItsWay}};
  for (int i = 0; i < 40; ++i) Turn();
  EXPECT_EQ(Copies(), (std::vector<NodeId>{second, first}));
  EXPECT_EQ(Job().job.state, JobState::kDone) << Job().job.error;
}

TEST_F(ForgetCopiesTest, WhereNoneHasEverythingTheOperatorDecides) {
  says_ = {{Copies()[1], kCopyOnItsWay}, {Copies()[2], kCopyOnItsWay}};
  const NodeId lost = Lose(0);
  ASSERT_THAT(Forget(lost, false), IsOk());
  for (int i = 0; i < 40; ++i) Turn();
  EXPECT_EQ(Job().job.state, JobState::kFailed);
  EXPECT_THAT(Job().job.error, HasSubstr("no copy of table t that is left is known to have"));
  EXPECT_EQ(Copies().front(), lost);
  ASSERT_THAT(Forget(lost, true), IsOk());
  for (int i = 0; i < 60; ++i) Turn();
  EXPECT_EQ(Job().job.state, JobState::kDone) << Job().job.error;
  EXPECT_EQ(Copies().front(), forced_);
  EXPECT_NE(forced_, NodeId{});
}

TEST_F(ForgetCopiesTest, TheLastCopyBeginsAnew) {
  says_ = {{Copies()[1], kCopyGone}, {Copies()[2], kCopyGone}};
  ASSERT_THAT(c_->StartJob({.goal = ReshardGoal{"t", 1}}, c_.now()), IsOk());
  for (int i = 0; i < 20; ++i) Turn();
  ASSERT_EQ(Copies().size(), 1u);
  says_.clear();
  const NodeId lost = Lose(0);
  EXPECT_THAT(Forget(lost, false), StatusIs(kRefused, HasSubstr("1000 rows of table t")));
  ASSERT_THAT(Forget(lost, true), IsOk());
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_EQ(Job().job.state, JobState::kDone) << Job().job.error;
  EXPECT_EQ(Copies().size(), 1u);
  EXPECT_NE(Copies().front(), lost);
}

}  // namespace
}  // namespace embla
