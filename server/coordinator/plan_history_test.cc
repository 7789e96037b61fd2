#include "server/coordinator/plan_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/base/testing/status_matchers.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

// Every plan that was ever current, by version.
class PlanHistoryTest : public ::testing::Test {
 protected:
  void Remember() { plans_.emplace(ToInt(c_->GetPlan()->version()), *c_->GetPlan()); }
  void Create(const std::string& name) {
    ASSERT_THAT(c_.Create(name), IsOk());
    Remember();
    for (const NodeId node : nodes_) ASSERT_THAT(c_.Install(node), IsOk());
  }
  void Join(const std::string& name) {
    nodes_.push_back(c_.Register(name));
    Remember();
  }

  CoordinatorHarness c_;
  std::vector<NodeId> nodes_;
  std::map<std::uint64_t, Plan> plans_;
};

TEST_F(PlanHistoryTest, EveryPlanCanBeHadAgainAlsoAfterARestart) {
  Remember();
  Join("a");
  Join("b");
  Create("t");
  Create("u");
  ASSERT_THAT(c_->SetTable("t", {{"learning_rate", "0.5"}}, c_.now()), IsOk());
  Remember();
  ASSERT_THAT(c_->DropTable("t", c_.now()), IsOk());
  Remember();
  c_.Restart();
  ASSERT_GE(plans_.size(), 7u);
  for (const auto& [version, plan] : plans_) {
    const absl::StatusOr<Plan> again = PlanAt(c_->store(), *c_->GetPlan(), PlanVersion{version});
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(*again, plan) << "version " << version;
  }
}

TEST_F(PlanHistoryTest, ListsCausesNewestFirst) {
  Join("a");
  Create("t");
  const absl::StatusOr<std::vector<PlanChange>> changes = ReadHistory(c_->store(), 2);
  ASSERT_THAT(changes, IsOk());
  ASSERT_EQ(changes->size(), 2u);
  EXPECT_EQ((*changes)[0].cause, "table t created");
  EXPECT_EQ((*changes)[1].cause, "node a joined");
  EXPECT_EQ((*changes)[0].at, c_.now());
}

TEST_F(PlanHistoryTest, UnknownVersionsAreNotFound) {
  Join("a");
  const absl::Status status = PlanAt(c_->store(), *c_->GetPlan(), PlanVersion{99}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("kept are 1 to 2"));
}

TEST(PlanHistory, KeepsTheNewestRecordsOnly) {
  MemoryStateStore store;
  for (std::uint64_t version = 2; version < kHistoryMax + 10; ++version) {
    std::vector<StateWrite> writes;
    AppendHistoryWrites({.version = PlanVersion{version},
                         .at = absl::FromUnixMillis(5),
                         .cause = "x",
                         .node = {},
                         .node_before = {},
                         .tables = {}},
                        &writes);
    ASSERT_THAT(store.Commit({}, writes), IsOk());
  }
  const auto changes = ReadHistory(store, 0);
  ASSERT_THAT(changes, IsOk());
  EXPECT_EQ(changes->size(), kHistoryMax);
  EXPECT_EQ(changes->front().version, PlanVersion{kHistoryMax + 9});
}

TablePlan TableOfSlices(std::int64_t slices) {
  TablePlan table;
  table.spec.id = TableId{1};
  table.spec.name = "t";
  table.spec.rows = slices * 10;
  table.spec.dim = 8;
  table.spec.SetDefaults();
  table.replicas.emplace_back();
  for (std::int64_t i = 0; i < slices; ++i) {
    table.replicas[0].push_back({i * 10, i * 10 + 10, 0, 8, {NodeId{1}, 0}});
  }
  return table;
}

// A hand-over of 48 units of a table that has as many slices as can be.
TEST(PlanHistory, AThousandChangesOfALargeTableAreSmall) {
  const TablePlan before = TableOfSlices(4096);
  TablePlan after = before;
  for (int i = 100; i < 148; ++i) after.replicas[0][i].device.node = NodeId{2};
  PlanChange change;
  change.version = PlanVersion{7};
  change.tables.push_back(TableBefore::Of(TableId{1}, &before, &after));
  const std::string record = PlanChangeToJson(change);
  EXPECT_LT(record.size(), 4000u) << "3 KB, and not the table's 300";
  const absl::StatusOr<PlanChange> again = PlanChangeFromJson(record);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(*again, change);
  const absl::StatusOr<TablePlan> undone = Undo(*again->tables.front().delta, after);
  ASSERT_THAT(undone, IsOk());
  EXPECT_EQ(*undone, before);
  EXPECT_THAT(Undo(*again->tables.front().delta, before), Not(IsOk())) << "of another plan";
}

// Slices that were cut or joined, and another spec.
TEST(PlanHistory, ADifferenceLeadsBackToAnyTiling) {
  TablePlan before = TableOfSlices(8);
  TablePlan after = before;
  after.spec.optimizer.learning_rate = 0.5f;
  after.replicas[0][0].row_end = 20;
  after.replicas[0].erase(after.replicas[0].begin() + 1);
  const std::optional<TableDelta> delta = DeltaOf(before, after);
  ASSERT_TRUE(delta.has_value());
  const absl::StatusOr<TablePlan> undone = Undo(*delta, after);
  ASSERT_THAT(undone, IsOk());
  EXPECT_EQ(*undone, before);
  TablePlan aside = after;
  aside.aside = true;
  EXPECT_FALSE(DeltaOf(before, aside).has_value()) << "it was adopted, or put aside";
  after.replicas.push_back(after.replicas[0]);
  EXPECT_FALSE(DeltaOf(before, after).has_value()) << "a copy came";
}

TEST(PlanHistory, ADamagedRecordIsDataLoss) {
  MemoryStateStore store;
  const StateWrite writes[] = {{"plan/history/00000000000000000002", "{"}};
  ASSERT_THAT(store.Commit({}, writes), IsOk());
  EXPECT_TRUE(absl::IsDataLoss(ReadHistory(store, 0).status()));
}

}  // namespace
}  // namespace embla
