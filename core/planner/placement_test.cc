#include "core/planner/placement.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/plan/names.h"
#include "core/planner/placement_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ShardingType kAllTypes[] = {ShardingType::kDataParallel, ShardingType::kTableWise,
                                      ShardingType::kColumnWise,   ShardingType::kTableColumnWise,
                                      ShardingType::kRowWise,      ShardingType::kTableRowWise,
                                      ShardingType::kGridShard};

std::vector<NodeSpec> Nodes(std::uint32_t nodes, std::uint32_t devices,
                            std::int64_t memory_bytes = std::int64_t{1} << 40) {
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

TableSpec Spec(std::int64_t rows, std::uint32_t dim) {
  TableSpec spec{.name = "t", .rows = rows, .dim = dim};
  spec.optimizer.kind = OptimizerKind::kSgd;  // Bytes are then rows x columns x 4.
  return spec;
}

TablePlan PlaceOrDie(const TableSpec& spec, const PlacementRequest& request,
                     const std::vector<NodeSpec>& nodes,
                     const std::vector<TablePlan>& existing = {}) {
  absl::StatusOr<TablePlan> table = PlaceTable(spec, request, nodes, TableList(existing));
  EXPECT_THAT(table, IsOk());
  return table.ok() ? *std::move(table) : TablePlan();
}

std::vector<std::int64_t> RowsOf(const TablePlan& table) {
  std::vector<std::int64_t> rows;
  for (const Slice& slice : table.primary()) rows.push_back(slice.rows());
  return rows;
}

std::vector<std::string> DevicesOf(const TablePlan& table) {
  std::vector<std::string> devices;
  for (const Slice& slice : table.primary()) {
    devices.push_back(std::to_string(ToInt(slice.device.node)) + ":" +
                      std::to_string(slice.device.index));
  }
  return devices;
}

// Plan::Validate wants an id.
absl::Status ValidateOn(TablePlan table, const std::vector<NodeSpec>& nodes) {
  table.spec.id = TableId{1};
  return Plan(PlanVersion{1}, "c", nodes, {table}).Validate();
}

// --- The shape of each type.

TEST(PlaceTableRowWise, Takes100MillionRowsTo16DevicesOfTwoNodes) {
  const TablePlan table =
      PlaceOrDie(Spec(1'600'000'000, 64), {.sharding = ShardingType::kRowWise}, Nodes(2, 8));
  ASSERT_EQ(table.replicas.size(), 1u);
  EXPECT_EQ(RowsOf(table), std::vector<std::int64_t>(16, 100'000'000));
  std::set<DeviceId> devices;
  for (const Slice& slice : table.primary()) devices.insert(slice.device);
  EXPECT_EQ(devices.size(), 16u);
}

TEST(PlaceTableTableRowWise, UsesTheDevicesOfOneNodeOnly) {
  const TablePlan table =
      PlaceOrDie(Spec(1'600'000'000, 64), {.sharding = ShardingType::kTableRowWise}, Nodes(2, 8));
  EXPECT_EQ(RowsOf(table), std::vector<std::int64_t>(8, 200'000'000));
  EXPECT_EQ(HoldersOf(table).size(), 1u);
}

TEST(PlaceTableRowWise, StoresNoEmptySlicesAndUsesTheLeastLoadedDevices) {
  const auto nodes = Nodes(2, 4);
  TablePlan busy = PlaceOrDie(Spec(1000, 4), {.sharding = ShardingType::kTableWise}, nodes);
  EXPECT_THAT(DevicesOf(busy), ElementsAre("1:0"));
  const TablePlan table =
      PlaceOrDie(Spec(3, 4), {.sharding = ShardingType::kRowWise}, nodes, {busy});
  EXPECT_THAT(RowsOf(table), ElementsAre(1, 1, 1));
  EXPECT_THAT(DevicesOf(table), ElementsAre("1:1", "1:2", "1:3"));
}

TEST(PlaceTableColumnWise, PutsEachBlockOnTheLeastLoadedDevice) {
  const auto nodes = Nodes(2, 2);
  const TablePlan busy = PlaceOrDie(Spec(10, 4), {.sharding = ShardingType::kTableWise}, nodes);
  const TablePlan table = PlaceOrDie(
      Spec(100, 96), {.sharding = ShardingType::kColumnWise, .min_partition = 32}, nodes, {busy});
  EXPECT_THAT(DevicesOf(table), ElementsAre("1:1", "2:0", "2:1"));
  for (const Slice& slice : table.primary()) EXPECT_EQ(slice.columns(), 32u);
}

TEST(PlaceTableTableColumnWise, StaysOnTheNodeWithTheMostRoom) {
  const auto nodes = Nodes(2, 2);
  const TablePlan busy = PlaceOrDie(Spec(10, 4), {.sharding = ShardingType::kTableWise}, nodes);
  const TablePlan table =
      PlaceOrDie(Spec(100, 64), {.sharding = ShardingType::kTableColumnWise, .min_partition = 16},
                 nodes, {busy});
  EXPECT_THAT(DevicesOf(table), ElementsAre("2:0", "2:1", "2:0", "2:1"));
}

TEST(PlaceTableGridShard, PutsColumnBlocksOnNodesAndSplitsTheirRows) {
  const TablePlan table = PlaceOrDie(
      Spec(100, 64), {.sharding = ShardingType::kGridShard, .min_partition = 32}, Nodes(2, 2));
  EXPECT_THAT(DevicesOf(table), ElementsAre("1:0", "1:1", "2:0", "2:1"));
  EXPECT_THAT(RowsOf(table), ElementsAre(50, 50, 50, 50));
  EXPECT_EQ(table.primary()[2].column_begin, 32u);
}

TEST(PlaceTableGridShard, ReusesNodesWhenThereAreMoreBlocksThanNodes) {
  const TablePlan table = PlaceOrDie(
      Spec(100, 64), {.sharding = ShardingType::kGridShard, .min_partition = 16}, Nodes(2, 2));
  EXPECT_THAT(DevicesOf(table),
              ElementsAre("1:0", "1:1", "2:0", "2:1", "1:0", "1:1", "2:0", "2:1"));
}

TEST(PlaceTableDataParallel, CopiesToOneDeviceOfEveryNodePrimaryOnTheLeastLoaded) {
  const auto nodes = Nodes(3, 2);
  const TablePlan big =
      PlaceOrDie(Spec(100, 4), {.sharding = ShardingType::kRowWise, .nodes = {"n0"}}, nodes);
  const TablePlan table =
      PlaceOrDie(Spec(10, 4), {.sharding = ShardingType::kDataParallel}, nodes, {big});
  ASSERT_EQ(table.replicas.size(), 3u);
  EXPECT_EQ(table.primary()[0].device, (DeviceId{NodeId{2}, 0}));
  EXPECT_EQ(table.replicas[1][0].device, (DeviceId{NodeId{1}, 0}));
  EXPECT_EQ(table.replicas[2][0].device, (DeviceId{NodeId{3}, 0}));
}

// --- Column widths: TorchRec's base_dim.

TEST(ColumnBlockWidth, FollowsTorchRecsRule) {
  struct Vector {
    std::uint32_t dim, min_partition, width;
  };
  const Vector vectors[] = {{64, 0, 64},   {128, 0, 128}, {192, 0, 192}, {256, 0, 128},
                            {512, 0, 128}, {256, 32, 32}, {96, 32, 32},  {130, 0, 130},
                            {200, 0, 200}, {250, 0, 250}, {384, 0, 128}, {8, 4, 4},
                            {12, 5, 12},   {100, 10, 20}, {6, 1, 6},     {64, 100, 64}};
  for (const Vector& vector : vectors) {
    TableSpec spec = Spec(10, vector.dim);
    spec.SetDefaults();
    EXPECT_EQ(ColumnBlockWidth(spec, vector.min_partition), vector.width)
        << vector.dim << " with min_partition " << vector.min_partition;
  }
}

TEST(ColumnBlockWidth, CutsOnGranulesOnly) {
  TableSpec spec = Spec(10, 96);
  spec.column_granule_width = 24;
  spec.SetDefaults();
  EXPECT_EQ(ColumnBlockWidth(spec, 32), 48u);
  spec.column_granule_width = 96;
  EXPECT_EQ(ColumnBlockWidth(spec, 4), 96u);
}

// --- Constraints and refusals.

TEST(PlaceTableConstraints, KeepToTheNamedNodesAndDevices) {
  const TablePlan table =
      PlaceOrDie(Spec(100, 4),
                 {.sharding = ShardingType::kRowWise, .nodes = {"n2", "n0", "n2"}, .devices = {1}},
                 Nodes(3, 2));
  EXPECT_THAT(DevicesOf(table), ElementsAre("1:1", "3:1"));
}

void ExpectRefused(const absl::StatusOr<TablePlan>& table, absl::StatusCode code,
                   const std::string& says) {
  EXPECT_EQ(table.status().code(), code);
  EXPECT_THAT(std::string(table.status().message()), HasSubstr(says));
}

TEST(PlaceTableConstraints, RefuseUnknownNodesAndDevices) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused(PlaceTable(Spec(10, 4), {.nodes = {"n7"}}, Nodes(2, 2), {}), kInvalid, "\"n7\"");
  ExpectRefused(PlaceTable(Spec(10, 4), {.devices = {2}}, Nodes(2, 2), {}), kInvalid,
                "node n0 has no device 2");
  ExpectRefused(PlaceTable(Spec(10, 4), {}, {}, {}), kInvalid, "no nodes");
  ExpectRefused(PlaceTable(Spec(0, 4), {}, Nodes(1, 1), {}), kInvalid, "rows");
}

TEST(PlaceTableMemory, NamesTheDeviceAndTheBytes) {
  const auto nodes = Nodes(2, 2, 1000);
  ExpectRefused(PlaceTable(Spec(100, 4), {.sharding = ShardingType::kTableWise}, nodes, {}),
                absl::StatusCode::kResourceExhausted,
                "table t needs 1.56 KiB on device 0 of node n0, which has 1000 B of 1000 B free: "
                "600 B short");
  EXPECT_THAT(PlaceTable(Spec(100, 4), {.sharding = ShardingType::kTableRowWise}, nodes, {}),
              IsOk());
}

TEST(PlaceTableMemory, FillsWhatIsFreeAndRefusesTheNext) {
  const auto nodes = Nodes(2, 2, 1000);
  for (const ShardingType type : kAllTypes) {
    SCOPED_TRACE(std::string(NameOf(type)));
    std::vector<TablePlan> existing;
    while (existing.size() < 100) {
      auto table = PlaceTable(Spec(10, 8), {.sharding = type, .min_partition = 4}, nodes,
                              TableList(existing));
      if (!table.ok()) {
        EXPECT_EQ(table.status().code(), absl::StatusCode::kResourceExhausted);
        break;
      }
      existing.push_back(*table);
    }
    EXPECT_LT(existing.size(), 100u);
    for (const auto& [device, bytes] : DeviceLoads(existing)) {
      EXPECT_LE(bytes, 1000);
      EXPECT_GT(bytes, 1000 - 320);
    }
  }
}

TEST(PlaceTableGivenUp, EndsWithTheNextNodeThatIsTried) {
  for (const ShardingType type :
       {ShardingType::kTableColumnWise, ShardingType::kTableRowWise, ShardingType::kGridShard}) {
    SCOPED_TRACE(std::string(NameOf(type)));
    int asked = 0;
    const auto table = PlaceTable(Spec(100, 64), {.sharding = type}, Nodes(50, 2), {},
                                  [&asked] { return ++asked > 3; });
    EXPECT_EQ(table.status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(asked, 4);
  }
}

TEST(PlaceTableOptimizer, RefusesL2WithARowStatisticOnlyWhereColumnsAreCut) {
  TableSpec spec = Spec(100, 64);
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  spec.optimizer.weight_decay = 0.1f;
  spec.optimizer.weight_decay_mode = WeightDecayMode::kL2;
  for (const ShardingType type : kAllTypes) {
    const bool cuts = type == ShardingType::kColumnWise || type == ShardingType::kGridShard ||
                      type == ShardingType::kTableColumnWise;
    const auto table = PlaceTable(spec, {.sharding = type, .min_partition = 16}, Nodes(2, 2), {});
    if (cuts) {
      ExpectRefused(table, absl::StatusCode::kInvalidArgument,
                    "use decoupled decay or a type that keeps rows whole");
    } else {
      EXPECT_THAT(table, IsOk());
    }
  }
  spec.optimizer.weight_decay_mode = WeightDecayMode::kDecoupled;
  EXPECT_THAT(PlaceTable(spec, {.sharding = ShardingType::kColumnWise, .min_partition = 16},
                         Nodes(2, 2), {}),
              IsOk());
}

// --- Properties over random tables, nodes and types.

struct Case {
  std::vector<NodeSpec> nodes;
  std::vector<TablePlan> existing;
  TableSpec spec;
  PlacementRequest request;
};

TableSpec RandomSpec(std::mt19937& random) {
  TableSpec spec{.name = "t",
                 .rows = static_cast<std::int64_t>(1 + random() % (1u << (random() % 31))),
                 .dim = static_cast<std::uint32_t>(1 + random() % (random() % 2 == 0 ? 2048 : 96))};
  spec.dtype = static_cast<DType>(1 + random() % 3);
  spec.optimizer.kind = static_cast<OptimizerKind>(1 + random() % 4);
  if (random() % 2 == 0) {
    spec.row_granules =
        static_cast<std::uint32_t>(1 + random() % std::min<std::int64_t>(spec.rows, 9000));
  }
  if (random() % 2 == 0)
    spec.column_granule_width = 4 * static_cast<std::uint32_t>(1 + random() % 40);
  return spec;
}

Case RandomCase(unsigned seed) {
  std::mt19937 random(seed);
  Case c;
  c.nodes = Nodes(1 + random() % 5, 1 + random() % 5, std::int64_t{1} << 60);
  for (unsigned i = random() % 4; i > 0; --i) {
    const PlacementRequest request{.sharding = kAllTypes[random() % 7]};
    c.existing.push_back(PlaceOrDie(RandomSpec(random), request, c.nodes, c.existing));
  }
  c.spec = RandomSpec(random);
  c.request.sharding = kAllTypes[random() % 7];
  if (random() % 2 == 0) c.request.min_partition = static_cast<std::uint32_t>(random() % 200);
  if (random() % 3 == 0) c.request.nodes = {c.nodes[random() % c.nodes.size()].name};
  if (random() % 3 == 0) c.request.devices = {0};
  return c;
}

class PlaceTableProperty : public ::testing::TestWithParam<unsigned> {};

TEST_P(PlaceTableProperty, EveryPlanIsValidAndTheOrderOfNodesDoesNotMatter) {
  for (unsigned seed = GetParam() * 100; seed < GetParam() * 100 + 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Case c = RandomCase(seed);
    const TablePlan table = PlaceOrDie(c.spec, c.request, c.nodes, c.existing);
    ASSERT_THAT(ValidateOn(table, c.nodes), IsOk());
    std::mt19937 random(seed);
    std::shuffle(c.nodes.begin(), c.nodes.end(), random);
    ASSERT_EQ(PlaceOrDie(c.spec, c.request, c.nodes, c.existing), table);
  }
}

TEST_P(PlaceTableProperty, RowSplitsAreEqualToOneGranule) {
  for (unsigned seed = GetParam() * 100; seed < GetParam() * 100 + 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Case c = RandomCase(seed);
    c.request = {.sharding = seed % 2 == 0 ? ShardingType::kRowWise : ShardingType::kTableRowWise};
    const TablePlan table = PlaceOrDie(c.spec, c.request, c.nodes, c.existing);
    const std::vector<std::int64_t> rows = RowsOf(table);
    const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
    const std::int64_t granule_rows_max =
        (c.spec.rows + table.spec.row_granules - 1) / table.spec.row_granules;
    EXPECT_LE(*most - *least, granule_rows_max + 1);
    const std::size_t devices = c.nodes[0].devices.size() *
                                (c.request.sharding == ShardingType::kRowWise ? c.nodes.size() : 1);
    EXPECT_EQ(rows.size(), std::min<std::size_t>(devices, table.spec.row_granules));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlaceTableProperty, ::testing::Range(0u, 5u));

TEST(DeviceLoads, AddsUpToTheBytesOfEveryCopy) {
  for (const ShardingType type : kAllTypes) {
    const auto nodes = Nodes(3, 2);
    const TablePlan table =
        PlaceOrDie(Spec(1000, 64), {.sharding = type, .min_partition = 16}, nodes);
    std::int64_t bytes = 0;
    for (const auto& [device, load] : DeviceLoads({table})) bytes += load;
    const std::int64_t copies = type == ShardingType::kDataParallel ? 3 : 1;
    EXPECT_EQ(bytes, copies * 1000 * 64 * 4) << NameOf(type);
  }
}

// --- JSON.

TEST(PlacementRequestJson, RoundTripsAndNeedsOnlyTheType) {
  const PlacementRequest request{.sharding = ShardingType::kGridShard,
                                 .nodes = {"n0", "n1"},
                                 .devices = {0, 3},
                                 .min_partition = 32};
  EXPECT_EQ(*PlacementRequestFromJson(PlacementRequestToJson(request)), request);
  EXPECT_EQ(*PlacementRequestFromJson(R"({"sharding": "row_wise"})"),
            (PlacementRequest{.sharding = ShardingType::kRowWise}));
}

TEST(PlacementRequestJson, RefusesWhatItDoesNotKnow) {
  for (const char* const text :
       {"{}", "[]", R"({"sharding": "rows"})", R"({"sharding": 5})",
        R"({"sharding": "row_wise", "node": ["n0"]})", R"({"sharding": "row_wise", "nodes": "n0"})",
        R"({"sharding": "row_wise", "nodes": [1]})", R"({"sharding": "row_wise", "devices": [-1]})",
        R"({"sharding": "row_wise", "devices": [4294967296]})",
        R"({"sharding": "row_wise", "min_partition": 2049})"}) {
    EXPECT_EQ(PlacementRequestFromJson(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

// --- Replica groups.

TEST(PlaceTableGroups, PutsTheCopiesOfASliceOnOneNodeForEveryType) {
  for (const ShardingType type : kAllTypes) {
    if (type == ShardingType::kDataParallel) continue;
    TableSpec spec = Spec(1000, 64);
    spec.replica_groups = 2;
    const std::vector<NodeSpec> nodes = Nodes(3, 4);
    const TablePlan table = PlaceOrDie(spec, {.sharding = type, .min_partition = 16}, nodes);
    ASSERT_EQ(table.replicas.size(), 2u) << NameOf(type);
    EXPECT_THAT(ValidateOn(table, nodes), IsOk()) << NameOf(type);
    for (const Slice& slice : table.replicas[0]) EXPECT_LT(slice.device.index, 2u);
    for (const Slice& slice : table.replicas[1]) EXPECT_GE(slice.device.index, 2u);
  }
}

TEST(PlaceTableGroups, CountTheFullestOfTheCopies) {
  TableSpec spec = Spec(1000, 4);  // 16,000 bytes.
  spec.replica_groups = 2;
  const std::vector<NodeSpec> nodes = Nodes(1, 4, 20'000);
  // Device 3, the copy of device 1, is taken by another table: devices 0 and 2 must be used.
  const TablePlan other = PlaceOrDie(Spec(1000, 4), {.devices = {3}}, nodes);
  const TablePlan table = PlaceOrDie(spec, {}, nodes, {other});
  EXPECT_EQ(table.replicas[0][0].device.index, 0u);
  EXPECT_EQ(table.replicas[1][0].device.index, 2u);
  const absl::Status full = PlaceTable(spec, {}, nodes, TableList{other, table}).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
}

TEST(PlaceTableGroups, NeedDevicesThatCanBeSharedEvenly) {
  TableSpec spec = Spec(1000, 4);
  spec.replica_groups = 3;
  const absl::Status odd = PlaceTable(spec, {}, Nodes(2, 4), {}).status();
  EXPECT_EQ(odd.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(odd.message()), HasSubstr("node n0 has 4 devices"));
  spec.replica_groups = 2;
  for (const std::vector<std::uint32_t>& devices :
       std::vector<std::vector<std::uint32_t>>{{0}, {2, 3}, {0, 3}, {0, 1, 2}}) {
    const absl::Status status = PlaceTable(spec, {.devices = devices}, Nodes(1, 4), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not the same in all 2"));
  }
  EXPECT_THAT(PlaceTable(spec, {.devices = {1, 3}}, Nodes(1, 4), {}), IsOk());
  const absl::Status parallel =
      PlaceTable(spec, {.sharding = ShardingType::kDataParallel}, Nodes(1, 4), {}).status();
  EXPECT_THAT(std::string(parallel.message()), HasSubstr("data_parallel"));
}

PlacementRequest At(ShardingType type, std::vector<std::string> targets,
                    std::uint32_t min_partition = 0) {
  return {.sharding = type, .min_partition = min_partition, .targets = std::move(targets)};
}

TEST(PlaceTable, TargetsSayExactlyWhere) {
  EXPECT_THAT(
      DevicesOf(PlaceOrDie(Spec(8, 4), At(ShardingType::kTableWise, {"n1:2"}), Nodes(2, 3))),
      ElementsAre("2:2"));
  EXPECT_THAT(DevicesOf(PlaceOrDie(Spec(8, 8), At(ShardingType::kColumnWise, {"n1:0", "n0:1"}, 4),
                                   Nodes(2, 2))),
              ElementsAre("2:0", "1:1"));
  EXPECT_THAT(
      DevicesOf(PlaceOrDie(Spec(8, 4), At(ShardingType::kTableRowWise, {"n1"}), Nodes(2, 2))),
      ElementsAre("2:0", "2:1"));
  EXPECT_THAT(
      DevicesOf(PlaceOrDie(Spec(8, 8), At(ShardingType::kGridShard, {"n1", "n0"}, 4), Nodes(2, 2))),
      ElementsAre("2:0", "2:1", "1:0", "1:1"));
}

TEST(PlaceTable, RefusesTargetsThatDoNotFit) {
  const struct {
    PlacementRequest request;
    const char* message;
  } cases[] = {
      {At(ShardingType::kTableWise, {"n0:0", "n0:1"}), "1 column blocks, but there are 2 targets"},
      {At(ShardingType::kTableWise, {"n0:7"}), "\"n0:7\" is no allowed device"},
      {At(ShardingType::kTableRowWise, {"n0:0"}), "\"n0:0\" is no allowed node"},
      {At(ShardingType::kRowWise, {"n0"}), "row_wise has no targets"},
      {At(ShardingType::kDataParallel, {"n0:0"}), "data_parallel has no targets"},
      {{.automatic = true}, "needs the planner"},
  };
  for (const auto& [request, message] : cases) {
    const auto table = PlaceTable(Spec(8, 8), request, Nodes(2, 2), {});
    EXPECT_THAT(std::string(table.status().message()), HasSubstr(message));
  }
}

TEST(PlacementJson, TargetsAndAutoComeBack) {
  PlacementRequest request = At(ShardingType::kColumnWise, {"a:0", "b:1"}, 8);
  EXPECT_EQ(*PlacementRequestFromJson(PlacementRequestToJson(request)), request);
  request = {.automatic = true, .nodes = {"a"}};
  EXPECT_EQ(*PlacementRequestFromJson(PlacementRequestToJson(request)), request);
}

}  // namespace
}  // namespace embla
