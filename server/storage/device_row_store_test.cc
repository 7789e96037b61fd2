#include "server/storage/device_row_store.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/storage/host_row_store.h"
#include "server/storage/row_store_conformance.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using Pace = gpu::SimulatedDeviceOptions::Pace;
using Fault = gpu::SimulatedFault;

// Counts what lanes carried.
struct LastTrip final : LaneObserver {
  void OnTrip(const Trip& trip) override { last = trip; }
  Trip last;
};

// The pieces are small, so that every batch takes many and both lanes are in use.
template <Pace kPace, std::size_t kPieceBytes>
struct SimulatedFactory {
  SimulatedFactory() {
    auto made = DeviceLanes::Create(device, &trips, kPieceBytes);
    EXPECT_THAT(made, IsOk());
    lanes = *std::move(made);
  }
  std::unique_ptr<RowStore> Make(const TableSpec& spec, const Slice& slice) {
    auto store = DeviceRowStore::Create(spec, slice, budget, *lanes);
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }

  gpu::SimulatedDevice device{{.ordinal = 5, .pace = kPace}};
  LastTrip trips;
  MemoryBudget budget{std::size_t{1} << 30};
  std::unique_ptr<DeviceLanes> lanes;
};
using SmallPieces = SimulatedFactory<Pace::kLate, 1024>;

using Factories = ::testing::Types<SmallPieces, SimulatedFactory<Pace::kEager, 1024>,
                                   SimulatedFactory<Pace::kLate, DeviceLanes::kPieceBytes>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Simulated, RowStoreConformance, Factories);

TEST(DeviceRowStoreStep, TrainsToTheBitsOfTheHost) {
  for (const auto kind : kOptimizerKinds) {
    const TableSpec spec = ConformanceSpec(kind, DType::kFloat16);
    const Slice slice{100, 700, 4, 20, {}};
    SmallPieces factory;
    MemoryBudget budget(std::size_t{1} << 30);
    ThreadPool pool(1);
    const auto on_gpu = factory.Make(spec, slice);
    const auto on_host = HostRowStore::Create(spec, slice, budget, pool);
    ASSERT_THAT(on_host, IsOk());
    for (RowStore* store : {on_gpu.get(), static_cast<RowStore*>(on_host->get())}) {
      Train(*store, spec, slice.row_begin, 4);
    }
    EXPECT_EQ(ReadAll(*on_gpu), ReadAll(**on_host)) << "optimizer " << static_cast<int>(kind);
  }
}

TEST(DeviceRowStoreCreate, TakesItsBytesFromTheBudgetAndFromTheGpuAndGivesThemBack) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kRowwiseAdagrad, DType::kFloat16);
  const Slice slice{0, 800, 0, 5, {}};
  SmallPieces factory;
  const std::size_t lanes_bytes = factory.device.used_bytes();
  {
    const auto store = factory.Make(spec, slice);
    EXPECT_EQ(store->memory_bytes(), 800u * (16 + 4));
    EXPECT_EQ(factory.budget.used_bytes(), 16'000u);
    EXPECT_EQ(factory.device.used_bytes(), lanes_bytes + 16'000);
  }
  EXPECT_EQ(factory.budget.used_bytes(), 0u);
  EXPECT_EQ(factory.device.used_bytes(), lanes_bytes);
}

TEST(DeviceRowStoreCreate, LeavesNothingBehindWhenTheGpuHasNoMemoryLeft) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kAdam, DType::kFloat32);
  for (const std::uint32_t skip : {0u, 1u, 2u, 3u}) {
    SmallPieces factory;
    const std::size_t lanes_bytes = factory.device.used_bytes();
    factory.device.Inject({Fault::At::kAllocate, Fault::Kind::kOutOfMemory, skip});
    const auto store =
        DeviceRowStore::Create(spec, WholeTable(spec), factory.budget, *factory.lanes);
    EXPECT_EQ(store.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(factory.budget.used_bytes(), 0u);
    EXPECT_EQ(factory.device.used_bytes(), lanes_bytes);
    EXPECT_THAT(factory.device.health(), IsOk());
    const auto again = factory.Make(spec, WholeTable(spec));
    EXPECT_EQ(again->slots(), 900u);
  }
}

TEST(DeviceRowStoreCreate, UnsetRowsTakeWhatIsWrittenAndResetLikeOthers) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kAdam, DType::kFloat32);
  SmallPieces factory;
  const auto initial = factory.Make(spec, WholeTable(spec));
  const auto unset = DeviceRowStore::Create(spec, WholeTable(spec), factory.budget, *factory.lanes,
                                            NewRows::kUnset);
  ASSERT_THAT(unset, IsOk());
  EXPECT_NE(ReadAll(**unset), ReadAll(*initial));
  std::vector<std::uint32_t> slots(450);
  std::iota(slots.begin(), slots.end(), 0u);
  const StoredRows half = Read(*initial, slots, {0, 24});
  ASSERT_THAT((*unset)->WriteRows(slots, {0, 24}, {half.weights, half.state}), IsOk());
  ASSERT_THAT((*unset)->ResetRows(450, 450), IsOk());
  EXPECT_EQ(ReadAll(**unset), ReadAll(*initial));
}

// Runs a verb that may fail, and returns its result.
absl::Status Read(const RowStore& store) {
  std::vector<std::uint32_t> slots(store.slots());
  std::iota(slots.begin(), slots.end(), 0u);
  std::vector<float> rows(slots.size() * 24);
  return store.Gather(slots, {0, 24}, {rows.data(), 96, kernels::Element::kFloat32});
}
absl::Status Change(RowStore& store) {
  std::vector<std::uint32_t> slots(store.slots());
  std::iota(slots.begin(), slots.end(), 0u);
  const std::vector<float> gradients(slots.size() * 24, 1.0f);
  return store.Step({slots, gradients, 24, {}, 1});
}

TEST(DeviceRowStoreReplies, LandInPinnedMemoryOfTheCallerAndElsewhereByTheLane) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  SmallPieces factory;
  const auto store = factory.Make(spec, {0, 500, 0, 12, {}});
  std::vector<std::uint32_t> slots(301);
  std::iota(slots.begin(), slots.end(), 7);
  const std::vector<std::uint32_t> lengths(43, 7);
  constexpr std::size_t kRowBytes = 12 * sizeof(float);
  const std::size_t bytes = slots.size() * kRowBytes;
  // One row is put between two others: too short for a copy of its own.
  for (const std::size_t stride : {kRowBytes, 2 * kRowBytes}) {
    const auto pinned = factory.device.AllocatePinned(bytes * 2);
    ASSERT_THAT(pinned, IsOk());
    std::vector<std::byte> pageable(bytes * 2);
    std::vector<std::byte*> places = {pinned->data(), pageable.data()};
    for (std::byte* const place : places) std::fill_n(place, bytes * 2, std::byte{0});
    for (const bool pools : {false, true}) {
      for (std::byte* const place : places) {
        const kernels::Output out{place, stride, kernels::Element::kFloat32};
        const absl::Status read = pools ? store->Pool({slots, lengths, nullptr}, {0, 12}, out)
                                        : store->Gather(slots, {0, 12}, out);
        ASSERT_THAT(read, IsOk());
        const bool is_direct = place == pinned->data() && stride == kRowBytes;
        EXPECT_EQ(factory.trips.last.direct_bytes_out,
                  is_direct ? (pools ? lengths : slots).size() * kRowBytes : 0);
        EXPECT_GE(factory.trips.last.bytes_out, factory.trips.last.direct_bytes_out);
        EXPECT_LE(factory.trips.last.kernels, factory.trips.last.took);
      }
      EXPECT_EQ(std::memcmp(pinned->data(), pageable.data(), bytes * 2), 0);
    }
  }
}

TEST(DeviceRowStoreUpdates, TakeGradientsStraightFromPinnedMemoryAndNoneTwice) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  SmallPieces factory;
  const auto store = factory.Make(spec, WholeTable(spec));
  constexpr std::size_t kRows = 300;
  const std::size_t row_bytes = spec.dim * sizeof(float);
  const auto pinned = factory.device.AllocatePinned(kRows * row_bytes * 2);
  ASSERT_THAT(pinned, IsOk());
  std::fill_n(pinned->As<float>(), kRows * spec.dim * 2, 0.5f);
  const std::vector<float> pageable(kRows * spec.dim * 2, 0.5f);
  for (const std::size_t positions : {kRows / 3, kRows, kRows * 3}) {
    const std::vector<std::uint32_t> slots(positions, 7);
    std::vector<std::uint32_t> row_of(positions);
    for (std::uint32_t p = 0; p < positions; ++p) row_of[p] = p * 7 % kRows;
    for (const std::size_t stride : {row_bytes, 2 * row_bytes}) {
      for (const void* const base :
           {static_cast<const void*>(pinned->data()), static_cast<const void*>(pageable.data())}) {
        kernels::Gradients gradients;
        gradients.rows = {base, stride, kernels::Element::kFloat32};
        gradients.columns = spec.dim;
        gradients.row_of = row_of.data();
        ASSERT_THAT(store->ReserveUpdate(positions, gradients, kRows), IsOk());
        ASSERT_THAT(store->Update({slots, gradients, kRows, /*step=*/1}), IsOk());
        // Rows that lie apart, of which some would be read again and again, go by the lane.
        const bool is_direct =
            base == pinned->data() && (stride == row_bytes || positions <= kRows);
        EXPECT_EQ(factory.trips.last.direct_bytes_in,
                  is_direct ? std::min(positions, kRows) * row_bytes : 0);
        EXPECT_GT(factory.trips.last.bytes_in, factory.trips.last.direct_bytes_in);
      }
    }
  }
}

// A copy of more bytes than the batch has rows for would leave the allocation.
TEST(DeviceRowStoreReplies, TakeNoByteMoreThanTheyHaveRows) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat16);
  SmallPieces factory;
  const auto store = factory.Make(spec, {0, 500, 0, 3, {}});
  const std::vector<std::uint32_t> slots = {1, 2, 3};
  const auto pinned = factory.device.AllocatePinned(3 * 6);
  ASSERT_THAT(pinned, IsOk());
  EXPECT_THAT(store->Gather(slots, {0, 3}, {pinned->data(), 6, kernels::Element::kFloat16}),
              IsOk());
}

TEST(DeviceRowStoreErrors, ARefusedReadChangesNothingAndTheNextOneSucceeds) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  for (const std::uint32_t skip : {0u, 1u, 2u, 7u}) {
    SmallPieces factory;
    const auto store = factory.Make(spec, WholeTable(spec));
    factory.device.Inject({Fault::At::kQueue, Fault::Kind::kRefused, skip});
    EXPECT_EQ(Read(*store).code(), absl::StatusCode::kInternal);
    EXPECT_THAT(factory.device.health(), IsOk());
    EXPECT_THAT(Read(*store), IsOk());
  }
}

TEST(DeviceRowStoreErrors, ARefusedChangeStopsTheDeviceAsNobodyKnowsWhichRowsItChanged) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  SmallPieces factory;
  const auto store = factory.Make(spec, WholeTable(spec));
  factory.device.Inject({Fault::At::kQueue, Fault::Kind::kRefused, 5});
  EXPECT_EQ(Change(*store).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read(*store).code(), absl::StatusCode::kUnavailable);
}

TEST(DeviceRowStoreErrors, AStoppedDeviceAnswersUnavailableToEverythingAndSaysWhoAndWhy) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  for (const Fault::At at : {Fault::At::kQueue, Fault::At::kSynchronize}) {
    SmallPieces factory;
    const auto store = factory.Make(spec, WholeTable(spec));
    factory.device.Inject({at, Fault::Kind::kStop, 3});
    const absl::Status first = Read(*store);
    EXPECT_EQ(first.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(first), HasSubstr("GPU 5 (simulated) has stopped"));
    EXPECT_THAT(Message(first), HasSubstr("illegal memory access"));
    const std::vector<std::uint32_t> slots = {1};
    std::vector<std::byte> row(96);
    EXPECT_EQ(Change(*store), first);
    EXPECT_EQ(store->ReadRows(slots, {0, 24}, {row, {}}), first);
    EXPECT_EQ(store->WriteRows(slots, {0, 24}, {row, {}}), first);
    EXPECT_EQ(store->ResetRows(0, 1), first);
    EXPECT_EQ(
        DeviceRowStore::Create(spec, WholeTable(spec), factory.budget, *factory.lanes).status(),
        first);
  }
}

TEST(DeviceRowStorePool, ABagLargerThanAPieceIsSummedInItsOrder) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  SmallPieces factory;
  const auto store = factory.Make(spec, WholeTable(spec));
  std::vector<std::uint32_t> slots(20'000);
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = i * 7 % 900;
  const std::vector<std::uint32_t> lengths = {0, 19'990, 10};
  std::vector<float> got(3 * 24), want(3 * 24);
  const kernels::Bags bags{slots, lengths, nullptr};
  ASSERT_THAT(store->Pool(bags, {0, 24}, {got.data(), 96, kernels::Element::kFloat32}), IsOk());
  const StoredRows stored = ReadAll(*store);
  kernels::Pool({stored.weights.data(), 96, 24, kernels::Element::kFloat32}, bags,
                {want.data(), 96, kernels::Element::kFloat32});
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace embla
