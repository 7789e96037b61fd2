#include "core/plan/plan_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<NodeSpec> Nodes(std::uint32_t count) {
  std::vector<NodeSpec> nodes;
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes.push_back({NodeId{i + 1}, "n" + std::to_string(i), "h:1", {{DeviceKind::kCpu, 100}}});
  }
  return nodes;
}

// Rows split at `border` between the devices of nodes 1 and 2.
TablePlan Split(std::uint32_t id, const std::string& name, std::int64_t border) {
  TablePlan table;
  table.spec = {.id = TableId{id}, .name = name, .rows = 100, .dim = 4};
  table.spec.optimizer.kind = OptimizerKind::kSgd;
  table.spec.SetDefaults();
  table.replicas = {{{0, border, 0, 4, {NodeId{1}, 0}}, {border, 100, 0, 4, {NodeId{2}, 0}}}};
  return table;
}

Plan PlanOf(std::vector<TablePlan> tables, std::uint32_t nodes = 2) {
  return Plan(PlanVersion{1}, "c", Nodes(nodes), std::move(tables));
}

TEST(DiffPlans, EqualPlansDoNotDiffer) {
  const Plan plan = PlanOf({Split(1, "a", 50)});
  EXPECT_TRUE(DiffPlans(plan, plan).empty());
}

TEST(DiffPlans, MovedRowsAreTheOnesOnAnotherDevice) {
  const PlanDiff diff = DiffPlans(PlanOf({Split(1, "a", 50)}), PlanOf({Split(1, "a", 70)}));
  ASSERT_THAT(diff.tables, SizeIs(1));
  ASSERT_THAT(diff.tables[0].moves, SizeIs(1));
  const SliceMove& move = diff.tables[0].moves[0];
  EXPECT_EQ(move.row_begin, 50);
  EXPECT_EQ(move.row_end, 70);
  EXPECT_EQ(move.from.node, NodeId{2});
  EXPECT_EQ(move.to.node, NodeId{1});
  EXPECT_EQ(diff.moved_bytes(), 20 * 4 * 4);
}

TEST(DiffPlans, NamesAChangeOfMembers) {
  TablePlan before = Split(1, "a", 50);
  before.spec.sync = SyncSpec();
  TablePlan after = before;
  after.steps.changes = 1;
  const PlanDiff diff = DiffPlans(PlanOf({before}), PlanOf({after}));
  ASSERT_THAT(diff.tables, SizeIs(1));
  EXPECT_EQ(diff.tables[0].kind, TableDiff::Kind::kMembersChanged);
}

TEST(DiffPlans, TablesAndNodesThatCameOrWent) {
  TablePlan changed = Split(2, "b", 50);
  changed.spec.optimizer.learning_rate = 0.5f;
  const PlanDiff diff = DiffPlans(PlanOf({Split(1, "a", 50), Split(2, "b", 50)}),
                                  PlanOf({changed, Split(3, "c", 10)}, /*nodes=*/3));
  EXPECT_THAT(diff.nodes_added, ElementsAre("n2"));
  EXPECT_THAT(diff.nodes_removed, IsEmpty());
  ASSERT_THAT(diff.tables, SizeIs(3));
  EXPECT_EQ(diff.tables[0].kind, TableDiff::Kind::kDropped);
  EXPECT_EQ(diff.tables[1].kind, TableDiff::Kind::kSpecChanged);
  EXPECT_EQ(diff.tables[2].kind, TableDiff::Kind::kCreated);
  EXPECT_EQ(diff.tables[2].bytes, 100 * 4 * 4);
  EXPECT_EQ(diff.moved_bytes(), 0);
}

// Against cell by cell.
TEST(DiffPlans, RandomTilingsAgreeWithCounting) {
  std::mt19937 random(20260102);
  const auto device_at = [](const TablePlan& table, std::int64_t row) {
    for (const Slice& slice : table.primary()) {
      if (row >= slice.row_begin && row < slice.row_end) return slice.device;
    }
    return DeviceId{};
  };
  for (int round = 0; round < 100; ++round) {
    const TablePlan before = Split(1, "a", 1 + random() % 99);
    const TablePlan after = Split(1, "a", 1 + random() % 99);
    std::int64_t expected = 0;
    for (std::int64_t row = 0; row < 100; ++row) {
      expected += device_at(before, row) == device_at(after, row) ? 0 : 4 * 4;
    }
    std::int64_t bytes = 0;
    for (const SliceMove& move : MovesBetween(before, after)) bytes += move.bytes;
    EXPECT_EQ(bytes, expected);
  }
}

}  // namespace
}  // namespace embla
