#include <set>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using absl::StatusCode;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two live nodes of two CPU devices each.
class CoordinatorTablesTest : public ::testing::Test {
 protected:
  static void ExpectError(const absl::Status& status, StatusCode code, const std::string& says) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
  void BeatBoth() {
    ASSERT_THAT(c_.Beat(n0_), IsOk());
    ASSERT_THAT(c_.Beat(n1_), IsOk());
  }

  CoordinatorHarness c_;
  const NodeId n0_ = c_.Register("n0");
  const NodeId n1_ = c_.Register("n1");
};

using CoordinatorCreateTable = CoordinatorTablesTest;

TEST_F(CoordinatorCreateTable, CompletesWhenEveryHolderHasInstalledIt) {
  const ChangeId change = *c_.Create("t");
  const PlanPtr plan = c_.published();
  ASSERT_NE(plan->FindTable("t"), nullptr);
  EXPECT_EQ(plan->FindTable("t")->primary().size(), 4u);
  EXPECT_THAT(c_->ChangeState(change)->waiting_for, ElementsAre("n0", "n1"));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  EXPECT_TRUE(c_.Outcomes().empty());
  EXPECT_THAT(c_->ChangeState(change)->waiting_for, ElementsAre("n1"));
  ASSERT_THAT(c_.Install(n1_), IsOk());
  const CompleteChange outcome = c_.Outcomes().at(change);
  EXPECT_THAT(outcome.status, IsOk());
  EXPECT_EQ(*outcome.tables.front().table, *plan->FindTable("t"));
  EXPECT_NE(outcome.tables.front().table->spec.id, TableId{});
  EXPECT_EQ(outcome.plan_version, plan->version());
  EXPECT_EQ(c_->ChangeState(change).status().code(), StatusCode::kNotFound);
}

TEST_F(CoordinatorCreateTable, SaysWhomItLeftOut) {
  c_.Advance(absl::Seconds(10));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  c_->Tick(c_.now());
  const ChangeId change = *c_.Create("t");
  ASSERT_THAT(c_.Install(n0_), IsOk());
  const CompleteChange outcome = c_.Outcomes().at(change);
  ASSERT_THAT(outcome.status, IsOk());
  EXPECT_THAT(outcome.left_out, ElementsAre("node n1: down"));
}

TEST_F(CoordinatorCreateTable, WaitsForHoldersOnly) {
  ASSERT_THAT(c_.Create("t", ShardingType::kTableWise), IsOk());
  ASSERT_THAT(c_.Install(n0_), IsOk());
  EXPECT_EQ(c_.Outcomes().size(), 1u);
}

TEST_F(CoordinatorCreateTable, IsRolledBackWhenANodeCannotInstallIt) {
  const ChangeId change = *c_.Create("t");
  ASSERT_THAT(c_.Install(n0_), IsOk());
  HeartbeatInfo failed;
  failed.failed_plan_version = c_->GetPlan()->version();
  failed.failure = absl::ResourceExhaustedError("no memory for 64000 bytes");
  ASSERT_THAT(c_->Heartbeat(n1_, 1, failed, c_.now()), IsOk());
  ExpectError(c_.Outcomes().at(change).status, StatusCode::kResourceExhausted,
              "node n1 could not install table t: no memory for 64000 bytes");
  EXPECT_EQ(c_->GetPlan()->FindTable("t"), nullptr);
  EXPECT_EQ(c_.published()->version(), PlanVersion{5});
  // The same report, repeated, does not harm the next creation.
  const ChangeId again = *c_.Create("t");
  ASSERT_THAT(c_->Heartbeat(n1_, 1, failed, c_.now()), IsOk());
  EXPECT_TRUE(c_.Outcomes().empty());
  ASSERT_THAT(c_.Install(n0_), IsOk());
  ASSERT_THAT(c_.Install(n1_), IsOk());
  EXPECT_THAT(c_.Outcomes().at(again).status, IsOk());
  EXPECT_EQ(c_->GetPlan()->FindTable("t")->spec.id, TableId{2});  // Ids are never reused.
}

TEST_F(CoordinatorCreateTable, IsRolledBackWhenANodeDies) {
  const ChangeId change = *c_.Create("t");
  c_->NodeDisconnected(n1_, 1, c_.now());
  EXPECT_TRUE(c_.Outcomes().empty());  // It may come back.
  c_.Advance(absl::Seconds(4));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  c_.Advance(absl::Seconds(1));
  c_->Tick(c_.now());
  ExpectError(c_.Outcomes().at(change).status, StatusCode::kUnavailable, "node n1 at n1:7000");
  EXPECT_EQ(c_->GetPlan()->FindTable("t"), nullptr);
}

TEST_F(CoordinatorCreateTable, SurvivesARestartOfANode) {
  const ChangeId change = *c_.Create("t");
  ASSERT_THAT(c_.Install(n0_), IsOk());
  c_->NodeDisconnected(n1_, 1, c_.now());
  c_.Register("n1", 2);
  EXPECT_TRUE(c_.Outcomes().empty());
  ASSERT_THAT(c_.Install(n1_, 2), IsOk());
  EXPECT_THAT(c_.Outcomes().at(change).status, IsOk());
}

TEST_F(CoordinatorCreateTable, IsRolledBackAtItsDeadlineNamingWhoIsSlow) {
  const auto change =
      c_->StartCreateTable(CoordinatorHarness::Spec("t"), {.sharding = ShardingType::kRowWise},
                           absl::Seconds(3), c_.now());
  ASSERT_THAT(c_.Install(n0_), IsOk());
  c_.Advance(absl::Seconds(3));
  ASSERT_THAT(c_.Beat(n1_), IsOk());
  ExpectError(c_.Outcomes().at(*change).status, StatusCode::kDeadlineExceeded,
              "node n1 did not install table t in time; nothing was created");
  EXPECT_EQ(c_->GetPlan()->FindTable("t"), nullptr);
}

TEST_F(CoordinatorCreateTable, RunsOneAtATimeInOrder) {
  const ChangeId first = *c_.Create("a");
  const ChangeId second = *c_.Create("b");
  EXPECT_TRUE(c_->ChangeState(second)->queued);
  EXPECT_EQ(c_->GetPlan()->FindTable("b"), nullptr);
  ASSERT_THAT(c_.Install(n0_), IsOk());
  ASSERT_THAT(c_.Install(n1_), IsOk());
  EXPECT_TRUE(c_.Outcomes().contains(first));
  EXPECT_NE(c_->GetPlan()->FindTable("b"), nullptr);
  ASSERT_THAT(c_.Install(n0_), IsOk());
  ASSERT_THAT(c_.Install(n1_), IsOk());
  EXPECT_THAT(c_.Outcomes().at(second).status, IsOk());
}

TEST_F(CoordinatorCreateTable, AFailedOneDoesNotStopTheNext) {
  const ChangeId first = *c_.Create("a");
  const ChangeId second = *c_.Create("b");
  HeartbeatInfo failed;
  failed.failed_plan_version = c_->GetPlan()->version();
  failed.failure = absl::InternalError("bug");
  ASSERT_THAT(c_->Heartbeat(n0_, 1, failed, c_.now()), IsOk());
  EXPECT_THAT(c_.Outcomes().at(first).status, StatusIs(StatusCode::kInternal, HasSubstr("bug")));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  ASSERT_THAT(c_.Install(n1_), IsOk());
  EXPECT_THAT(c_.Outcomes().at(second).status, IsOk());
}

TEST_F(CoordinatorCreateTable, AQueuedOneCanRunOutOfTimeOrOfMemory) {
  ASSERT_THAT(c_.Create("a"), IsOk());
  const auto late =
      c_->StartCreateTable(CoordinatorHarness::Spec("late"), {}, absl::Seconds(2), c_.now());
  const auto large =
      c_->StartCreateTable(CoordinatorHarness::Spec("large", 1'000'000'000), {}, {}, c_.now());
  c_.Advance(absl::Seconds(2));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  ASSERT_THAT(c_.Install(n1_), IsOk());
  const auto outcomes = c_.Outcomes();
  ExpectError(outcomes.at(*late).status, StatusCode::kDeadlineExceeded, "table late");
  ExpectError(outcomes.at(*large).status, StatusCode::kResourceExhausted, "63.3 GiB on device 0");
}

TEST_F(CoordinatorCreateTable, TheQueueHasALimit) {
  for (int i = 0; i <= 1024; ++i) ASSERT_THAT(c_.Create("t" + std::to_string(i)), IsOk());
  ExpectError(c_.Create("more").status(), StatusCode::kResourceExhausted, "1024");
}

TEST_F(CoordinatorCreateTable, RefusesNamesInUseAndMalformedSpecs) {
  ASSERT_THAT(c_.Create("a"), IsOk());
  ASSERT_THAT(c_.Create("b"), IsOk());  // Queued.
  EXPECT_EQ(c_.Create("a").status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(c_.Create("b").status().code(), StatusCode::kAlreadyExists);
  TableSpec spec = CoordinatorHarness::Spec("c");
  spec.id = TableId{5};
  ExpectError(c_->StartCreateTable(spec, {}, {}, c_.now()).status(), StatusCode::kInvalidArgument,
              "the coordinator gives it");
  spec = CoordinatorHarness::Spec("c");
  spec.dim = 0;
  ExpectError(c_->StartCreateTable(spec, {}, {}, c_.now()).status(), StatusCode::kInvalidArgument,
              "dim");
  ExpectError(
      c_->StartCreateTable(CoordinatorHarness::Spec("c"), {}, absl::Seconds(-1), c_.now()).status(),
      StatusCode::kInvalidArgument, "wait");
}

TEST_F(CoordinatorCreateTable, UsesLiveNodesOnlyAndSaysWhichNamedOneIsDown) {
  c_->NodeDisconnected(n1_, 1, c_.now());
  ASSERT_THAT(c_.Create("t"), IsOk());
  EXPECT_EQ(HoldersOf(*c_->GetPlan()->FindTable("t")), std::set<NodeId>{n0_});
  ASSERT_THAT(c_.Install(n0_), IsOk());
  ExpectError(
      c_->StartCreateTable(CoordinatorHarness::Spec("u"), {.nodes = {"n0", "n1"}}, {}, c_.now())
          .status(),
      StatusCode::kUnavailable, "node n1 at n1:7000 is down");
  ExpectError(
      c_->StartCreateTable(CoordinatorHarness::Spec("u"), {.nodes = {"n9"}}, {}, c_.now()).status(),
      StatusCode::kInvalidArgument, "n9");
  c_->NodeDisconnected(n0_, 1, c_.now());
  ExpectError(c_.Create("u").status(), StatusCode::kUnavailable, "no node is live, of 2 known");
}

TEST_F(CoordinatorCreateTable, UsesNodesWhoseDevicesServeAndSaysWhyANamedOneDoesNot) {
  HeartbeatInfo info;
  info.device_stopped = {"GPU 3 has stopped", ""};
  ASSERT_THAT(c_->Heartbeat(n1_, 1, info, c_.now()), IsOk());
  ASSERT_THAT(c_.Create("t"), IsOk());
  EXPECT_EQ(HoldersOf(*c_->GetPlan()->FindTable("t")), std::set<NodeId>{n0_});
  ASSERT_THAT(c_.Install(n0_), IsOk());
  const PlacementRequest on_n1{.nodes = {"n1"}};
  ExpectError(c_->StartCreateTable(CoordinatorHarness::Spec("u"), on_n1, {}, c_.now()).status(),
              StatusCode::kFailedPrecondition, "device 0: GPU 3 has stopped; restart it first");
  c_->NodeDisconnected(n0_, 1, c_.now());
  ExpectError(c_.Create("u").status(), StatusCode::kUnavailable,
              "no node is live with all its devices, of 2 known; restart node n1: device 0: GPU 3");
}

TEST_F(CoordinatorCreateTable, GoesOnAfterARestartOfTheCoordinator) {
  ASSERT_THAT(c_.Create("t"), IsOk());
  c_.Restart();
  ASSERT_NE(c_->GetPlan()->FindTable("t"), nullptr);
  EXPECT_EQ(c_->DropTable("t", c_.now()).status().code(), StatusCode::kUnavailable);
  c_.Register("n0");
  c_.Register("n1");
  EXPECT_EQ(c_->DropTable("t", c_.now()).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_THAT(c_.Install(n0_), IsOk());
  ASSERT_THAT(c_.Install(n1_), IsOk());
  EXPECT_TRUE(c_.Outcomes().empty());  // Nobody waits any more.
  EXPECT_THAT(c_->DropTable("t", c_.now()), IsOk());
}

TEST_F(CoordinatorCreateTable, IsRolledBackAfterARestartWhenANodeStaysAway) {
  ASSERT_THAT(c_.Create("t"), IsOk());
  c_.Restart();
  c_.Register("n0");
  ASSERT_THAT(c_.Install(n0_), IsOk());
  c_.Advance(absl::Seconds(5));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  c_->Tick(c_.now());
  EXPECT_EQ(c_->GetPlan()->FindTable("t"), nullptr);
  c_.Restart();
  EXPECT_EQ(c_->GetPlan()->FindTable("t"), nullptr);
}

using CoordinatorDropTable = CoordinatorTablesTest;

TEST_F(CoordinatorDropTable, PublishesAPlanWithoutIt) {
  c_.CreateOn("t", {n0_, n1_});
  EXPECT_EQ(*c_->DropTable("t", c_.now()), PlanVersion{5});
  EXPECT_EQ(c_.published()->FindTable("t"), nullptr);
  ExpectError(c_->DropTable("t", c_.now()).status(), StatusCode::kNotFound, "\"t\"");
  c_.Restart();
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{5});
}

using CoordinatorSetTable = CoordinatorTablesTest;

TEST_F(CoordinatorSetTable, PublishesTheNewValuesAndKeepsThem) {
  c_.CreateOn("t", {n0_, n1_});
  const auto changed =
      c_->SetTable("t", {{"learning_rate", "0.5"}, {"rounding", "stochastic"}}, c_.now());
  ASSERT_THAT(changed, IsOk());
  EXPECT_EQ(changed->table.spec.optimizer.learning_rate, 0.5f);
  EXPECT_EQ(changed->plan_version, PlanVersion{5});
  EXPECT_EQ(*c_.published()->FindTable("t"), changed->table);
  c_.Restart();
  EXPECT_EQ(*c_->GetPlan()->FindTable("t"), changed->table);
}

TEST_F(CoordinatorSetTable, ValuesThatAreThereAlreadyMakeNoNewVersion) {
  c_.CreateOn("t", {n0_, n1_});
  EXPECT_EQ(c_->SetTable("t", {{"learning_rate", "0.01"}}, c_.now())->plan_version, PlanVersion{4});
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{4});
}

TEST_F(CoordinatorSetTable, RefusesUnknownTablesKeysAndWhatTheTilingDoesNotAllow) {
  EXPECT_EQ(c_->SetTable("t", {}, c_.now()).status().code(), StatusCode::kNotFound);
  c_.CreateOn("t", {n0_, n1_}, {.sharding = ShardingType::kColumnWise, .min_partition = 4});
  ExpectError(c_->SetTable("t", {{"dim", "8"}}, c_.now()).status(), StatusCode::kInvalidArgument,
              "allowed are learning_rate");
  ExpectError(
      c_->SetTable("t", {{"weight_decay", "0.1"}, {"weight_decay_mode", "l2"}}, c_.now()).status(),
      StatusCode::kInvalidArgument, "decoupled");
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{4});
  ASSERT_THAT(c_.Create("pending"), IsOk());
  EXPECT_EQ(c_->SetTable("pending", {{"eps", "1"}}, c_.now()).status().code(),
            StatusCode::kFailedPrecondition);
}

using CoordinatorPlanTable = CoordinatorTablesTest;

TEST_F(CoordinatorPlanTable, PlansOnAStatedTopologyAndChangesNothing) {
  const auto table = PlanTableOf(
      *c_, CoordinatorHarness::Spec("big", 1'600'000'000), {.sharding = ShardingType::kRowWise},
      {.nodes = 2, .devices_per_node = 8, .device_memory_bytes = std::int64_t{80} << 30});
  ASSERT_THAT(table, IsOk());
  ASSERT_EQ(table->primary().size(), 16u);
  for (const Slice& slice : table->primary()) EXPECT_EQ(slice.rows(), 100'000'000);
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{3});
}

TEST_F(CoordinatorPlanTable, PlansOnTheLiveClusterAsCreateWould) {
  const PlacementRequest request{.sharding = ShardingType::kRowWise};
  const auto planned = PlanTableOf(*c_, CoordinatorHarness::Spec("t"), request, {});
  ASSERT_THAT(planned, IsOk());
  ASSERT_THAT(c_.Create("t"), IsOk());
  EXPECT_EQ(planned->replicas, c_->GetPlan()->FindTable("t")->replicas);
}

TEST_F(CoordinatorPlanTable, RefusesTopologiesThatCannotBe) {
  const StatedTopology bad[] = {{.nodes = 2, .devices_per_node = 0, .device_memory_bytes = 1},
                                {.nodes = 4097, .devices_per_node = 1, .device_memory_bytes = 1},
                                {.nodes = 4096, .devices_per_node = 17, .device_memory_bytes = 1},
                                {.nodes = 2, .devices_per_node = 2, .device_memory_bytes = 0}};
  for (const StatedTopology& topology : bad) {
    EXPECT_EQ(PlanTableOf(*c_, CoordinatorHarness::Spec("t"), {}, topology).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_F(CoordinatorTablesTest, AutoChoosesATypeBesideTheTablesThatAreThere) {
  const auto planned = PlanTableOf(*c_, CoordinatorHarness::Spec("t"), {.automatic = true}, {});
  ASSERT_THAT(planned, IsOk());
  EXPECT_THAT(planned->Validate(), IsOk());
  const auto stated =
      PlanTableOf(*c_, CoordinatorHarness::Spec("t"), {.automatic = true},
                  {.nodes = 2, .devices_per_node = 2, .device_memory_bytes = 1 << 30});
  ASSERT_THAT(stated, IsOk());
}

}  // namespace
}  // namespace embla
