#include "core/plan/plan_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

NodeSpec Node(std::uint32_t id, std::size_t devices = 2) {
  return {.id = NodeId{id},
          .name = "n" + std::to_string(id),
          .address = "host:" + std::to_string(id),
          .devices = std::vector<DeviceSpec>(devices, {DeviceKind::kCpu, 1 << 20})};
}

TablePlan Table(std::uint32_t id, const std::string& name, DeviceId device) {
  TablePlan table;
  table.spec.id = TableId{id};
  table.spec.name = name;
  table.spec.rows = 8;
  table.spec.dim = 4;
  table.spec.SetDefaults();
  table.replicas = {{{0, 8, 0, 4, device}}};
  return table;
}

// A chain of plans by random changes, held against a map of what they should have.
TEST(PlanDelta, LeadsThroughRandomChanges) {
  const std::uint64_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::map<std::uint32_t, TablePlan> model;
  std::map<std::uint32_t, NodeSpec> nodes = {{1, Node(1)}};
  auto first = std::make_shared<const Plan>();
  PlanPtr coordinator = first;
  PlanPtr follower = first;  // Gets every plan.
  PlanPtr late = first;      // Gets some.
  std::uint32_t last_id = 0;
  for (std::uint64_t version = 1; version <= 400; ++version) {
    PlanDelta delta{
        .base = coordinator->version(), .version = PlanVersion{version}, .cluster_id = "c"};
    if (version == 1) delta.nodes.push_back(nodes.at(1));
    const std::uint64_t kind = random() % 10;
    const auto some =
        model.empty() ? model.end() : std::next(model.begin(), random() % model.size());
    if (kind < 4 || some == model.end()) {
      ++last_id;
      model[last_id] = Table(last_id, "t" + std::to_string(last_id), {NodeId{1}, 0});
      delta.tables.push_back(std::make_shared<const TablePlan>(model[last_id]));
    } else if (kind < 6) {
      delta.dropped_tables.push_back(TableId{some->first});
      model.erase(some);
    } else if (kind < 8) {
      some->second.replicas[0][0].device.index ^= 1;
      delta.tables.push_back(std::make_shared<const TablePlan>(some->second));
    } else if (kind < 9) {
      some->second.aside = !some->second.aside;
      delta.tables.push_back(std::make_shared<const TablePlan>(some->second));
    } else {
      const std::uint32_t id = 2 + random() % 3;
      if (nodes.erase(id) == 1) {
        delta.dropped_nodes.push_back(NodeId{id});
      } else {
        nodes[id] = Node(id, 1 + random() % 3);
        delta.nodes.push_back(nodes[id]);
      }
    }
    const absl::StatusOr<PlanPtr> next = Apply(delta, *coordinator);
    ASSERT_THAT(next, IsOk());
    const absl::StatusOr<PlanPtr> followed = Apply(DeltaBetween(*coordinator, **next), *follower);
    ASSERT_THAT(followed, IsOk());
    coordinator = *next;
    follower = *followed;
    if (random() % 5 == 0) {
      const absl::StatusOr<PlanPtr> caught_up = Apply(DeltaBetween(*late, *coordinator), *late);
      ASSERT_THAT(caught_up, IsOk());
      late = *caught_up;
      EXPECT_EQ(*late, *coordinator);
    }
    EXPECT_EQ(*follower, *coordinator);
    ASSERT_THAT(coordinator->Validate(), IsOk());
    std::vector<TablePlan> tables;
    for (const auto& [id, table] : model) tables.push_back(table);
    std::vector<NodeSpec> all_nodes;
    for (const auto& [id, node] : nodes) all_nodes.push_back(node);
    ASSERT_EQ(*coordinator, Plan(PlanVersion{version}, "c", all_nodes, tables));
    for (const auto& [id, table] : model) {
      ASSERT_EQ(*coordinator->FindTable(TableId{id}), table);
      const TablePlan* const served = coordinator->FindTable(table.spec.name);
      ASSERT_EQ(served == nullptr, table.aside);
      ASSERT_EQ(coordinator->FindAside(table.spec.name) == nullptr, !table.aside);
    }
    ASSERT_EQ(coordinator->FindTable(TableId{last_id + 1}), nullptr);
  }
}

TEST(PlanDelta, NamesATableThatChangedAndChangedBack) {
  const Plan before(PlanVersion{1}, "c", {Node(1)}, {Table(1, "t", {NodeId{1}, 0})});
  const Plan after(PlanVersion{3}, "c", {Node(1)}, {Table(1, "t", {NodeId{1}, 0})});
  EXPECT_EQ(DeltaBetween(before, after).tables.size(), 1u);
  const Plan same(PlanVersion{3}, "c", {Node(1)}, before.tables());
  EXPECT_EQ(DeltaBetween(before, same).tables.size(), 0u);
}

TEST(PlanDelta, IsRefusedByOtherPlansThanItsBase) {
  const Plan before(PlanVersion{1}, "c", {Node(1)}, {});
  const Plan after(PlanVersion{2}, "c", {Node(1)}, {Table(1, "t", {NodeId{1}, 0})});
  const PlanDelta delta = DeltaBetween(before, after);
  EXPECT_THAT(Apply(delta, after), StatusIs(Code::kFailedPrecondition, HasSubstr("since plan 1")));
  const Plan other(PlanVersion{1}, "d", {Node(1)}, {});
  EXPECT_THAT(Apply(delta, other), StatusIs(Code::kFailedPrecondition));
}

// The check skips unchanged tables, except for the effects of changed nodes.
TEST(PlanDelta, IsCheckedLikeAWholePlan) {
  const Plan plan(PlanVersion{1}, "c", {Node(1), Node(2)},
                  {Table(1, "t", {NodeId{1}, 0}), Table(2, "u", {NodeId{2}, 1})});
  const PlanDelta good{.base = PlanVersion{1}, .version = PlanVersion{2}, .cluster_id = "c"};
  std::vector<PlanDelta> bad(5, good);
  bad[0].dropped_nodes = {NodeId{2}};
  bad[1].nodes = {Node(2, 1)};
  bad[2].tables = {std::make_shared<const TablePlan>(Table(3, "t", {NodeId{1}, 0}))};
  bad[3].tables = {std::make_shared<const TablePlan>(Table(3, "v", {NodeId{1}, 2}))};
  bad[4].tables = {std::make_shared<const TablePlan>(Table(0, "v", {NodeId{1}, 0}))};
  for (const PlanDelta& delta : bad) {
    EXPECT_THAT(Apply(delta, plan), StatusIs(Code::kInvalidArgument));
  }
  EXPECT_THAT(Apply(good, plan), IsOk());
}

}  // namespace
}  // namespace embla
