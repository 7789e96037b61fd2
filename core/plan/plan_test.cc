#include "core/plan/plan.h"

#include <functional>
#include <iterator>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

NodeSpec NodeOf(std::uint32_t id, std::uint32_t devices = 2) {
  return {.id = NodeId{id},
          .name = "n" + std::to_string(id),
          .address = "127.0.0.1:700" + std::to_string(id),
          .devices = std::vector<DeviceSpec>(devices, {DeviceKind::kCpu, 1 << 20})};
}

Slice MakeSlice(std::int64_t row_begin, std::int64_t row_end, std::uint32_t column_begin,
                std::uint32_t column_end, DeviceId device) {
  return {row_begin, row_end, column_begin, column_end, device};
}

// 100 rows x 8 columns, cut into four quarters over two nodes.
TablePlan Quarters(std::uint32_t id = 1, std::string name = "t") {
  TablePlan table;
  table.spec.id = TableId{id};
  table.spec.name = std::move(name);
  table.spec.rows = 100;
  table.spec.dim = 8;
  table.spec.SetDefaults();
  table.sharding = ShardingType::kGridShard;
  table.replicas = {
      {MakeSlice(0, 50, 0, 4, {NodeId{1}, 0}), MakeSlice(50, 100, 0, 4, {NodeId{1}, 1}),
       MakeSlice(0, 50, 4, 8, {NodeId{2}, 0}), MakeSlice(50, 100, 4, 8, {NodeId{2}, 1})}};
  return table;
}

Plan MakePlan(std::vector<TablePlan> tables) {
  return Plan(PlanVersion{3}, "c", {NodeOf(2), NodeOf(1)}, std::move(tables));
}

TEST(PlanFind, FindsByIdAndByName) {
  const Plan plan = MakePlan({Quarters(2, "b"), Quarters(1, "a")});
  EXPECT_EQ(plan.nodes().front().id, NodeId{1});
  EXPECT_EQ(plan.tables().front().spec.name, "a");
  EXPECT_EQ(plan.FindNode(NodeId{2})->name, "n2");
  EXPECT_EQ(plan.FindNode("n1")->id, NodeId{1});
  EXPECT_EQ(plan.FindNode(NodeId{3}), nullptr);
  EXPECT_EQ(plan.FindNode("n3"), nullptr);
  EXPECT_EQ(plan.FindTable(TableId{2})->spec.name, "b");
  EXPECT_EQ(plan.FindTable("a")->spec.id, TableId{1});
  EXPECT_EQ(plan.FindTable("c"), nullptr);
  EXPECT_THAT(plan.Validate(), IsOk());
}

struct BadTable {
  const char* says;
  std::function<void(TablePlan&)> spoil;
};

TEST(TableListIndexOf, FindsTablesByIdWithTablesDroppedBetween) {
  EXPECT_EQ(TableList().IndexOf(TableId{1}), 0u);
  const TableList tables{Quarters(3, "a"), Quarters(4, "b"), Quarters(7, "c"), Quarters(8, "d")};
  const std::size_t none = tables.size();
  const std::size_t expected[] = {none, none, none, 0, 1, none, none, 2, 3, none};
  for (std::uint32_t id = 0; id < std::size(expected); ++id) {
    EXPECT_EQ(tables.IndexOf(TableId{id}), expected[id]) << id;
  }
}

TEST(PlanValidate, NamesWhatIsWrongWithATiling) {
  const BadTable bad[] = {
      {"rows 50-100 x columns 4-8 belong to no slice",
       [](TablePlan& t) { t.replicas[0].pop_back(); }},
      {"rows 0-100 x columns 4-8 belong to no slice",
       [](TablePlan& t) { t.replicas[0].resize(2); }},
      {"rows 40-50 x columns 0-4 belong to no slice",
       [](TablePlan& t) { t.replicas[0][0].row_end = 40; }},
      {"rows 50-60 x columns 0-4 belong to two slices",
       [](TablePlan& t) { t.replicas[0][0].row_end = 60; }},
      {"rows 0-50 x columns 4-8 belong to two slices",
       [](TablePlan& t) { t.replicas[0][0].column_end = 8; }},
      {"not sorted", [](TablePlan& t) { std::swap(t.replicas[0][0], t.replicas[0][1]); }},
      {"not sorted", [](TablePlan& t) { t.replicas[0].push_back(t.replicas[0].back()); }},
      {"empty or outside", [](TablePlan& t) { t.replicas[0][0].row_end = 0; }},
      {"empty or outside", [](TablePlan& t) { t.replicas[0][1].row_end = 101; }},
      {"empty or outside", [](TablePlan& t) { t.replicas[0][0].row_begin = -1; }},
      {"granule borders", [](TablePlan& t) { t.spec.row_granules = 3; }},
      {"granule borders", [](TablePlan& t) { t.spec.column_granule_width = 8; }},
      {"device 2 of node 1", [](TablePlan& t) { t.replicas[0][0].device.index = 2; }},
      {"node 9", [](TablePlan& t) { t.replicas[0][0].device.node = NodeId{9}; }},
      {"no slices", [](TablePlan& t) { t.replicas.clear(); }},
      {"no slice", [](TablePlan& t) { t.replicas.emplace_back(); }},
      {"two replicas", [](TablePlan& t) { t.replicas.push_back(t.replicas[0]); }},
      {"table id is 0", [](TablePlan& t) { t.spec.id = TableId{}; }},
      {"sharding type", [](TablePlan& t) { t.sharding = static_cast<ShardingType>(0); }},
      {"decoupled decay or a type that keeps rows whole",
       [](TablePlan& t) {
         t.spec.optimizer.weight_decay = 0.1f;
         t.spec.optimizer.weight_decay_mode = WeightDecayMode::kL2;
       }},
  };
  for (const BadTable& entry : bad) {
    TablePlan table = Quarters();
    entry.spoil(table);
    const absl::Status status = MakePlan({table}).Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << entry.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(entry.says));
    EXPECT_THAT(std::string(status.message()), HasSubstr("table t"));
  }
}

TEST(PlanValidate, RefusesTheSameIdOrNameTwice) {
  EXPECT_THAT(MakePlan({Quarters(1, "a"), Quarters(2, "a")}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MakePlan({Quarters(1, "a"), Quarters(1, "b")}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  TablePlan aside = Quarters(2, "a");
  aside.aside = true;
  EXPECT_THAT(MakePlan({Quarters(1, "a"), aside}).Validate(), IsOk());
  EXPECT_THAT(Plan(PlanVersion{1}, "c", {NodeOf(1), NodeOf(1)}, {}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  NodeSpec twin = NodeOf(2);
  twin.name = "n1";
  EXPECT_THAT(Plan(PlanVersion{1}, "c", {NodeOf(1), twin}, {}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(PlanValidate, RefusesNodesThatCannotBeReached) {
  for (const char* const address :
       {"", ":", "host", "host:", ":7000", "host:0", "host:65536", "host:1x", "ho st:1", "h\n:1"}) {
    NodeSpec node = NodeOf(1);
    node.address = address;
    EXPECT_EQ(ValidateNode(node).code(), absl::StatusCode::kInvalidArgument) << address;
  }
  NodeSpec node = NodeOf(1);
  node.address = "[::1]:7000";
  EXPECT_THAT(ValidateNode(node), IsOk());
  EXPECT_THAT(ValidateNode(NodeOf(1, 0)), StatusIs(absl::StatusCode::kInvalidArgument));
  node.address = "unix:/run/embla/n0.sock";
  EXPECT_THAT(ValidateNode(node), IsOk());
}

TEST(SliceBytes, CountsRowStateInEveryColumnPart) {
  const TablePlan table = Quarters();  // fp32, row-wise Adagrad.
  EXPECT_EQ(SliceBytes(table.spec, table.primary()[0]), 50 * (4 * 4 + 4));
  EXPECT_TRUE(CutsColumns(table.spec, table.primary()));
  EXPECT_EQ(HoldersOf(table), (std::set<NodeId>{NodeId{1}, NodeId{2}}));
}

TEST(PlanFindTable, ATableThatIsKeptAsideIsFoundByItsIdAndByFindAsideOnly) {
  TablePlan old = Quarters(1, "a");
  TablePlan aside = Quarters(2, "a");
  old.aside = true;
  aside.aside = true;
  const Plan plan = MakePlan({old, aside, Quarters(3, "b")});
  EXPECT_EQ(plan.FindTable("a"), nullptr);
  ASSERT_NE(plan.FindAside("a"), nullptr);
  EXPECT_EQ(plan.FindAside("a")->spec.id, TableId{2});
  EXPECT_NE(plan.FindTable(TableId{1}), nullptr);
  EXPECT_EQ(plan.FindAside("b"), nullptr);
  EXPECT_NE(plan.FindTable("b"), nullptr);
}

}  // namespace
}  // namespace embla
