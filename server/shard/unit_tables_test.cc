// Units that are installed and released on a node, and refusals, call by call. unit_moves_test
// covers that rows survive this while trainers update them.
#include "server/shard/unit_tables.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::unit_tables_test {
namespace {

using ::embla::testing::Await;
using ::embla::testing::AwaitStatus;
using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::ScriptedGate;
using ::embla::testing::StatusIs;
using ::embla::testing::UpdatePartData;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

constexpr NodeId kSource{1};
constexpr NodeId kTarget{2};
constexpr TableId kTable{7};
// 40 rows in 4 units of 10, all on node 1, device 1.
constexpr std::int64_t kRows = 40;
constexpr std::uint32_t kDim = 4;

TablePlan MakeTable() { return embla::testing::TableOfFourUnits(kRows, kDim, {kSource, 1}); }

UnitId UnitAt(std::uint32_t granule) { return {kTable, granule, 0}; }

class UnitTablesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_THAT(cluster_.Install({MakeTable()}), IsOk()); }

  UnitHost& source() { return cluster_.node(kSource).units(); }
  UnitHost& target() { return cluster_.node(kTarget).units(); }
  std::int64_t Used(NodeId node, std::uint32_t device) { return cluster_.UsedBytes(node, device); }

  absl::StatusOr<Buffer> Read(UnitHost& host, std::uint32_t granule, std::uint32_t chunk = 0) {
    return Await<Buffer>([&](std::function<void(absl::StatusOr<Buffer>)> done) {
      host.ReadChunk(UnitAt(granule), chunk, ChunkTurn::kWhenIdle, std::move(done));
    });
  }
  absl::Status Reserve(std::uint32_t granule, std::uint32_t device, UnitHost::RowRun run) {
    return AwaitStatus(
        [&](HostDone done) { target().Reserve(UnitAt(granule), device, run, std::move(done)); });
  }
  absl::Status Stage(std::uint32_t granule, Buffer rows, std::uint32_t chunk = 0) {
    return AwaitStatus([&](HostDone done) {
      target().Stage(UnitAt(granule), chunk, std::move(rows), ChunkTurn::kWhenIdle,
                     std::move(done));
    });
  }
  absl::Status Install(std::uint32_t granule) {
    return AwaitStatus([&](HostDone done) {
      target().Install(UnitAt(granule), std::make_shared<ScriptedGate>(UnitWindows()),
                       std::move(done));
    });
  }
  absl::Status Trim(UnitHost& host, std::uint32_t granule) {
    return AwaitStatus([&](HostDone done) { host.Trim(UnitAt(granule), std::move(done)); });
  }
  absl::Status Discard(std::uint32_t granule) {
    return AwaitStatus([&](HostDone done) { target().Discard(UnitAt(granule), std::move(done)); });
  }
  std::shared_ptr<ScriptedGate> Gate(std::uint32_t granule) {
    auto gate = std::make_shared<ScriptedGate>(UnitWindows());
    embla::testing::RunInOrder(source(), kTable, [&] { source().SetGate(UnitAt(granule), gate); });
    return gate;
  }
  void InOrder(const std::function<void()>& work) {
    embla::testing::RunInOrder(source(), kTable, work);
  }

  // The rows' first columns.
  absl::StatusOr<std::vector<float>> Lookup(NodeId node, std::vector<std::int64_t> rows) {
    LookupPartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    for (const std::int64_t row : rows) data.ids.push_back(RowId{row});
    const auto result = cluster_.Lookup(node, Pack(LookupBatch{}, {data}));
    if (!result.ok()) return result.status();
    std::vector<float> firsts;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      firsts.push_back(result->rows.As<float>()[i * kDim]);
    }
    return firsts;
  }
  // A part per list of rows; gradients of 1.
  absl::StatusOr<UpdateResult> Update(NodeId node, std::uint64_t seq,
                                      const std::vector<std::vector<std::int64_t>>& parts) {
    UpdateBatch header;
    header.session = SessionId{1};
    header.seq = UpdateSeq{seq};
    header.first_incomplete = UpdateSeq{1};
    std::vector<UpdatePartData> data;
    for (const std::vector<std::int64_t>& rows : parts) {
      UpdatePartData& part = data.emplace_back();
      part.part.table = kTable;
      part.part.column_end = kDim;
      for (const std::int64_t row : rows) part.ids.push_back(RowId{row});
      part.gradients =
          EncodeRows(std::vector<float>(rows.size() * kDim, 1.0f), kDim, DType::kFloat32);
    }
    return cluster_.Update(node, Pack(header, data));
  }

  LocalCluster cluster_{{.nodes = 2, .devices_per_node = 2, .device_bytes = 1 << 20}};
};

TEST_F(UnitTablesTest, AFrozenUnitIsLeftOutAndTheRestIsApplied) {
  const auto gate = Gate(1);
  InOrder([&] { gate->Freeze(); });
  const auto first = Update(kSource, 1, {{5, 35}, {12, 25}});
  ASSERT_THAT(first, IsOk());
  EXPECT_FALSE(first->duplicate);
  ASSERT_EQ(first->refused.size(), 1u);
  const RefusedUnit& refused = first->refused.front();
  EXPECT_EQ(refused.part, 1u);
  EXPECT_EQ(refused.row_begin, 10);
  EXPECT_EQ(refused.row_end, 20);
  EXPECT_EQ(refused.reason, RefusedUnit::Reason::kFrozen);
  EXPECT_GT(refused.retry_after_ms, 0u);
  EXPECT_THAT(*Lookup(kSource, {5, 35, 12, 25}), ElementsAre(-1, -1, 0, -1));
  InOrder([&] { gate->Unfreeze(); });
  // The whole of it again: only what was left out is applied.
  const auto second = Update(kSource, 1, {{5, 35}, {12, 25}});
  EXPECT_FALSE(second->duplicate);
  EXPECT_TRUE(second->refused.empty());
  EXPECT_THAT(*Lookup(kSource, {5, 35, 12, 25}), Each(-1));
  EXPECT_TRUE(Update(kSource, 1, {{5, 35}, {12, 25}})->duplicate);
  EXPECT_THAT(*Lookup(kSource, {5, 35, 12, 25}), Each(-1));
}

TEST_F(UnitTablesTest, AnUpdateOfRefusedRowsAloneDoesNotCountForOtherUnits) {
  const auto gate = Gate(1);
  InOrder([&] { gate->Freeze(); });
  ASSERT_EQ(Update(kSource, 1, {{12}})->refused.size(), 1u);
  EXPECT_FALSE(Update(kSource, 1, {{5}})->duplicate);
  EXPECT_THAT(*Lookup(kSource, {5, 12}), ElementsAre(-1, 0));
}

TEST_F(UnitTablesTest, AUnitWhoseGateGoesIsAskedNoMore) {
  std::vector<std::shared_ptr<ScriptedGate>> gates;
  for (std::uint32_t granule = 0; granule < 4; ++granule) gates.push_back(Gate(granule));
  InOrder([&] {
    for (const auto& gate : gates) gate->Freeze();
    source().SetGate(UnitAt(1), nullptr);
    source().SetGate(UnitAt(1), nullptr);
    gates[0]->Unfreeze();
  });
  const auto result = Update(kSource, 1, {{5, 12, 25, 35}});
  ASSERT_EQ(result->refused.size(), 1u) << "neighbours are one entry";
  EXPECT_EQ(result->refused[0].row_begin, 20);
  EXPECT_EQ(result->refused[0].row_end, 40);
  EXPECT_THAT(*Lookup(kSource, {5, 12, 25, 35}), ElementsAre(-1, -1, 0, 0));
  // Gone without a gate: the request is refused whole.
  ASSERT_THAT(Trim(source(), 1), IsOk());
  EXPECT_EQ(Update(kSource, 2, {{5, 12}}).status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(*Lookup(kSource, {5}), ElementsAre(-1));
}

TEST_F(UnitTablesTest, RowsThatAreNotHereAreNoRepetitionOfTheOthers) {
  ASSERT_THAT(Trim(source(), 1), IsOk());
  ASSERT_THAT(Update(kSource, 1, {{5}}), IsOk());
  EXPECT_TRUE(Update(kSource, 1, {{5}})->duplicate);
  EXPECT_EQ(Update(kSource, 1, {{12}}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Update(kSource, 1, {{5, 12}}).status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(*Lookup(kSource, {5}), ElementsAre(-1));
}

TEST_F(UnitTablesTest, AMovedUnitAsksForANewerPlanAndIsNotLookedUp) {
  const auto gate = Gate(1);
  InOrder([&] { gate->Release(kTarget); });
  const auto result = Update(kSource, 1, {{12, 25}});
  ASSERT_EQ(result->refused.size(), 1u);
  EXPECT_EQ(result->refused[0].reason, RefusedUnit::Reason::kMoved);
  EXPECT_EQ(result->refused[0].plan_version, PlanVersion{2});  // Plan 1 says that it is here.
  const auto lookup = Lookup(kSource, {25, 12});
  EXPECT_EQ(lookup.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(lookup.status().message()), HasSubstr("row 12 has moved"));
  EXPECT_THAT(*Lookup(kSource, {25, 5}), ElementsAre(-1, 0));
  std::size_t rows = 0;
  const auto count = [&](Buffer bytes) {
    const absl::StatusOr<RowBlock> block = DecodeRowBlock(bytes.bytes());
    for (const RowId row : block->rows) {
      EXPECT_TRUE(ToInt(row) < 10 || ToInt(row) >= 20) << ToInt(row);
      ++rows;
    }
    return absl::OkStatus();
  };
  ShardNode::RowsQuery query;
  query.table = kTable;
  query.row_end = kRows;
  ASSERT_THAT(cluster_.node(kSource).ReadRows(query, count), IsOk());
  EXPECT_EQ(rows, 30u);
}

TEST_F(UnitTablesTest, RefusalsSayWhereUnitsAreByRuns) {
  const std::shared_ptr<ScriptedGate> gates[] = {Gate(0), Gate(1), Gate(2)};
  InOrder([&] {
    gates[0]->Release(kTarget);
    gates[1]->Release(kTarget);
    gates[2]->Release(NodeId{0});
  });
  RefusedUnit known{.part = 0,
                    .row_begin = 0,
                    .row_end = 20,
                    .reason = RefusedUnit::Reason::kMoved,
                    .retry_after_ms = 5,
                    .plan_version = PlanVersion{2},
                    .column_begin = 0,
                    .column_end = kDim,
                    .owner = kTarget,
                    .epoch = 2};
  RefusedUnit unknown = known;
  unknown.row_begin = 20;
  unknown.row_end = 30;
  unknown.owner = NodeId{};
  RefusedUnit second = known;
  second.part = 1;
  second.row_begin = 10;
  const auto updated = Update(kSource, 1, {{25, 12, 35, 3}, {13}});
  ASSERT_THAT(updated, IsOk());
  EXPECT_THAT(updated->refused, ElementsAre(known, unknown, second));

  known.retry_after_ms = unknown.retry_after_ms = 0;
  LookupPartData data;
  data.part.table = kTable;
  data.part.column_begin = 1;
  data.part.column_end = 3;
  data.ids = {RowId{35}, RowId{12}};
  LookupBatch header;
  header.takes_refused = true;
  auto looked_up = cluster_.Lookup(kSource, Pack(header, {data}));
  ASSERT_THAT(looked_up, IsOk());
  EXPECT_EQ(looked_up->rows.size(), 0u);
  EXPECT_EQ(looked_up->plan_version, PlanVersion{1});
  // Unit 0 was not asked for.
  RefusedUnit asked = known;
  asked.row_begin = 10;
  EXPECT_THAT(looked_up->refused, ElementsAre(asked));
  data.ids.push_back(RowId{3});
  looked_up = cluster_.Lookup(kSource, Pack(header, {data}));
  EXPECT_THAT(looked_up->refused, ElementsAre(known));
  data.ids.push_back(RowId{25});
  looked_up = cluster_.Lookup(kSource, Pack(header, {data}));
  EXPECT_THAT(looked_up->refused, ElementsAre(known, unknown));
  // Also when nothing of the columns is left.
  for (std::uint32_t granule = 0; granule < 3; ++granule) {
    ASSERT_THAT(Trim(source(), granule), IsOk());
  }
  const auto last = Gate(3);
  InOrder([&] { last->Release(kTarget); });
  ASSERT_THAT(Trim(source(), 3), IsOk());
  data.ids = {RowId{12}};
  EXPECT_THAT(cluster_.Lookup(kSource, Pack(header, {data}))->refused, ElementsAre(asked));
  EXPECT_EQ(Update(kSource, 2, {{35}})->refused.front().owner, kTarget);
}

TEST_F(UnitTablesTest, RowsAreInvisibleUntilTheyAreInstalled) {
  ASSERT_THAT(Update(kSource, 1, {{12}}), IsOk());
  ASSERT_THAT(Reserve(1, 0, {10, 20}), IsOk());
  absl::StatusOr<Buffer> rows = Read(source(), 1);
  ASSERT_THAT(rows, IsOk());
  ASSERT_THAT(Stage(1, *std::move(rows)), IsOk());
  EXPECT_EQ(Lookup(kTarget, {12}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Update(kTarget, 2, {{12}}).status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(Read(target(), 1), Not(IsOk()));
  ASSERT_THAT(Install(1), IsOk());
  EXPECT_THAT(*Lookup(kTarget, {12, 13}), ElementsAre(-1, 0));
  ASSERT_THAT(Update(kTarget, 2, {{12}}), IsOk());
  EXPECT_THAT(*Lookup(kTarget, {12}), ElementsAre(-2));
  EXPECT_EQ(Lookup(kTarget, {25}).status().code(), Code::kFailedPrecondition);
}

TEST_F(UnitTablesTest, OneStoreServesARunAndGoesWithItsLastUnit) {
  ASSERT_THAT(Reserve(0, 1, {0, 20}), IsOk());
  const std::int64_t used = Used(kTarget, 1);
  EXPECT_EQ(used, 20 * kDim * 4);
  ASSERT_THAT(Reserve(1, 1, {0, 20}), IsOk());
  ASSERT_THAT(Reserve(1, 0, {0, 20}), IsOk());  // It has room already.
  EXPECT_EQ(Used(kTarget, 1), used);
  EXPECT_EQ(Used(kTarget, 0), 0);
  ASSERT_THAT(Install(0), IsOk());
  ASSERT_THAT(Discard(1), IsOk());
  EXPECT_EQ(Used(kTarget, 1), used);
  ASSERT_THAT(Trim(target(), 0), IsOk());
  cluster_.AwaitUsedBytes(kTarget, 1, 0);
  EXPECT_EQ(Lookup(kTarget, {5}).status().code(), Code::kFailedPrecondition);
  // The next plan drops the empty slice; units may come again.
  ASSERT_THAT(cluster_.Install({MakeTable()}), IsOk());
  ASSERT_THAT(Reserve(0, 1, {0, 10}), IsOk());
  ASSERT_THAT(Install(0), IsOk());
  EXPECT_THAT(*Lookup(kTarget, {5}), ElementsAre(0));
}

TEST_F(UnitTablesTest, ARunTakesNoRoomForRowsThatTheDeviceHas) {
  ASSERT_THAT(Reserve(1, 0, {10, 20}), IsOk());
  const std::int64_t one = Used(kTarget, 0);
  ASSERT_GT(one, 0);
  // In the end the device has all of them.
  ASSERT_THAT(Reserve(2, 0, {0, 40}), IsOk());
  EXPECT_EQ(Used(kTarget, 0), 3 * one);  // Rows [20, 40) beside [10, 20).
  ASSERT_THAT(Reserve(3, 0, {0, 40}), IsOk());
  EXPECT_EQ(Used(kTarget, 0), 3 * one);
  ASSERT_THAT(Reserve(0, 0, {0, 40}), IsOk());
  EXPECT_EQ(Used(kTarget, 0), 4 * one);
  for (const std::uint32_t granule : {0u, 1u, 2u, 3u}) ASSERT_THAT(Discard(granule), IsOk());
  cluster_.AwaitUsedBytes(kTarget, 0, 0);
}

TEST_F(UnitTablesTest, TheSourceGivesMemoryBackWithItsLastUnit) {
  for (std::uint32_t granule = 0; granule < 4; ++granule) {
    EXPECT_GT(Used(kSource, 1), 0);
    ASSERT_THAT(Trim(source(), granule), IsOk());
  }
  cluster_.AwaitUsedBytes(kSource, 1, 0);
  EXPECT_EQ(Lookup(kSource, {5}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Update(kSource, 1, {{5}}).status().code(), Code::kFailedPrecondition);
}

TEST_F(UnitTablesTest, NoMemoryNamesTheDeviceAndLeavesNothing) {
  TablePlan large = MakeTable();
  large.spec.id = TableId{8};
  large.spec.name = "large";
  large.spec.rows = 100'000;
  large.spec.row_granules = 2;
  large.replicas = {{{0, 50'000, 0, kDim, {kSource, 0}}, {50'000, 100'000, 0, kDim, {kSource, 1}}}};
  ASSERT_THAT(cluster_.Install({MakeTable(), large}), IsOk());
  const absl::Status status = AwaitStatus([&](HostDone done) {
    target().Reserve({TableId{8}, 0, 0}, 1, {0, 100'000}, std::move(done));
  });
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 1"));
  EXPECT_EQ(Used(kTarget, 1), 0);
}

TEST_F(UnitTablesTest, StageTakesExactlyTheRowsOfItsChunk) {
  const auto rows = [&](std::uint32_t granule) { return *Read(source(), granule); };
  EXPECT_EQ(Stage(1, rows(1)).code(), Code::kFailedPrecondition);  // Nothing of the table is here.
  ASSERT_THAT(Reserve(1, 0, {10, 20}), IsOk());
  EXPECT_EQ(Stage(1, rows(2)).code(), Code::kInvalidArgument);
  EXPECT_EQ(Stage(1, rows(1), /*chunk=*/1).code(), Code::kInvalidArgument);
  EXPECT_EQ(Stage(2, rows(2)).code(), Code::kFailedPrecondition);
  Buffer damaged = rows(1);
  damaged.data()[damaged.size() - 1] ^= std::byte{1};
  EXPECT_EQ(Stage(1, std::move(damaged)).code(), Code::kDataLoss);
  EXPECT_EQ(Install(2).code(), Code::kFailedPrecondition);
  EXPECT_THAT(Stage(1, rows(1)), IsOk());
}

TEST_F(UnitTablesTest, AChunkOfABucketThatIsDamagedChangesNothing) {
  TablePlan hashed = MakeTable();
  hashed.spec.id = TableId{8};
  hashed.spec.name = "hashed";
  hashed.spec.rows = 4 * 64;
  hashed.spec.column_granule_width = 0;
  hashed.spec.zch = ZchSpec{.buckets = 4};
  hashed.spec.SetDefaults();
  hashed.replicas = {{{0, 4 * 64, 0, kDim, {kSource, 1}}}};
  ASSERT_THAT(cluster_.Install({MakeTable(), hashed}), IsOk());
  const auto read = [&](std::uint32_t bucket) {
    return *Await<Buffer>([&](std::function<void(absl::StatusOr<Buffer>)> done) {
      source().ReadChunk({TableId{8}, bucket, 0}, 0, ChunkTurn::kNow, std::move(done));
    });
  };
  const auto stage = [&](Buffer rows) {
    return AwaitStatus([&](HostDone done) {
      target().Stage({TableId{8}, 1, 0}, 0, std::move(rows), ChunkTurn::kNow, std::move(done));
    });
  };
  ASSERT_THAT(AwaitStatus([&](HostDone done) {
                target().Reserve({TableId{8}, 1, 0}, 0, {64, 128}, std::move(done));
              }),
              IsOk());
  EXPECT_EQ(stage(read(2)).code(), Code::kInvalidArgument);
  EXPECT_EQ(stage(Buffer::Allocate(0)).code(), Code::kInvalidArgument);
  for (std::size_t at = 0; at < read(1).size(); ++at) {
    Buffer damaged = read(1);
    damaged.data()[at] ^= std::byte{0x40};
    const absl::Status status = stage(std::move(damaged));
    ASSERT_TRUE(absl::IsInvalidArgument(status) || absl::IsDataLoss(status))
        << "byte " << at << ": " << status;
  }
  for (std::size_t size = 0; size < read(1).size(); size += 8) {
    Buffer cut = read(1);
    cut.Truncate(size);
    ASSERT_THAT(stage(std::move(cut)), Not(IsOk())) << size;
  }
  EXPECT_THAT(stage(read(1)), IsOk());
}

TEST_F(UnitTablesTest, ShapesAreTheSameOnEveryNodeAndErrorsNameTheUnit) {
  const UnitShape shape = *source().ShapeOf(UnitAt(3));
  EXPECT_EQ(shape.row_begin, 30);
  EXPECT_EQ(shape.row_end, 40);
  EXPECT_EQ(shape.column_end, kDim);
  EXPECT_EQ(shape.chunks(), 1u);
  EXPECT_EQ(*target().ShapeOf(UnitAt(3)), shape);
  EXPECT_EQ(source().ShapeOf(UnitAt(4)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(source().ShapeOf({kTable, 0, 1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(source().ShapeOf({TableId{9}, 0, 0}).status().code(), Code::kNotFound);
}

TEST_F(UnitTablesTest, UnitsOfATableWithSeveralCopiesCannotMove) {
  TablePlan copied = MakeTable();
  copied.spec.id = TableId{8};
  copied.spec.name = "copied";
  copied.replicas = {{{0, kRows, 0, kDim, {kSource, 0}}}, {{0, kRows, 0, kDim, {kTarget, 0}}}};
  ASSERT_THAT(cluster_.Install({MakeTable(), copied}), IsOk());
  const absl::Status status = source().ShapeOf({TableId{8}, 0, 0}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("replicated"));
}

// Calls `hook` once, when memory is asked for.
class HookedMemory final : public BufferMemory {
 public:
  std::byte* Allocate(std::size_t capacity) override {
    if (const auto now = std::exchange(hook, nullptr)) now();
    return Heap()->Allocate(capacity);
  }
  void Free(std::byte* data, std::size_t capacity) override { Heap()->Free(data, capacity); }

  std::function<void()> hook;
};

// Columns 0-3 lie on device 0, which leads the table, and columns 4-7 on device 1. A lookup asks
// for the memory of its reply when it has looked for gates and is not queued yet.
TEST(UnitTablesLookup, AGateThatComesWhileALookupIsOnItsWayIsNotPassedBy) {
  const NodeSpec spec{.id = kSource,
                      .name = "n0",
                      .address = "n0:1",
                      .devices = {{.memory_bytes = 1 << 20}, {.memory_bytes = 1 << 20}}};
  TablePlan table = embla::testing::TableOfFourUnits(kRows, 8, {kSource, 0});
  Slice left = table.primary()[0];
  Slice right = left;
  left.column_end = right.column_begin = 4;
  right.device.index = 1;
  table.replicas = {{left, right}};
  const auto memory = std::make_shared<HookedMemory>();
  BufferPool pool(BufferPool::kRetainedBytesMax, memory);
  ShardNodeOptions options;
  options.name = spec.name;
  options.devices = spec.devices;
  const auto node = ShardNode::Create(options, pool);
  ASSERT_THAT(node, IsOk());
  const auto plan =
      std::make_shared<const Plan>(PlanVersion{1}, "test", std::vector{spec}, std::vector{table});
  ASSERT_THAT((*node)->InstallPlan(plan, kSource), IsOk());
  UnitHost& host = (*node)->units();
  const auto gate = std::make_shared<ScriptedGate>(UnitWindows());
  gate->Release(kTarget);  // The unit belongs to another node; its rows are still here.
  memory->hook = [&] {
    embla::testing::RunInOrder(host, kTable, [&] { host.SetGate({kTable, 0, 1}, gate); });
  };
  LookupPartData data;
  data.part.table = kTable;
  data.part.column_begin = 4;
  data.part.column_end = 8;
  data.ids = {RowId{0}};
  LookupBatch request = Pack(LookupBatch{}, {data});
  const auto result = Await<LookupResult>([&](LookupDone done) {
    (*node)->Lookup(std::move(request), absl::InfiniteFuture(), {}, std::move(done));
  });
  EXPECT_EQ(memory->hook, nullptr) << "it was called";
  EXPECT_THAT(result.status(), StatusIs(Code::kFailedPrecondition, HasSubstr("on their way")));
}

}  // namespace
}  // namespace embla::unit_tables_test
