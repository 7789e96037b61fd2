// Units of a table in replica groups that are installed and released on a node, call by call.
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/unit_moves.h"
#include "server/shard/unit_tables.h"

namespace embla::units_of_groups_test {
namespace {

using ::embla::testing::Await;
using ::embla::testing::AwaitStatus;
using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::ScriptedGate;
using ::embla::testing::UpdatePartData;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

constexpr NodeId kSource{1};
constexpr NodeId kTarget{2};
constexpr TableId kTable{7};
// 40 rows in 4 units of 10.
constexpr std::int64_t kRows = 40;
constexpr std::uint32_t kDim = 4;

UnitId UnitAt(std::uint32_t granule) { return {kTable, granule, 0}; }

// Two nodes of four devices in two groups; all of the table on devices 1 and 3 of the first.
class UnitsOfGroupsTest : public ::testing::Test {
 protected:
  UnitsOfGroupsTest() {
    TablePlan table = embla::testing::TableOfFourUnits(kRows, kDim, {kSource, 1});
    table.spec.replica_groups = 2;
    table.replicas.push_back({{0, kRows, 0, kDim, {kSource, 3}}});
    EMBLA_CHECK(cluster_.Install({table}).ok());
  }

  UnitHost& source() { return cluster_.node(kSource).units(); }
  UnitHost& target() { return cluster_.node(kTarget).units(); }
  std::vector<std::int64_t> Used(NodeId node) { return cluster_.node(node).device_used_bytes(); }
  void AwaitUsed(NodeId node, const std::vector<std::int64_t>& bytes) {
    for (std::uint32_t d = 0; d < bytes.size(); ++d) cluster_.AwaitUsedBytes(node, d, bytes[d]);
  }

  absl::Status Reserve(std::uint32_t granule, std::uint32_t device) {
    return AwaitStatus([&](HostDone done) {
      target().Reserve(UnitAt(granule), device, {10 * granule, 10 * granule + 10}, std::move(done));
    });
  }
  Buffer Read(std::uint32_t granule) {
    return *Await<Buffer>([&](std::function<void(absl::StatusOr<Buffer>)> done) {
      source().ReadChunk(UnitAt(granule), 0, ChunkTurn::kWhenIdle, std::move(done));
    });
  }
  absl::Status Stage(std::uint32_t granule, Buffer rows) {
    return AwaitStatus([&](HostDone done) {
      target().Stage(UnitAt(granule), 0, std::move(rows), ChunkTurn::kNow, std::move(done));
    });
  }
  absl::Status Install(std::uint32_t granule) {
    return AwaitStatus([&](HostDone done) {
      target().Install(UnitAt(granule), std::make_shared<ScriptedGate>(UnitWindows()),
                       std::move(done));
    });
  }

  UpdatePartData Part(std::uint32_t group, std::int64_t row) {
    UpdatePartData part;
    part.part.table = kTable;
    part.part.replica_group = group;
    part.part.column_end = kDim;
    part.ids = {RowId{row}};
    part.gradients = EncodeRows(std::vector<float>(kDim, 1.0f), kDim, DType::kFloat32);
    return part;
  }
  absl::StatusOr<UpdateResult> Update(NodeId node, std::uint64_t session, std::uint64_t seq,
                                      const std::vector<UpdatePartData>& parts) {
    UpdateBatch header;
    header.session = SessionId{session};
    header.seq = UpdateSeq{seq};
    header.first_incomplete = UpdateSeq{1};
    return cluster_.Update(node, Pack(header, parts));
  }
  // Its first column.
  float Lookup(NodeId node, std::uint32_t group, std::int64_t row) {
    LookupPartData data;
    data.part.table = kTable;
    data.part.replica_group = group;
    data.part.column_end = kDim;
    data.ids = {RowId{row}};
    const auto result = cluster_.Lookup(node, Pack(LookupBatch{}, {data}));
    EXPECT_THAT(result, IsOk());
    return result.ok() ? result->rows.As<float>()[0] : 0.0f;
  }
  absl::StatusOr<SyncResult> Sync(NodeId node) {
    return Await<SyncResult>([&](SyncDone done) {
      cluster_.node(node).Sync({{kTable}, PlanVersion{1}}, absl::InfiniteFuture(), std::move(done));
    });
  }

  LocalCluster cluster_{{.nodes = 2, .devices_per_node = 4, .device_bytes = 1 << 20}};
};

TEST_F(UnitsOfGroupsTest, AllCopiesComeAndGoTogether) {
  constexpr std::int64_t kUnitBytes = 10 * kDim * 4;
  ASSERT_THAT(Update(kSource, 1, 1, {Part(0, 12)}), IsOk());
  ASSERT_THAT(Update(kSource, 2, 1, {Part(1, 12)}), IsOk());
  ASSERT_THAT(Update(kSource, 2, 2, {Part(1, 12)}), IsOk());
  EXPECT_EQ(Reserve(1, 2).code(), Code::kInvalidArgument);  // Device 2 is one of group 1.
  ASSERT_THAT(Reserve(1, 0), IsOk());
  EXPECT_THAT(Used(kTarget), ElementsAre(kUnitBytes, 0, kUnitBytes, 0));
  ASSERT_THAT(Stage(1, Read(1)), IsOk());
  ASSERT_THAT(Install(1), IsOk());
  EXPECT_EQ(Lookup(kTarget, 0, 12), -1);
  EXPECT_EQ(Lookup(kTarget, 1, 12), -2);
  ASSERT_THAT(AwaitStatus([&](HostDone done) { source().Trim(UnitAt(1), std::move(done)); }),
              IsOk());
  for (std::uint32_t group = 0; group < 2; ++group) {
    EXPECT_EQ(Update(kSource, 3, 1, {Part(group, 12)}).status().code(), Code::kFailedPrecondition);
  }
  ASSERT_THAT(Reserve(2, 1), IsOk());
  ASSERT_THAT(AwaitStatus([&](HostDone done) { target().Discard(UnitAt(2), std::move(done)); }),
              IsOk());
  AwaitUsed(kTarget, {kUnitBytes, 0, kUnitBytes, 0});
}

// Each device lets go of its store in its own turn. A plan that comes in between finds one copy
// with a store, and the other one without.
TEST_F(UnitsOfGroupsTest, RoomComesAndGoesWhilePlansCome) {
  const TablePlan table = cluster_.plan()->tables()[0];
  std::atomic<bool> is_over = false;
  std::thread plans([&] {
    while (!is_over) EXPECT_THAT(cluster_.Install({table}), IsOk());
  });
  for (int i = 0; i < 2'000; ++i) {
    EXPECT_THAT(Reserve(2, 1), IsOk());
    EXPECT_THAT(AwaitStatus([&](HostDone done) { target().Discard(UnitAt(2), std::move(done)); }),
                IsOk());
  }
  is_over = true;
  plans.join();
  AwaitUsed(kTarget, {0, 0, 0, 0});
}

TEST_F(UnitsOfGroupsTest, RoomIsReservedForAllCopiesOrForNone) {
  TablePlan large = embla::testing::TableOfFourUnits(100'000, kDim, {kTarget, 2});
  large.spec.id = TableId{8};
  large.spec.name = "large";
  large.spec.rows = 64'000;
  large.replicas = {{{0, 64'000, 0, kDim, {kTarget, 2}}}};
  TablePlan here = cluster_.plan()->tables()[0];
  ASSERT_THAT(cluster_.Install({here, large}), IsOk());
  const std::vector<std::int64_t> used = Used(kTarget);
  TablePlan wide = here;
  wide.spec.id = TableId{9};
  wide.spec.name = "wide";
  wide.spec.rows = 4'000;
  for (auto& copy : wide.replicas) copy[0].row_end = 4'000;
  ASSERT_THAT(cluster_.Install({here, large, wide}), IsOk());
  const absl::Status status = AwaitStatus([&](HostDone done) {
    target().Reserve({TableId{9}, 0, 0}, 0, {0, 4'000}, std::move(done));
  });
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 2"));
  EXPECT_EQ(Used(kTarget), used);
}

TEST_F(UnitsOfGroupsTest, AChunkThatLacksACopyOrIsDamagedChangesNothing) {
  ASSERT_THAT(Reserve(1, 0), IsOk());
  for (std::size_t at = 0; at < Read(1).size(); ++at) {
    Buffer damaged = Read(1);
    damaged.data()[at] ^= std::byte{0x40};
    const absl::Status status = Stage(1, std::move(damaged));
    ASSERT_TRUE(absl::IsInvalidArgument(status) || absl::IsDataLoss(status))
        << "byte " << at << ": " << status;
  }
  for (std::size_t size = 0; size < Read(1).size(); size += 8) {
    Buffer cut = Read(1);
    cut.Truncate(size);
    ASSERT_THAT(Stage(1, std::move(cut)), Not(IsOk())) << size;
  }
  EXPECT_EQ(Stage(1, Read(2)).code(), Code::kInvalidArgument);
  EXPECT_THAT(Stage(1, Read(1)), IsOk());
}

TEST_F(UnitsOfGroupsTest, AUnitThatIsHandedOverIsLeftOutOfAnAveraging) {
  ASSERT_THAT(Update(kSource, 1, 1, {Part(0, 12), Part(0, 25)}), IsOk());
  auto gate = std::make_shared<ScriptedGate>(UnitWindows());
  embla::testing::RunInOrder(source(), kTable, [&] {
    source().SetGate(UnitAt(1), gate);
    gate->Freeze();
  });
  const auto first = Sync(kSource);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(first->tables[0].averaged,
              ElementsAre(AveragedRows{{0, kDim}, {0, 10}}, AveragedRows{{0, kDim}, {20, kRows}}));
  EXPECT_EQ(Lookup(kSource, 0, 12), -1);
  EXPECT_EQ(Lookup(kSource, 1, 12), 0);
  EXPECT_EQ(Lookup(kSource, 0, 25), -0.5);
  EXPECT_EQ(Lookup(kSource, 1, 25), -0.5);
  embla::testing::RunInOrder(source(), kTable, [&] { gate->Unfreeze(); });
  const auto second = Sync(kSource);
  EXPECT_THAT(second->tables[0].averaged, ElementsAre(AveragedRows{{0, kDim}, {0, kRows}}));
  EXPECT_EQ(Lookup(kSource, 1, 12), -0.5);
  EXPECT_TRUE(Sync(kTarget).ok() || absl::IsFailedPrecondition(Sync(kTarget).status()));
}

TEST_F(UnitsOfGroupsTest, AFrozenUnitRefusesTheUpdatesOfAllGroups) {
  auto gate = std::make_shared<ScriptedGate>(UnitWindows());
  embla::testing::RunInOrder(source(), kTable, [&] {
    source().SetGate(UnitAt(1), gate);
    gate->Freeze();
  });
  for (std::uint32_t group = 0; group < 2; ++group) {
    const auto result = Update(kSource, 1 + group, 1, {Part(group, 12), Part(group, 25)});
    ASSERT_THAT(result, IsOk());
    ASSERT_EQ(result->refused.size(), 1u);
    EXPECT_EQ(result->refused[0].row_begin, 10);
  }
  embla::testing::RunInOrder(source(), kTable, [&] { gate->Unfreeze(); });
  for (std::uint32_t group = 0; group < 2; ++group) {
    const auto result = Update(kSource, 1 + group, 1, {Part(group, 12), Part(group, 25)});
    EXPECT_TRUE(result->refused.empty());
    EXPECT_FALSE(result->duplicate);
    EXPECT_EQ(Lookup(kSource, group, 12), -1);
    EXPECT_EQ(Lookup(kSource, group, 25), -1);
  }
}

// Updates of one session in two groups, which no client sends: no crash, and a repetition is
// recognised.
TEST_F(UnitsOfGroupsTest, OneNumberInTwoGroupsIsAppliedInBothAndRecordedOnce) {
  embla::testing::RunInOrder(source(), kTable, [&] {
    source().SetGate(UnitAt(1), std::make_shared<ScriptedGate>(UnitWindows()));
  });
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto result = Update(kSource, 1, 1, {Part(0, 12), Part(1, 12)});
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(result->duplicate, attempt == 1);
    EXPECT_EQ(Lookup(kSource, 0, 12), -1);
    EXPECT_EQ(Lookup(kSource, 1, 12), -1);
  }
}

TEST_F(UnitsOfGroupsTest, TheWindowsThatTravelAreThoseOfAllGroups) {
  ASSERT_THAT(Update(kSource, 1, 1, {Part(0, 12)}), IsOk());
  ASSERT_THAT(Update(kSource, 2, 3, {Part(1, 25)}), IsOk());
  UnitWindows windows;
  embla::testing::RunInOrder(source(), kTable, [&] { windows = source().WindowsOf(UnitAt(1)); });
  UnitWindows expected;
  expected.Record(SessionId{1}, UpdateSeq{1}, UpdateSeq{1});
  expected.Record(SessionId{2}, UpdateSeq{3}, UpdateSeq{1});
  EXPECT_EQ(windows, expected);
}

}  // namespace
}  // namespace embla::units_of_groups_test
