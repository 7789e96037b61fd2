#include "core/planner/cluster/auto_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/testing/status_matchers.h"

namespace embla::planner {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

std::vector<NodeSpec> Nodes(std::uint32_t nodes, std::uint32_t devices, std::int64_t memory_bytes) {
  std::vector<NodeSpec> result;
  for (std::uint32_t i = 0; i < nodes; ++i) {
    result.push_back(
        {.id = NodeId{i + 1},
         .name = "n" + std::to_string(i),
         .address = "h:1",
         .devices = std::vector<DeviceSpec>(devices, {DeviceKind::kCpu, memory_bytes})});
  }
  return result;
}

TableSpec Spec(const std::string& name, std::int64_t rows, std::uint32_t dim, float lookups = 1) {
  TableSpec spec{.name = name, .rows = rows, .dim = dim};
  spec.lookups_per_sample = lookups;
  spec.SetDefaults();
  return spec;
}

// Places the tables one after the other.
std::vector<TablePlan> PlaceAll(const std::vector<TableSpec>& specs,
                                const std::vector<NodeSpec>& nodes) {
  std::vector<TablePlan> tables;
  for (TableSpec spec : specs) {
    spec.id = TableId{static_cast<std::uint32_t>(tables.size() + 1)};
    const auto chosen = ChoosePlacement(spec, {.automatic = true}, nodes, tables);
    EXPECT_THAT(chosen, IsOk());
    if (!chosen.ok()) return tables;
    const auto table = PlaceTable(spec, chosen->request, nodes, TableList(tables));
    EXPECT_THAT(table, IsOk());
    if (!table.ok()) return tables;
    tables.push_back(*table);
  }
  return tables;
}

TEST(ChoosePlacement, EqualTablesGoToDifferentDevices) {
  std::vector<TableSpec> specs;
  for (int i = 0; i < 4; ++i) specs.push_back(Spec("t" + std::to_string(i), 1000, 16));
  const std::vector<TablePlan> tables = PlaceAll(specs, Nodes(2, 2, std::int64_t{1} << 30));
  std::map<DeviceId, int> tables_on;
  for (const TablePlan& table : tables) {
    ASSERT_THAT(table.Validate(), IsOk());
    for (const Slice& slice : table.primary()) ++tables_on[slice.device];
  }
  EXPECT_EQ(tables_on.size(), 4u);
}

TEST(ChoosePlacement, ATableLargerThanADeviceIsCut) {
  // 64 MB of weights and little else, on devices of 40 MB.
  const std::vector<TablePlan> tables =
      PlaceAll({Spec("big", 1'000'000, 16)}, Nodes(2, 2, 40'000'000));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_GE(tables[0].primary().size(), 2u);
}

TEST(ChoosePlacement, AHotTableIsSharedAndOthersKeepTheirPlaces) {
  const std::vector<NodeSpec> nodes = Nodes(2, 2, std::int64_t{1} << 30);
  const std::vector<TablePlan> tables =
      PlaceAll({Spec("cold", 1000, 64), Spec("hot", 1'000'000, 64, 200)}, nodes);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_GE(tables[1].primary().size(), 2u);
}

TEST(ChoosePlacement, KeepsToAllowedNodesAndDevices) {
  const std::vector<NodeSpec> nodes = Nodes(3, 2, std::int64_t{1} << 30);
  const auto chosen =
      ChoosePlacement(Spec("t", 100'000, 64, 50),
                      {.automatic = true, .nodes = {"n1", "n2"}, .devices = {1}}, nodes, {});
  ASSERT_THAT(chosen, IsOk());
  const auto table = PlaceTable(Spec("t", 100'000, 64, 50), chosen->request, nodes, {});
  ASSERT_THAT(table, IsOk());
  for (const Slice& slice : table->primary()) {
    EXPECT_NE(slice.device.node, NodeId{1});
    EXPECT_EQ(slice.device.index, 1u);
  }
  EXPECT_THAT(chosen->reason, HasSubstr("max load"));
}

TEST(ChoosePlacement, SaysWhyNothingFits) {
  const std::vector<NodeSpec> nodes = Nodes(2, 1, 1'000'000);
  const auto chosen = ChoosePlacement(Spec("big", 1'000'000, 16), {.automatic = true}, nodes, {});
  EXPECT_EQ(chosen.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(chosen.status().message()), HasSubstr("big"));
  TableSpec groups = Spec("g", 1000, 16);
  groups.replica_groups = 2;
  EXPECT_THAT(
      std::string(ChoosePlacement(groups, {.automatic = true}, nodes, {}).status().message()),
      HasSubstr("replica groups"));
}

std::vector<TableToPlace> Automatic(const std::vector<TableSpec>& specs) {
  std::vector<TableToPlace> tables;
  for (const TableSpec& spec : specs) tables.push_back({spec, {.automatic = true}});
  return tables;
}

std::map<DeviceId, double> LookupsPerDevice(const std::vector<TablePlan>& tables) {
  std::map<DeviceId, double> lookups;
  for (const TablePlan& table : tables) {
    for (const Slice& slice : table.primary()) {
      const double rows = static_cast<double>(slice.rows()) / table.spec.rows;
      const double columns = static_cast<double>(slice.columns()) / table.spec.dim;
      lookups[slice.device] += table.spec.lookups_per_sample * rows * columns;
    }
  }
  return lookups;
}

TEST(PlaceTables, AutomaticOnesShareTheDevicesWhateverTheirOrder) {
  const std::vector<NodeSpec> nodes = Nodes(2, 2, std::int64_t{1} << 30);
  // One after the other, the last and largest would come on top.
  std::vector<TableSpec> specs;
  for (int i = 0; i < 12; ++i) {
    specs.push_back(Spec("t" + std::to_string(i), 1000, 16, static_cast<float>(1 + i)));
  }
  for (int turn = 0; turn < 2; ++turn) {
    const auto placed = PlaceTables(Automatic(specs), nodes, {});
    ASSERT_THAT(placed, IsOk());
    ASSERT_EQ(placed->size(), specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ((*placed)[i].spec.name, specs[i].name);
      EXPECT_THAT((*placed)[i].Validate(), IsOk());
    }
    const auto lookups = LookupsPerDevice(*placed);
    EXPECT_EQ(lookups.size(), 4u);
    for (const auto& [device, count] : lookups) EXPECT_NEAR(count, 78.0 / 4, 2);
    std::reverse(specs.begin(), specs.end());
  }
}

TEST(PlaceTables, AutomaticOnesKeepClearOfTablesThatAreThereOrNamed) {
  const std::vector<NodeSpec> nodes = Nodes(2, 1, std::int64_t{1} << 30);
  TablePlan there = *PlaceTable(Spec("there", 1000, 16, 40), {.targets = {"n0:0"}}, nodes, {});
  there.spec.id = TableId{1};
  std::vector<TableToPlace> tables =
      Automatic({Spec("a", 1000, 16, 10), Spec("b", 1000, 16, 10), Spec("c", 1000, 16, 10)});
  tables.push_back({Spec("named", 1000, 16, 10), {.targets = {"n1:0"}}});
  const auto placed = PlaceTables(tables, nodes, TableList{there});
  ASSERT_THAT(placed, IsOk());
  for (const TablePlan& table : *placed) {
    for (const Slice& slice : table.primary()) EXPECT_EQ(slice.device.node, NodeId{2});
  }
}

TEST(PlaceTables, SaysWhichTableHasNoRoom) {
  const std::vector<NodeSpec> nodes = Nodes(2, 1, 1'000'000);
  const auto placed =
      PlaceTables(Automatic({Spec("small", 100, 16), Spec("big", 1'000'000, 16)}), nodes, {});
  EXPECT_EQ(placed.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(placed.status().message()), HasSubstr("big"));
}

}  // namespace
}  // namespace embla::planner
