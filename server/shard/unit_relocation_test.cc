// Changes of a unit's device on a node, call by call. unit_moves_test covers that rows and their
// state survive them while trainers update, unit_recovery_test covers crashes.
#include "server/shard/unit_relocation.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/table_inspector.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::unit_relocation_test {
namespace {

using ::embla::testing::AwaitStatus;
using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::UnitMoves;
using ::embla::testing::UpdatePartData;
using ::testing::Each;
using ::testing::UnorderedElementsAre;

constexpr NodeId kNode{1};
constexpr TableId kTable{7};
// 4 units of 2000 rows, all on device 1; a unit is several chunks.
constexpr std::int64_t kRows = 8000;
constexpr std::uint32_t kDim = 256;
constexpr std::int64_t kUnitRows = kRows / 4;

TablePlan MakeTable() { return embla::testing::TableOfFourUnits(kRows, kDim, {kNode, 1}); }

// The parameter is the device that is a simulated GPU: none, the one that rows go to, or the one
// that they come from.
class UnitRelocation : public ::testing::TestWithParam<std::optional<std::uint32_t>> {
 protected:
  void SetUp() override {
    ASSERT_THAT(cluster_.Install({MakeTable()}), IsOk());
    moves_ = std::make_unique<UnitMoves>(cluster_, MakeTable());
    ASSERT_GT(moves_->shape(0).chunks(), 1u);
  }

  std::int64_t Used(std::uint32_t device) { return cluster_.UsedBytes(kNode, device); }
  void AwaitUsed(std::uint32_t device, std::int64_t bytes) {
    cluster_.AwaitUsedBytes(kNode, device, bytes);
  }
  std::vector<std::uint32_t> DevicesOfServedUnits() {
    std::vector<std::uint32_t> devices;
    const auto units = cluster_.node(kNode).InspectTable(kTable, nullptr);
    EXPECT_THAT(units, IsOk());
    for (const UnitContent& unit : units.value_or(std::vector<UnitContent>())) {
      EXPECT_EQ(unit.rows, kUnitRows);
      if (unit.state == UnitContent::State::kServed) devices.push_back(unit.device);
    }
    return devices;
  }

  std::vector<RowId> RowsOfEachUnit() const {
    return {RowId{1}, RowId{kUnitRows}, RowId{2 * kUnitRows}, RowId{kRows - 1}};
  }
  // The rows' first columns.
  absl::StatusOr<std::vector<float>> Lookup() {
    LookupPartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    data.ids = RowsOfEachUnit();
    const auto result = cluster_.Lookup(kNode, Pack(LookupBatch{}, {data}));
    if (!result.ok()) return result.status();
    std::vector<float> firsts;
    for (std::size_t i = 0; i < data.ids.size(); ++i) {
      firsts.push_back(result->rows.As<float>()[i * kDim]);
    }
    return firsts;
  }
  absl::Status Update(std::uint64_t seq) {
    UpdateBatch header;
    header.session = SessionId{1};
    header.seq = header.first_incomplete = UpdateSeq{seq};
    UpdatePartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    data.ids = RowsOfEachUnit();
    data.gradients =
        EncodeRows(std::vector<float>(data.ids.size() * kDim, 1.0f), kDim, DType::kFloat32);
    return cluster_.Update(kNode, Pack(header, {data})).status();
  }

  LocalCluster cluster_{
      {.nodes = 1,
       .devices_per_node = 2,
       .device_bytes = 1 << 25,
       .is_gpu = [](std::uint32_t, std::uint32_t device) { return device == GetParam(); }}};
  std::unique_ptr<UnitMoves> moves_;
};

TEST_P(UnitRelocation, RowsAreServedByTheOtherDeviceAndMemoryGoesWithTheLastUnit) {
  for (std::uint64_t unit = 0; unit < 4; ++unit) {
    EXPECT_GT(Used(1), 0);
    ASSERT_THAT(moves_->ChangeDevice(unit, 0), IsOk());
    EXPECT_THAT(*Lookup(), Each(-static_cast<float>(unit)));
    ASSERT_THAT(Update(unit + 1), IsOk());
    if (unit != 1) continue;
    EXPECT_THAT(DevicesOfServedUnits(), UnorderedElementsAre(0, 0, 1, 1));
  }
  EXPECT_THAT(*Lookup(), Each(-4));
  AwaitUsed(1, 0);
}

TEST_P(UnitRelocation, ToTheDeviceWhereItLiesNothingIsDone) {
  const std::int64_t used = Used(1);
  ASSERT_THAT(moves_->ChangeDevice(2, 1), IsOk());
  EXPECT_EQ(Used(1), used);
  EXPECT_EQ(Used(0), 0);
  EXPECT_THAT(*Lookup(), Each(0));
}

TEST_P(UnitRelocation, RoomThatIsNotUsedIsGivenBack) {
  ASSERT_THAT(moves_->ChangeDeviceInVain(2, 0), IsOk());
  AwaitUsed(0, 0);
  EXPECT_THAT(DevicesOfServedUnits(), UnorderedElementsAre(1, 1, 1, 1));
}

TEST_P(UnitRelocation, WithoutRoomThereIsNothingToDo) {
  const absl::Status status = AwaitStatus([&](HostDone done) {
    cluster_.node(kNode).units().Relocate(moves_->units()[0], std::move(done));
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_THAT(DevicesOfServedUnits(), UnorderedElementsAre(1, 1, 1, 1));
}

TEST_P(UnitRelocation, AUnitComesBackToTheStoreThatItLeft) {
  const std::int64_t used = Used(1);
  ASSERT_THAT(moves_->ChangeDevice(2, 0), IsOk());
  ASSERT_THAT(Update(1), IsOk());
  ASSERT_THAT(moves_->ChangeDevice(2, 1), IsOk());
  AwaitUsed(0, 0);
  EXPECT_EQ(Used(1), used);
  EXPECT_THAT(*Lookup(), Each(-1));
}

TEST_P(UnitRelocation, NoRequestFailsWhileUnitsChangeDevices) {
  std::atomic<bool> stop = false;
  std::thread mover([&] {
    for (std::uint32_t i = 0; !stop.load() || i < 8; ++i) {
      ASSERT_THAT(moves_->ChangeDevice(i % 4, i / 4 % 2), IsOk());
    }
  });
  float expected = 0;
  for (std::uint64_t seq = 1; seq <= 100; ++seq) {
    // A request that began before a slice came has to be sent again.
    absl::Status updated = Update(seq);
    while (absl::IsFailedPrecondition(updated)) updated = Update(seq);
    ASSERT_THAT(updated, IsOk());
    expected -= 1;
    absl::StatusOr<std::vector<float>> rows = Lookup();
    while (absl::IsFailedPrecondition(rows.status())) rows = Lookup();
    ASSERT_THAT(rows, IsOk());
    ASSERT_THAT(*rows, Each(expected));
  }
  stop = true;
  mover.join();
  EXPECT_THAT(*Lookup(), Each(expected));
}

INSTANTIATE_TEST_SUITE_P(Gpus, UnitRelocation,
                         ::testing::Values(std::nullopt, std::optional(0u), std::optional(1u)));

// Rows that have gone to the GPU are lost with it, those that have not are served on.
TEST(UnitRelocationToGpu, AGpuThatStopsInTheMiddleTakesOnlyWhatItHas) {
  LocalCluster cluster({.devices_per_node = 2,
                        .is_gpu = [](std::uint32_t, std::uint32_t device) { return device == 0; }});
  ASSERT_THAT(cluster.Install({MakeTable()}), IsOk());
  UnitMoves moves(cluster, MakeTable());
  ASSERT_THAT(moves.ChangeDevice(0, 0), IsOk());
  cluster.gpu(0, 0)->Inject(
      {gpu::SimulatedFault::At::kSynchronize, gpu::SimulatedFault::Kind::kStop, 0});
  EXPECT_EQ(moves.ChangeDevice(1, 0).code(), absl::StatusCode::kUnavailable);
  const auto lookup = [&](std::int64_t row) {
    LookupPartData data;
    data.part.table = kTable;
    data.part.column_end = kDim;
    data.ids = {RowId{row}};
    return cluster.Lookup(kNode, Pack(LookupBatch{}, {data})).status().code();
  };
  EXPECT_EQ(lookup(0), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lookup(kUnitRows), absl::StatusCode::kOk);
  EXPECT_EQ(lookup(3 * kUnitRows), absl::StatusCode::kOk);
}

// Two groups keep the copies of a unit on corresponding devices, whatever fails.
TEST(UnitRelocationOfGroups, ACopyThatCannotBeWrittenLeavesAllWhereTheyAre) {
  LocalCluster cluster({.devices_per_node = 4,
                        .is_gpu = [](std::uint32_t, std::uint32_t device) { return device == 2; }});
  TablePlan table = MakeTable();
  table.spec.replica_groups = 2;
  table.replicas.push_back({{0, kRows, 0, kDim, {kNode, 3}}});
  ASSERT_THAT(cluster.Install({table}), IsOk());
  UnitMoves moves(cluster, table);
  ASSERT_GT(moves.shape(0).chunks(), 1u);
  const auto devices_of = [&](std::uint32_t granule) {
    std::vector<std::uint32_t> devices;
    const auto units = cluster.node(kNode).InspectTable(kTable, nullptr);
    EXPECT_THAT(units, IsOk());
    for (const UnitContent& unit : *units) {
      const bool is_served = unit.state == UnitContent::State::kServed;
      if (is_served && unit.row_granule == granule) devices.push_back(unit.device);
    }
    return devices;
  };
  ASSERT_THAT(moves.ChangeDevice(0, 0), IsOk());
  EXPECT_THAT(devices_of(0), UnorderedElementsAre(0, 2));
  EXPECT_THAT(devices_of(1), UnorderedElementsAre(1, 3));
  cluster.gpu(0, 2)->Inject(
      {gpu::SimulatedFault::At::kSynchronize, gpu::SimulatedFault::Kind::kStop, 0});
  EXPECT_EQ(moves.ChangeDevice(1, 0).code(), absl::StatusCode::kUnavailable);
  for (std::uint32_t group = 0; group < 2; ++group) {
    LookupPartData data;
    data.part.table = kTable;
    data.part.replica_group = group;
    data.part.column_end = kDim;
    data.ids = {RowId{kUnitRows}, RowId{2 * kUnitRows - 1}};
    EXPECT_THAT(cluster.Lookup(kNode, Pack(LookupBatch{}, {data})), IsOk()) << group;
  }
}

}  // namespace
}  // namespace embla::unit_relocation_test
