// Plans of moves on random clusters: every property by counting, none by the planner's own code.
#include "server/coordinator/move_plan.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/unit_tiling.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

constexpr std::int64_t kNodeMemory = 1 << 20;

NodeSpec NodeOf(std::uint32_t id, std::uint32_t devices, std::int64_t memory = kNodeMemory) {
  return {.id = NodeId{id},
          .name = "n" + std::to_string(id),
          .address = "h:1",
          .devices = std::vector<DeviceSpec>(devices, {DeviceKind::kCpu, memory})};
}

TablePlan Table(std::uint32_t id, const PlacementRequest& request,
                const std::vector<NodeSpec>& nodes, const std::vector<TablePlan>& tables,
                std::uint32_t granules = 64, std::int64_t rows = 1000, std::uint32_t groups = 1) {
  TableSpec spec{.id = TableId{id},
                 .name = "t" + std::to_string(id),
                 .rows = rows,
                 .dim = 16,
                 .row_granules = granules};
  spec.replica_groups = groups;
  spec.SetDefaults();
  auto table = PlaceTable(spec, request, nodes, TableList(tables));
  EXPECT_THAT(table, IsOk());
  return table.ok() ? *std::move(table) : TablePlan{};
}

std::set<NodeId> AllOf(const std::vector<NodeSpec>& nodes) {
  std::set<NodeId> ids;
  for (const NodeSpec& node : nodes) ids.insert(node.id);
  return ids;
}

// The plan when all moves are over; checks what is true of every plan of moves.
Plan After(const MoveScope& scope, const MovePlan& moves) {
  std::vector<TablePlan> tables(scope.plan.tables().begin(), scope.plan.tables().end());
  std::map<DeviceId, std::int64_t> incoming;
  std::int64_t bytes = 0;
  for (TablePlan& table : tables) {
    std::vector<MoveRun> runs;
    for (const MoveRun& run : moves.runs) {
      if (run.table == table.spec.id) runs.push_back(run);
    }
    if (!runs.empty()) SetTiling(scope.plan, TilingAfter(table, runs), table);
  }
  for (const MoveRun& run : moves.runs) {
    EXPECT_NE(run.from, run.to);
    EXPECT_FALSE(scope.drained.contains(run.to.node));
    EXPECT_TRUE(scope.live.contains(run.to.node) && scope.live.contains(run.from.node));
    const TableSpec& spec = scope.plan.FindTable(run.table)->spec;
    const NodeSpec& node = *scope.plan.FindNode(run.to.node);
    const auto per_group = static_cast<std::uint32_t>(node.devices.size() / spec.replica_groups);
    EXPECT_LT(run.to.index, per_group);
    for (std::uint32_t group = 0; group < spec.replica_groups; ++group) {
      incoming[{run.to.node, run.to.index + group * per_group}] += run.bytes / spec.replica_groups;
    }
    bytes += run.bytes;
  }
  for (const auto& [device, arriving] : incoming) {
    EXPECT_EQ(std::ranges::count(moves.rooms, device, &DeviceRoom::device), 1);
  }
  EXPECT_EQ(moves.bytes(), bytes);
  for (const DeviceRoom& room : moves.rooms) {
    EXPECT_LE(room.peak_bytes, room.memory_bytes);
    EXPECT_EQ(room.peak_bytes, room.used_bytes + incoming[room.device]);
  }
  Plan after(PlanVersion{2}, "c", scope.plan.nodes(), tables);
  EXPECT_THAT(after.Validate(), IsOk());
  return after;
}

std::map<DeviceId, std::uint32_t> CountsOf(const UnitCut& cut) {
  std::map<DeviceId, std::uint32_t> counts;
  for (const DeviceId device : cut.owners) ++counts[device];
  return counts;
}

// The fewest granules that any balanced tiling on the best `shards` devices moves.
std::uint32_t FewestMoved(const UnitCut& cut, const std::set<NodeId>& drained,
                          std::uint32_t shards) {
  std::vector<std::uint32_t> have;
  for (const auto& [device, count] : CountsOf(cut)) {
    if (!drained.contains(device.node)) have.push_back(count);
  }
  std::ranges::sort(have, std::ranges::greater());
  const auto granules = static_cast<std::uint32_t>(cut.owners.size());
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < std::min<std::size_t>(shards, have.size()); ++i) {
    kept += std::min(have[i], granules / shards + (i < granules % shards ? 1 : 0));
  }
  return granules - kept;
}

PlacementRequest RandomRequest(std::mt19937& random) {
  constexpr ShardingType kTypes[] = {ShardingType::kTableWise,       ShardingType::kColumnWise,
                                     ShardingType::kTableColumnWise, ShardingType::kRowWise,
                                     ShardingType::kTableRowWise,    ShardingType::kGridShard};
  return {.sharding = kTypes[random() % 6], .min_partition = random() % 2 == 0 ? 4u : 0u};
}

TEST(MovePlanReshard, MovesTheFewestUnitsAndBalancesToOne) {
  int planned = 0;
  const std::vector<std::uint32_t> seeds = embla::testing::TestSeeds(300);
  for (const std::uint32_t seed : seeds) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<NodeSpec> nodes;
    for (std::uint32_t n = 1; n <= 2 + random() % 4; ++n)
      nodes.push_back(NodeOf(n, 1 + random() % 3));
    Plan plan(PlanVersion{1}, "c", nodes,
              {Table(1, RandomRequest(random), nodes, {}, 32 + random() % 100)});
    MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
    if (random() % 4 == 0) scope.drained.insert(nodes.back().id);
    const std::uint32_t shards = 1 + random() % 6;
    const auto moves = PlanReshard(scope, "t1", shards);
    std::uint32_t devices = 0;
    for (const NodeSpec& node : nodes) {
      if (!scope.drained.contains(node.id)) devices += node.devices.size();
    }
    EXPECT_EQ(moves.ok(), shards <= devices) << moves.status();
    if (!moves.ok()) {
      EXPECT_EQ(moves.status().code(), absl::StatusCode::kFailedPrecondition) << moves.status();
      continue;
    }
    ++planned;
    const Plan after = After(scope, *moves);
    std::uint32_t fewest = 0;
    for (const UnitCut& cut : CutsOf(plan.tables()[0])) {
      fewest += FewestMoved(cut, scope.drained, shards);
    }
    EXPECT_EQ(moves->units(), fewest);
    for (const UnitCut& cut : CutsOf(after.tables()[0])) {
      const auto counts = CountsOf(cut);
      EXPECT_EQ(counts.size(), shards);
      for (const auto& [device, count] : counts) {
        EXPECT_GE(count, cut.owners.size() / shards);
        EXPECT_LE(count, (cut.owners.size() + shards - 1) / shards);
      }
    }
  }
  if (seeds.size() > 1) {
    EXPECT_GT(planned, 100);
  }
}

TEST(MovePlanReshard, OneMoreNodeTakesItsShareOnly) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 1), NodeOf(2, 1), NodeOf(3, 1)};
  const TablePlan table = Table(1, {.sharding = ShardingType::kRowWise}, nodes, {}, 4000, 8000);
  nodes.push_back(NodeOf(4, 1));
  const Plan plan(PlanVersion{1}, "c", nodes, {table});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const auto moves = PlanReshard(scope, "t1", 4);
  ASSERT_THAT(moves, IsOk());
  EXPECT_EQ(moves->units(), 1000u);
  EXPECT_EQ(moves->runs.size(), 3u);  // One from each.
  for (const MoveRun& run : moves->runs) EXPECT_EQ(run.to, (DeviceId{NodeId{4}, 0}));
  // Two of them lie side by side.
  EXPECT_LE(After(scope, *moves).tables()[0].primary().size(), 6u);
}

TEST(MovePlanReshard, BucketsOfAZchTableMoveWhole) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 1), NodeOf(2, 1)};
  TableSpec spec{.id = TableId{1}, .name = "t1", .rows = 6400, .dim = 16};
  spec.zch = ZchSpec{.buckets = 30};
  spec.rows = spec.zch->RoundUp(spec.rows);
  spec.SetDefaults();
  const auto table = PlaceTable(spec, {.sharding = ShardingType::kRowWise}, nodes, {});
  ASSERT_THAT(table, IsOk());
  nodes.push_back(NodeOf(3, 1));
  const Plan plan(PlanVersion{1}, "c", nodes, {*table});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const auto moves = PlanReshard(scope, "t1", 3);
  ASSERT_THAT(moves, IsOk());
  EXPECT_EQ(moves->units(), 10u);
  EXPECT_EQ(CountsOf(CutsOf(After(scope, *moves).tables()[0])[0]).size(), 3u);
}

TEST(MovePlanReshard, NothingMovesWhenAllIsWell) {
  const std::vector<NodeSpec> nodes = {NodeOf(1, 2), NodeOf(2, 2)};
  const Plan plan(PlanVersion{1}, "c", nodes,
                  {Table(1, {.sharding = ShardingType::kRowWise}, nodes, {})});
  const auto moves = PlanReshard({.plan = plan, .live = AllOf(nodes), .drained = {}}, "t1", 4);
  ASSERT_THAT(moves, IsOk());
  EXPECT_TRUE(moves->runs.empty());
}

TEST(MovePlanReshard, NewDevicesAreSpreadOverNodes) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 3)};
  const TablePlan table = Table(1, {.sharding = ShardingType::kTableWise}, nodes, {});
  nodes.push_back(NodeOf(2, 3));
  nodes.push_back(NodeOf(3, 3));
  const Plan plan(PlanVersion{1}, "c", nodes, {table});
  const auto moves = PlanReshard({.plan = plan, .live = AllOf(nodes), .drained = {}}, "t1", 3);
  ASSERT_THAT(moves, IsOk());
  std::set<NodeId> takers;
  for (const MoveRun& run : moves->runs) takers.insert(run.to.node);
  EXPECT_EQ(takers, (std::set{NodeId{2}, NodeId{3}}));
}

TEST(MovePlanReshard, SaysWhyNot) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 2), NodeOf(2, 1, 20000)};
  const TablePlan table = Table(1, {.sharding = ShardingType::kTableWise}, nodes, {});
  const TablePlan copied = Table(2, {.sharding = ShardingType::kDataParallel}, {NodeOf(1, 2)}, {});
  const Plan plan(PlanVersion{1}, "c", nodes, {table, copied});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  EXPECT_EQ(PlanReshard(scope, "t9", 2).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(PlanReshard(scope, "t1", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanReshard(scope, "t1", 65).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanReshard(scope, "t1", 4).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MovePlanReshard, UnitsGoToOtherDevicesOfTheirNodeFirst) {
  const std::vector<NodeSpec> nodes = {NodeOf(1, 2), NodeOf(2, 2)};
  const Plan plan(PlanVersion{1}, "c", nodes,
                  {Table(1, {.sharding = ShardingType::kRowWise}, nodes, {})});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const auto down = PlanReshard(scope, "t1", 2);
  ASSERT_THAT(down, IsOk());
  EXPECT_EQ(down->units(), 32u);
  for (const MoveRun& run : down->runs) EXPECT_EQ(run.from.node, run.to.node);
  const Plan two = After(scope, *down);
  const auto up = PlanReshard({.plan = two, .live = AllOf(nodes), .drained = {}}, "t1", 4);
  ASSERT_THAT(up, IsOk());
  EXPECT_EQ(up->units(), 32u);
  for (const MoveRun& run : up->runs) EXPECT_EQ(run.from.node, run.to.node);
  const auto one = PlanReshard(scope, "t1", 1);
  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(one->units(), 48u);
}

TEST(MovePlanReshard, NoDeviceIsGivenMoreThanItHas) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 1)};
  const TablePlan table = Table(1, {.sharding = ShardingType::kTableWise}, nodes, {});
  nodes.push_back(NodeOf(2, 1, 1000));
  const Plan plan(PlanVersion{1}, "c", nodes, {table});
  const auto moves = PlanReshard({.plan = plan, .live = AllOf(nodes), .drained = {}}, "t1", 2);
  EXPECT_EQ(moves.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(moves.status()), HasSubstr("the most, 1000 B, is free on node n2"));
}

TEST(MovePlanReshard, ADeadNodeTakesNoPart) {
  const std::vector<NodeSpec> nodes = {NodeOf(1, 1), NodeOf(2, 1), NodeOf(3, 1)};
  const Plan plan(PlanVersion{1}, "c", nodes,
                  {Table(1, {.sharding = ShardingType::kRowWise}, nodes, {})});
  const MoveScope scope{.plan = plan, .live = {NodeId{1}, NodeId{2}}, .drained = {}};
  const auto moves = PlanReshard(scope, "t1", 2);
  EXPECT_EQ(moves.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(moves.status()), HasSubstr("node n3"));
}

TEST(MovePlanMove, MovesWhatIsNotThereYet) {
  const std::vector<NodeSpec> nodes = {NodeOf(1, 1), NodeOf(2, 1)};
  const Plan plan(PlanVersion{1}, "c", nodes,
                  {Table(1, {.sharding = ShardingType::kRowWise}, nodes, {})});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const DeviceId to{NodeId{2}, 0};
  const auto moves = PlanMove(scope, "t1", 30, 40, to);
  ASSERT_THAT(moves, IsOk());
  EXPECT_EQ(moves->units(), 2u);  // Granules 30 and 31.
  for (const UnitCut& cut : CutsOf(After(scope, *moves).tables()[0])) {
    for (std::uint32_t granule = 30; granule < 40; ++granule) EXPECT_EQ(cut.owners[granule], to);
  }
  EXPECT_TRUE(PlanMove(scope, "t1", 32, 64, to)->runs.empty());
  EXPECT_EQ(PlanMove(scope, "t1", 40, 40, to).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanMove(scope, "t1", 0, 65, to).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanMove(scope, "t1", 0, 1, {NodeId{2}, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanMove(scope, "t1", 0, 1, {NodeId{9}, 0}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(MovePlanDrain, EmptiesTheNodeIfOthersHaveRoom) {
  int planned = 0;
  const std::vector<std::uint32_t> seeds = embla::testing::TestSeeds(200);
  for (const std::uint32_t seed : seeds) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<NodeSpec> nodes;
    const std::int64_t memory = 40'000 + static_cast<std::int64_t>(random() % 200'000);
    for (std::uint32_t n = 1; n <= 2 + random() % 4; ++n) {
      nodes.push_back(NodeOf(n, 1 + random() % 3, memory));
    }
    std::vector<TablePlan> tables;
    for (std::uint32_t t = 1; t <= 1 + random() % 4; ++t) {
      TableSpec spec{.id = TableId{t}, .name = "t" + std::to_string(t), .rows = 500, .dim = 16};
      spec.row_granules = 50;
      spec.SetDefaults();
      auto table = PlaceTable(spec, RandomRequest(random), nodes, TableList(tables));
      if (table.ok()) tables.push_back(*std::move(table));
    }
    const Plan plan(PlanVersion{1}, "c", nodes, tables);
    const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
    const NodeId node = nodes[random() % nodes.size()].id;
    const auto moves = PlanDrain(scope, node);
    if (!moves.ok()) {
      EXPECT_EQ(moves.status().code(), absl::StatusCode::kResourceExhausted) << moves.status();
      continue;
    }
    ++planned;
    const Plan after = After(scope, *moves);
    for (const TablePlan& table : after.tables()) EXPECT_FALSE(HoldersOf(table).contains(node));
    for (const MoveRun& run : moves->runs) EXPECT_EQ(run.from.node, node);
  }
  if (seeds.size() > 1) {
    EXPECT_GT(planned, 50);
  }
}

TEST(MovePlanDrain, SpreadsOverTheOtherHolders) {
  const std::vector<NodeSpec> nodes = {NodeOf(1, 1), NodeOf(2, 1), NodeOf(3, 1)};
  const Plan plan(PlanVersion{1}, "c", nodes,
                  {Table(1, {.sharding = ShardingType::kRowWise}, nodes, {}, 300, 3000)});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const auto moves = PlanDrain(scope, NodeId{2});
  ASSERT_THAT(moves, IsOk());
  for (const auto& [device, count] : CountsOf(CutsOf(After(scope, *moves).tables()[0])[0])) {
    EXPECT_NEAR(count, 150, 13);  // To a block of granules.
  }
}

// Two and three nodes of four devices in 2 groups, one of two, and one of three, which cannot be
// divided.
TEST(MovePlanOfGroups, AllCopiesMoveAndNodesThatCannotBeDividedTakeNone) {
  for (const std::uint32_t seed : embla::testing::TestSeeds(100)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<NodeSpec> nodes = {NodeOf(1, 4), NodeOf(2, 2)};
    if (random() % 2 == 0) nodes.push_back(NodeOf(3, 4));
    const TablePlan table = Table(1, RandomRequest(random), nodes, {}, 40, 1000, 2);
    nodes.push_back(NodeOf(4, 3));
    if (random() % 2 == 0) nodes.push_back(NodeOf(5, 2));
    const Plan plan(PlanVersion{1}, "c", nodes, {table});
    const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
    const NodeId drained = nodes[random() % 2].id;
    std::uint32_t takers = 0;  // Devices of group 0.
    for (const NodeSpec& node : nodes) {
      const auto devices = static_cast<std::uint32_t>(node.devices.size());
      if (node.id != drained && devices % 2 == 0) takers += devices / 2;
    }
    const auto drain = PlanDrain(scope, drained);
    ASSERT_THAT(drain, IsOk());
    const Plan without = After(scope, *drain);
    EXPECT_FALSE(HoldersOf(without.tables()[0]).contains(drained));
    EXPECT_FALSE(HoldersOf(without.tables()[0]).contains(NodeId{4}));
    const MoveScope next{.plan = without, .live = AllOf(nodes), .drained = {drained}};
    const auto reshard = PlanReshard(next, "t1", 1 + random() % takers);
    ASSERT_THAT(reshard, IsOk());
    const Plan even = After(next, *reshard);
    const MoveScope last{.plan = even, .live = AllOf(nodes), .drained = {drained}};
    EXPECT_TRUE(PlanRebalance(last)->runs.empty());
    EXPECT_EQ(PlanReshard(last, "t1", takers + 1).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST(MovePlanOfGroups, ADeviceIsNamedForGroup0AndRoomIsThatOfTheFullestCopy) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 4)};
  const TablePlan table = Table(1, {.sharding = ShardingType::kTableWise}, nodes, {}, 64, 1000, 2);
  nodes.push_back(NodeOf(2, 4));
  nodes[1].devices[3].memory_bytes = 1000;
  nodes.push_back(NodeOf(3, 3));
  const Plan plan(PlanVersion{1}, "c", nodes, {table});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const auto moves = PlanMove(scope, "t1", 0, 64, {NodeId{2}, 0});
  ASSERT_THAT(moves, IsOk());
  EXPECT_EQ(moves->bytes(), 2 * 1000 * (16 * 4 + 4));  // With a row's statistic.
  EXPECT_EQ(moves->rooms.size(), 4u);
  After(scope, *moves);
  const auto full = PlanMove(scope, "t1", 0, 64, {NodeId{2}, 1}).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(Message(full), HasSubstr("node n2 device 3"));
  const auto other = PlanMove(scope, "t1", 0, 64, {NodeId{2}, 2}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument) << other;
  EXPECT_THAT(Message(other), HasSubstr("0 to 1 on node n2, not 2"));
  EXPECT_EQ(PlanMove(scope, "t1", 0, 64, {NodeId{3}, 0}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(MovePlanRebalance, UnevenRowsBecomeEvenOnTheirDevices) {
  const std::vector<NodeSpec> nodes = {NodeOf(1, 1), NodeOf(2, 1), NodeOf(3, 1)};
  TablePlan table = Table(1, {.sharding = ShardingType::kRowWise}, nodes, {}, 60, 600);
  std::vector<UnitCut> cuts = CutsOf(table);
  for (std::uint32_t granule = 20; granule < 38; ++granule) {
    cuts[0].owners[granule] = {NodeId{1}, 0};
  }
  table.replicas[0] = SlicesOf(table.spec, cuts);
  const Plan plan(PlanVersion{1}, "c", nodes, {table});
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const auto moves = PlanRebalance(scope);
  ASSERT_THAT(moves, IsOk());
  EXPECT_EQ(moves->units(), 18u);
  for (const auto& [device, count] : CountsOf(CutsOf(After(scope, *moves).tables()[0])[0])) {
    EXPECT_EQ(count, 20u);
  }
}

TEST(MovePlanRebalance, WholeTablesLeaveTheFullestNode) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 1)};
  std::vector<TablePlan> tables;
  for (std::uint32_t t = 1; t <= 4; ++t) {
    tables.push_back(Table(t, {.sharding = ShardingType::kTableWise}, nodes, tables));
  }
  nodes.push_back(NodeOf(2, 1));
  const Plan plan(PlanVersion{1}, "c", nodes, tables);
  const MoveScope scope{.plan = plan, .live = AllOf(nodes), .drained = {}};
  const auto moves = PlanRebalance(scope);
  ASSERT_THAT(moves, IsOk());
  int moved = 0;
  const Plan after = After(scope, *moves);
  for (const TablePlan& table : after.tables()) {
    ASSERT_EQ(table.primary().size(), 1u);
    moved += table.primary()[0].device.node == NodeId{2} ? 1 : 0;
  }
  EXPECT_EQ(moved, 2);
  MoveScope drained{.plan = plan, .live = AllOf(nodes), .drained = {NodeId{2}}};
  EXPECT_TRUE(PlanRebalance(drained)->runs.empty());
}

// Rows of a table with one copy looked like those of any table, and became the job's units.
TEST(MovePlanRebalance, RowsOfADataParallelTableOfOneCopyStay) {
  std::vector<NodeSpec> nodes = {NodeOf(1, 1)};
  std::vector<TablePlan> tables;
  for (std::uint32_t t = 1; t <= 4; ++t) {
    tables.push_back(Table(t, {.sharding = ShardingType::kDataParallel}, nodes, tables));
  }
  nodes.push_back(NodeOf(2, 1));
  const Plan plan(PlanVersion{1}, "c", nodes, tables);
  const auto moves = PlanRebalance({.plan = plan, .live = AllOf(nodes), .drained = {}});
  ASSERT_THAT(moves, IsOk());
  EXPECT_TRUE(moves->runs.empty());
  EXPECT_EQ(moves->copies.size(), 4u);
}

}  // namespace
}  // namespace embla
