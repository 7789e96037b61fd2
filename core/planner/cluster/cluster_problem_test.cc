#include "core/planner/cluster/cluster_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/testing/status_matchers.h"
#include "core/plan/names.h"
#include "core/planner/problem/embla_cost.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<NodeSpec> NodesOf(std::uint32_t nodes, std::uint32_t devices,
                              std::int64_t memory_bytes = std::int64_t{1} << 32) {
  std::vector<NodeSpec> result;
  for (std::uint32_t i = 0; i < nodes; ++i) {
    result.push_back(
        {.id = NodeId{nodes - i},  // Ids and names sort differently.
         .name = "n" + std::to_string(i),
         .address = "h:1",
         .devices = std::vector<DeviceSpec>(devices, {DeviceKind::kCpu, memory_bytes})});
  }
  return result;
}

TEST(TopologyOf, MeasuresDevicesAgainstTheFastestOne) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  std::vector<NodeSpec> nodes = NodesOf(2, 2);
  EXPECT_EQ(TopologyOf(nodes, {}).hosts[1].devices[1].slowdown, 1.0);
  nodes[0].devices[0] = {.kind = DeviceKind::kGpu,
                         .memory_bytes = kGiB,
                         .memory_bytes_per_second = 4000 * kGiB,
                         .peer_access = true};
  nodes[0].devices[1] = {.kind = DeviceKind::kGpu,
                         .memory_bytes = kGiB,
                         .memory_bytes_per_second = 2000 * kGiB,
                         .peer_access = true};
  const Topology mixed = TopologyOf(nodes, {});
  EXPECT_EQ(mixed.bandwidth.device_memory, 4000);
  EXPECT_EQ(mixed.hosts[0].devices[0].slowdown, 1.0);
  EXPECT_EQ(mixed.hosts[0].devices[1].slowdown, 2.0);
  EXPECT_EQ(mixed.hosts[1].devices[0].slowdown, 200.0);
  EXPECT_EQ(mixed.bandwidth.intra_host, mixed.bandwidth.host_memory);
  nodes.pop_back();
  EXPECT_EQ(TopologyOf(nodes, {}).bandwidth.intra_host, Bandwidths().intra_host);
  nodes[0].devices[1].peer_access = false;
  EXPECT_EQ(TopologyOf(nodes, {}).bandwidth.intra_host, Bandwidths().host_to_device);
}

TableSpec SpecOf(const std::string& name, std::int64_t rows, std::uint32_t dim) {
  TableSpec spec{.id = TableId{1}, .name = name, .rows = rows, .dim = dim};
  spec.SetDefaults();
  return spec;
}

// Tables placed by type come back as the same tiling.
TEST(ClusterProblem, ChoicesOfPlacedTablesPlaceThemAgain) {
  std::mt19937 random(20260101);
  for (int round = 0; round < 300; ++round) {
    const std::vector<NodeSpec> nodes = NodesOf(1 + random() % 3, 1 + random() % 4);
    const auto type = static_cast<ShardingType>(2 + random() % 6);
    TableSpec spec = SpecOf("t", 1 + random() % 5000, 4 * (1 + random() % 16));
    const PlacementRequest request{.sharding = type, .min_partition = 8};
    const absl::StatusOr<TablePlan> table = PlaceTable(spec, request, nodes, {});
    ASSERT_THAT(table, IsOk());
    const Cluster cluster = ClusterOf(nodes, {*table});
    SCOPED_TRACE(::testing::Message() << "round " << round << " " << NameOf(type));
    // Fewer granules than devices leave some without rows, which no cut does.
    if (cluster.choices.empty()) {
      const std::size_t devices = nodes.size() * nodes[0].devices.size();
      EXPECT_LT(table->spec.row_granules, devices);
      continue;
    }
    const absl::StatusOr<PlacementRequest> again =
        PlacementOf(cluster.problem, "t", cluster.choices[0]);
    ASSERT_THAT(again, IsOk());
    const absl::StatusOr<TablePlan> placed = PlaceTable(spec, *again, nodes, {});
    ASSERT_THAT(placed, IsOk());
    EXPECT_EQ(placed->primary(), table->primary());
  }
}

// The planner's price of a ZCH table is what nodes allocate: with what is known of each slot's id.
TEST(ClusterProblem, PricesOfZchTablesCountTheirSlots) {
  const std::vector<NodeSpec> nodes = NodesOf(1, 1);
  TableSpec spec = {.id = TableId{1}, .name = "users", .rows = 1024, .dim = 16};
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  spec.zch = ZchSpec{.buckets = 2};
  spec.SetDefaults();
  const absl::StatusOr<TablePlan> table =
      PlaceTable(spec, {.sharding = ShardingType::kTableWise}, nodes, {});
  ASSERT_THAT(table, IsOk());
  const Cluster cluster = ClusterOf(nodes, {*table});
  const Price price =
      EmblaCost(cluster.problem).PriceOf(cluster.problem.tables[0], cluster.choices.at(0).cut);
  EXPECT_EQ(price.bytes[0], SliceBytes(table->spec, table->primary()[0]));
  EXPECT_EQ(price.bytes[0], table->spec.rows * (16 * 4 + 4 + 21));
}

TEST(ClusterProblem, WhatThePlannerCannotExpressTakesMemory) {
  const std::vector<NodeSpec> nodes = NodesOf(2, 2, 1'000'000);
  const TableSpec spec = SpecOf("t", 1000, 16);
  const auto table = PlaceTable(spec, {.sharding = ShardingType::kDataParallel}, nodes, {});
  ASSERT_THAT(table, IsOk());
  const Cluster cluster = ClusterOf(nodes, {*table});
  EXPECT_TRUE(cluster.choices.empty());
  const std::int64_t bytes = SliceBytes(spec, table->primary().front());
  EXPECT_EQ(cluster.problem.topology.hosts[0].devices[0].memory_bytes, 1'000'000 - bytes);
  EXPECT_EQ(cluster.problem.topology.hosts[0].devices[1].memory_bytes, 1'000'000);
}

TEST(ClusterProblem, PlansThatAClusterCannotHaveAreRefused) {
  const Problem problem = ClusterOf(NodesOf(1, 1), {}).problem;
  Choice choice;
  choice.cut = {.type = ShardingType::kTableWise, .kernel = Kernel::kHost, .width = 8};
  EXPECT_THAT(std::string(PlacementOf(problem, "t", choice).status().message()),
              HasSubstr("table t: the plan keeps rows outside device memory"));
  choice.cut = {.type = ShardingType::kDataParallel, .kernel = Kernel::kDevice, .width = 8};
  EXPECT_THAT(std::string(PlacementOf(problem, "t", choice).status().message()),
              HasSubstr("exclude data_parallel"));
}

TEST(ClusterProblem, ThePlanAsItIsKeepsEveryTableWhereItIs) {
  const std::vector<NodeSpec> nodes = NodesOf(2, 2);
  std::vector<TablePlan> tables;
  for (const ShardingType type : {ShardingType::kTableWise, ShardingType::kRowWise,
                                  ShardingType::kTableRowWise, ShardingType::kColumnWise}) {
    TableSpec spec = SpecOf("t" + std::to_string(tables.size()), 1000, 16);
    spec.id = TableId{static_cast<std::uint32_t>(tables.size() + 1)};
    const auto table =
        PlaceTable(spec, {.sharding = type, .min_partition = 4}, nodes, TableList(tables));
    ASSERT_THAT(table, IsOk());
    tables.push_back(*table);
  }
  const Cluster cluster = ClusterOf(nodes, tables);
  const absl::StatusOr<Planned> planned = PlannedOf(Plan(PlanVersion{1}, "c", nodes, tables));
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->solution.choices, cluster.choices);
  EXPECT_GE(planned->solution.max_load, planned->solution.lower_bound);
  EXPECT_GT(planned->solution.lower_bound, 0);
}

}  // namespace
}  // namespace embla::planner
