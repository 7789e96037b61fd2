// Tables that are created together.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"
#include "server/coordinator/plan_history.h"

namespace embla {
namespace {

using absl::StatusCode;
using embla::testing::IsOk;
using embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Two live nodes of two CPU devices of 1 GiB each.
class CoordinatorCreateTables : public ::testing::Test {
 protected:
  static planner::TableToPlace Wanted(const std::string& name, std::int64_t rows = 1000,
                                      ShardingType sharding = ShardingType::kRowWise) {
    return {CoordinatorHarness::Spec(name, rows), {.sharding = sharding}};
  }
  static planner::TableToPlace Automatic(const std::string& name, std::int64_t rows) {
    return {CoordinatorHarness::Spec(name, rows), {.automatic = true}};
  }
  static CreateRequest Request(std::vector<planner::TableToPlace> tables,
                               bool if_not_exists = false) {
    return {.tables = std::move(tables), .if_not_exists = if_not_exists};
  }
  absl::StatusOr<ChangeId> Start(CreateRequest request) {
    return c_->StartCreateTables(std::move(request), c_.now());
  }
  void InstallBoth() {
    ASSERT_THAT(c_.Install(n0_), IsOk());
    ASSERT_THAT(c_.Install(n1_), IsOk());
  }
  absl::Status Fail(NodeId node, const absl::Status& failure) {
    HeartbeatInfo failed;
    failed.failed_plan_version = c_->GetPlan()->version();
    failed.failure = failure;
    return c_->Heartbeat(node, 1, failed, c_.now());
  }

  CoordinatorHarness c_;
  const NodeId n0_ = c_.Register("n0");
  const NodeId n1_ = c_.Register("n1");
};

TEST_F(CoordinatorCreateTables, OneVersionOfThePlanBringsAllOfThem) {
  const PlanVersion before = c_->GetPlan()->version();
  const auto change = Start(Request({Wanted("a"), Wanted("b"), Wanted("c")}));
  ASSERT_THAT(change.status(), IsOk());
  EXPECT_EQ(ToInt(c_->GetPlan()->version()), ToInt(before) + 1);
  EXPECT_EQ(c_->GetPlan()->tables().size(), 3u);
  EXPECT_THAT(c_->ChangeState(*change)->waiting_for, ElementsAre("n0", "n1"));
  EXPECT_EQ(c_->ChangeState(*change)->nodes, 2u);
  InstallBoth();
  const CompleteChange outcome = c_.Outcomes().at(*change);
  ASSERT_THAT(outcome.status, IsOk());
  ASSERT_EQ(outcome.tables.size(), 3u);
  EXPECT_EQ(outcome.tables[1].table->spec.name, "b");
  EXPECT_FALSE(outcome.tables[1].existed);
  const auto history = ReadHistory(c_->store(), 1);
  ASSERT_THAT(history.status(), IsOk());
  EXPECT_EQ(history->front().cause, "tables a, b, c created");
  EXPECT_EQ(PlanAt(c_->store(), *c_->GetPlan(), before)->tables().size(), 0u);
}

TEST_F(CoordinatorCreateTables, ANodeThatCannotHoldOneRefusesAll) {
  const auto change = Start(Request({Wanted("a"), Wanted("b"), Wanted("c"), Wanted("d")}));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  const PlanVersion created = c_->GetPlan()->version();
  ASSERT_THAT(Fail(n1_, absl::ResourceExhaustedError("table b: no memory for 64000 bytes")),
              IsOk());
  EXPECT_THAT(c_.Outcomes().at(*change).status,
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("node n1 could not install tables a, b, c and 1 more"),
                             HasSubstr("table b: no memory for 64000 bytes"))));
  EXPECT_EQ(c_->GetPlan()->tables().size(), 0u);
  // The plan as it was in between can still be looked at.
  const absl::StatusOr<Plan> then = PlanAt(c_->store(), *c_->GetPlan(), created);
  ASSERT_THAT(then.status(), IsOk());
  EXPECT_EQ(then->tables().size(), 4u);
}

TEST_F(CoordinatorCreateTables, NothingIsMadeWhereOneHasNoRoomAndItsNameIsTold) {
  const PlanVersion before = c_->GetPlan()->version();
  EXPECT_THAT(Start(Request({Wanted("small"), Wanted("large", 1'000'000'000)})).status(),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("table large needs")));
  EXPECT_THAT(
      Start(Request({Wanted("small"), {CoordinatorHarness::Spec("lost"), {.nodes = {"n9"}}}}))
          .status(),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("table lost"), HasSubstr("n9"))));
  EXPECT_EQ(c_->GetPlan()->version(), before);
}

TEST_F(CoordinatorCreateTables, EveryTableHasANameOfItsOwn) {
  EXPECT_THAT(Start(Request({Wanted("a"), Wanted("a")})).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("table a is asked for twice")));
  EXPECT_THAT(Start(Request({})).status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("")));
  ASSERT_THAT(Start(Request({Wanted("a")})).status(), IsOk());
  ASSERT_THAT(Start(Request({Wanted("b"), Wanted("c")})).status(), IsOk());
  for (const char* const name : {"a", "c"}) {
    EXPECT_THAT(Start(Request({Wanted("d"), Wanted(name)})).status(),
                StatusIs(StatusCode::kAlreadyExists, HasSubstr(std::string("table ") + name)));
  }
}

TEST_F(CoordinatorCreateTables, AutomaticOnesArePlacedTogether) {
  // One by one the first would lie alone on the fastest device: together they share all four.
  std::vector<planner::TableToPlace> tables;
  for (int i = 0; i < 4; ++i) tables.push_back(Automatic("t" + std::to_string(i), 100'000));
  ASSERT_THAT(Start(Request(tables)).status(), IsOk());
  std::set<DeviceId> devices;
  for (const TablePlan& table : c_->GetPlan()->tables()) {
    for (const Slice& slice : table.primary()) devices.insert(slice.device);
  }
  EXPECT_EQ(devices.size(), 4u);
}

TEST_F(CoordinatorCreateTables, ARestartInTheMiddleLeavesAll) {
  ASSERT_THAT(Start(Request({Wanted("a"), Wanted("b")})).status(), IsOk());
  c_.Restart();
  c_.Register("n0");
  c_.Register("n1");
  EXPECT_EQ(c_->GetPlan()->tables().size(), 2u);
  EXPECT_THAT(c_->DropTable("b", c_.now()).status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("still being created")));
  InstallBoth();
  EXPECT_EQ(c_->GetPlan()->tables().size(), 2u);
  EXPECT_THAT(c_->DropTable("b", c_.now()).status(), IsOk());
}

TEST_F(CoordinatorCreateTables, ARestartInTheMiddleLeavesNothingWhereANodeStaysAway) {
  ASSERT_THAT(Start(Request({Wanted("a"), Wanted("b")})).status(), IsOk());
  c_.Restart();
  c_.Register("n0");
  c_.Advance(absl::Seconds(6));
  ASSERT_THAT(c_.Install(n0_), IsOk());
  c_->Tick(c_.now());
  EXPECT_EQ(c_->GetPlan()->tables().size(), 0u);
}

TEST_F(CoordinatorCreateTables, AStoreThatCannotWriteLeavesNothing) {
  c_.store().FailCommits(true);
  EXPECT_THAT(Start(Request({Wanted("a"), Wanted("b")})).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("tables a, b cannot be created")));
  c_.store().FailCommits(false);
  c_.Restart();
  EXPECT_EQ(c_->GetPlan()->tables().size(), 0u);
}

TEST_F(CoordinatorCreateTables, ThousandsAreOneCommit) {
  std::vector<planner::TableToPlace> tables;
  for (int i = 0; i < 3000; ++i) tables.push_back(Wanted("t" + std::to_string(i), 100));
  const Revision before = c_->store_revision();
  const auto change = Start(Request(std::move(tables)));
  ASSERT_THAT(change.status(), IsOk());
  EXPECT_EQ(ToInt(c_->store_revision()), ToInt(before) + 1);
  InstallBoth();
  EXPECT_EQ(c_.Outcomes().at(*change).tables.size(), 3000u);
}

TEST_F(CoordinatorCreateTables, ThoseThatWaitForAnotherAreABoundedNumber) {
  const std::size_t most = CoordinatorOptions().tables_queued_max;
  ASSERT_THAT(Start(Request({Wanted("first")})).status(), IsOk());
  for (std::size_t n = 0; n < most; ++n) {
    ASSERT_THAT(Start(Request({Wanted("t" + std::to_string(n))})).status(), IsOk());
  }
  EXPECT_THAT(Start(Request({Wanted("late")})).status(),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr(std::to_string(most) + " tables are waiting to be created")));
}

TEST_F(CoordinatorCreateTables, IfNotExistsMakesWhatIsMissing) {
  c_.CreateOn("a", {n0_, n1_});
  const TableId a = c_->GetPlan()->FindTable("a")->spec.id;
  const auto change = Start(Request({Wanted("b"), Wanted("a")}, true));
  ASSERT_THAT(change.status(), IsOk());
  InstallBoth();
  const CompleteChange outcome = c_.Outcomes().at(*change);
  ASSERT_EQ(outcome.tables.size(), 2u);
  EXPECT_FALSE(outcome.tables[0].existed);
  EXPECT_TRUE(outcome.tables[1].existed);
  EXPECT_EQ(outcome.tables[1].table->spec.id, a);
  // A second run has nothing to do, and makes no plan.
  const PlanVersion now = c_->GetPlan()->version();
  const auto again = Start(Request({Wanted("b"), Wanted("a")}, true));
  ASSERT_THAT(again.status(), IsOk());
  EXPECT_THAT(c_.Outcomes().at(*again).status, IsOk());
  EXPECT_EQ(c_->GetPlan()->version(), now);
}

TEST_F(CoordinatorCreateTables, IfNotExistsNamesEveryDifferenceAndMakesNothing) {
  c_.CreateOn("a", {n0_, n1_});
  c_.CreateOn("b", {n0_, n1_});
  planner::TableToPlace a = Wanted("a", 2000);
  a.spec.optimizer.learning_rate = 0.5F;
  const planner::TableToPlace b = Wanted("b", 1000, ShardingType::kTableWise);
  const absl::Status status = Start(Request({Wanted("new"), a, b}, true)).status();
  EXPECT_THAT(status,
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("table a: "), HasSubstr("rows is 1000, asked for is 2000"),
                             HasSubstr("optimizer.learning_rate is "),
                             HasSubstr("table b: sharding is \"row_wise\", asked for is "
                                       "\"table_wise\""))));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("dim is")));
  EXPECT_EQ(c_->GetPlan()->FindTable("new"), nullptr);
  // `auto` takes a table as it was cut.
  EXPECT_THAT(Start(Request({Automatic("a", 1000)}, true)).status(), IsOk());
}

// A creation that waits for another one looks at what is there when its turn comes.
TEST_F(CoordinatorCreateTables, IfNotExistsWaitsForTheCreationOfTheSameTable) {
  ASSERT_THAT(Start(Request({Wanted("a")})).status(), IsOk());
  const auto second = Start(Request({Wanted("a"), Wanted("b")}, true));
  ASSERT_THAT(second.status(), IsOk());
  EXPECT_TRUE(c_->ChangeState(*second)->queued);
  ASSERT_THAT(Fail(n1_, absl::ResourceExhaustedError("no memory")), IsOk());
  EXPECT_EQ(c_->GetPlan()->tables().size(), 2u) << "both are made by the second";
  InstallBoth();
  EXPECT_FALSE(c_.Outcomes().at(*second).tables[0].existed);
}

}  // namespace
}  // namespace embla
