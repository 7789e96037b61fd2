// The conformance suite on simulated GPUs at both paces, and what such a map does when its GPU
// fails.
#include "server/zch/device/device_id_map.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/zch/id_map_conformance.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using Pace = gpu::SimulatedDeviceOptions::Pace;
using Fault = gpu::SimulatedFault;
using Code = absl::StatusCode;

template <Pace kPace, std::size_t kPieceBytes>
struct SimulatedFactory {
  static constexpr std::uint64_t kOperations = 200000;
  static bool CanHold(const SlotMapOptions& options) { return DeviceIdMap::CanHold(options); }

  SimulatedFactory() {
    auto made = DeviceLanes::Create(device, nullptr, kPieceBytes);
    EXPECT_THAT(made, IsOk());
    lanes = *std::move(made);
  }
  absl::StatusOr<std::unique_ptr<IdMap>> TryMake(const SlotMapOptions& options,
                                                 BucketRange buckets) {
    buckets.end = std::min(buckets.end, options.buckets);
    return DeviceIdMap::Create(options, buckets, budget, *lanes);
  }
  std::unique_ptr<IdMap> Make(const SlotMapOptions& options, BucketRange buckets) {
    auto map = TryMake(options, buckets);
    EXPECT_THAT(map, IsOk());
    return *std::move(map);
  }

  gpu::SimulatedDevice device{{.ordinal = 5, .pace = kPace}};
  MemoryBudget budget{std::size_t{1} << 30};
  std::unique_ptr<DeviceLanes> lanes;
};
// A batch of updates takes one piece, everything else many.
using SmallPieces = SimulatedFactory<Pace::kLate, 512>;

using Factories = ::testing::Types<SmallPieces, SimulatedFactory<Pace::kEager, 512>,
                                   SimulatedFactory<Pace::kLate, DeviceLanes::kPieceBytes>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Simulated, IdMapConformance, Factories);

std::vector<RowId> Ids(std::int64_t count) {
  std::vector<RowId> ids;
  for (std::int64_t id = 0; id < count; ++id) ids.push_back(RowId{id});
  return ids;
}

absl::Status Touch(IdMap& map, const std::vector<RowId>& ids, std::uint64_t step) {
  Answer answer;
  return map.Apply({ids, {}, {}, {step, 0}}, answer, RunInline);
}

absl::Status Find(const IdMap& map, const std::vector<RowId>& ids) {
  std::vector<ZchSlot> slots(ids.size());
  std::vector<Outcome> outcomes(ids.size());
  return map.Find(ids, slots, outcomes);
}

TEST(DeviceIdMapCreate, TakesTheBytesOfItsSliceAndGivesThemBack) {
  const SlotMapOptions options = SmallOptions();
  SmallPieces factory;
  const std::size_t before = factory.device.used_bytes();
  {
    const auto map = factory.Make(options, {1, 3});
    const std::size_t bytes = 2 * options.slots_per_bucket() * kBytesPerSlot;
    EXPECT_EQ(map->memory_bytes(), bytes);
    EXPECT_EQ(factory.budget.used_bytes(), bytes);
    // Beside the groups: a byte per bucket, and a count.
    EXPECT_EQ(factory.device.used_bytes(), before + bytes + options.buckets + 8);
  }
  EXPECT_EQ(factory.budget.used_bytes(), 0u);
  EXPECT_EQ(factory.device.used_bytes(), before);
}

TEST(DeviceIdMapCreate, LeavesNothingBehindWhenTheGpuHasNoMemoryLeft) {
  for (const std::uint32_t skip : {0u, 1u, 2u, 3u}) {
    SmallPieces factory;
    const std::size_t before = factory.device.used_bytes();
    factory.device.Inject({Fault::At::kAllocate, Fault::Kind::kOutOfMemory, skip});
    EXPECT_EQ(factory.TryMake(SmallOptions(), {}).status().code(), Code::kResourceExhausted);
    EXPECT_EQ(factory.budget.used_bytes(), 0u);
    EXPECT_EQ(factory.device.used_bytes(), before);
    EXPECT_THAT(factory.device.health(), IsOk());
  }
  SmallPieces factory;
  MemoryBudget small(1000);
  EXPECT_EQ(DeviceIdMap::Create(SmallOptions(), {0, 4}, small, *factory.lanes).status().code(),
            Code::kResourceExhausted);
}

TEST(DeviceIdMapCreate, RefusesBucketsThatTheTableDoesNotHave) {
  SmallPieces factory;
  for (const BucketRange buckets : {BucketRange{0, 0}, BucketRange{3, 5}}) {
    const auto map = DeviceIdMap::Create(SmallOptions(), buckets, factory.budget, *factory.lanes);
    EXPECT_EQ(map.status().code(), Code::kInvalidArgument);
  }
  const auto map = factory.Make(SmallOptions(), {1, 3});
  EXPECT_EQ(map->AddBucket(0).code(), Code::kInvalidArgument);
  EXPECT_EQ(map->AddBucket(3).code(), Code::kInvalidArgument);
}

TEST(DeviceIdMapCanHold, LeavesHugeTablesToTheHost) {
  SlotMapOptions options = SmallOptions();
  EXPECT_TRUE(DeviceIdMap::CanHold(options));
  options.capacity = kCapacityMax;
  options.buckets = kBucketsMax;
  EXPECT_FALSE(DeviceIdMap::CanHold(options));
}

TEST(DeviceIdMapFind, ThatIsRefusedChangesNothingAndStopsNobody) {
  SmallPieces factory;
  const auto map = factory.Make(SmallOptions(), {});
  ASSERT_THAT(map->AddBucket(0), IsOk());
  ASSERT_THAT(Touch(*map, Ids(50), 1), IsOk());
  const Statistics before = map->statistics();
  factory.device.Inject({Fault::At::kQueue, Fault::Kind::kRefused, 1});
  EXPECT_EQ(Find(*map, Ids(300)).code(), Code::kInternal);
  EXPECT_EQ(map->statistics(), before);
  EXPECT_THAT(Find(*map, Ids(300)), IsOk());
}

TEST(DeviceIdMapApply, ThatFailsStopsTheDevice) {
  for (const auto at : {Fault::At::kQueue, Fault::At::kSynchronize}) {
    SmallPieces factory;
    const auto map = factory.Make(SmallOptions(), {});
    ASSERT_THAT(map->AddBucket(0), IsOk());
    ASSERT_THAT(Touch(*map, Ids(50), 1), IsOk());
    factory.device.Inject({at, Fault::Kind::kRefused, 0});
    const absl::Status status = Touch(*map, Ids(400), 2);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(Find(*map, Ids(1)), status);
  }
}

// The room of a GPU, less what its maps have: for batches of a few thousand ids.
TEST(DeviceIdMapApply, WithoutScratchMemoryIsRefusedAndStopsNobody) {
  SmallPieces factory;
  const auto map = factory.Make(SmallOptions(), {});
  ASSERT_THAT(map->AddBucket(0), IsOk());
  ASSERT_THAT(Touch(*map, Ids(50), 1), IsOk());
  const Statistics before = map->statistics();
  const auto others =
      factory.device.Allocate((std::size_t{1} << 30) - factory.device.used_bytes() - (1 << 20));
  ASSERT_THAT(others, IsOk());
  EXPECT_EQ(map->ReserveApply(1 << 20).code(), Code::kResourceExhausted);
  EXPECT_EQ(Touch(*map, Ids(1 << 20), 2).code(), Code::kResourceExhausted);
  EXPECT_EQ(map->statistics(), before);
  EXPECT_THAT(factory.device.health(), IsOk());
  EXPECT_THAT(Find(*map, Ids(50)), IsOk());
  EXPECT_THAT(Touch(*map, Ids(50), 2), IsOk());
  EXPECT_EQ(map->statistics().hits, before.hits + before.inserts);
}

TEST(DeviceIdMapApply, UsesTheScratchMemoryOfItsGpuWhichAllMapsShare) {
  SmallPieces factory;
  const auto one = factory.Make(SmallOptions(), {});
  const auto other = factory.Make(SmallOptions(), {});
  for (const auto& map : {one.get(), other.get()}) ASSERT_THAT(map->AddBucket(0), IsOk());
  ASSERT_THAT(Touch(*one, Ids(4000), 1), IsOk());
  const std::size_t used = factory.device.used_bytes();
  ASSERT_THAT(Touch(*other, Ids(4000), 1), IsOk());
  EXPECT_EQ(factory.device.used_bytes(), used);
}

TEST(DeviceIdMapApply, OfWhatWasReservedAllocatesNothing) {
  SmallPieces factory;
  const auto map = factory.Make(SmallOptions(), {});
  ASSERT_THAT(map->AddBucket(0), IsOk());
  ASSERT_THAT(map->ReserveApply(4000), IsOk());
  ASSERT_THAT(map->ReserveSweep(), IsOk());
  factory.device.Inject({Fault::At::kAllocate, Fault::Kind::kOutOfMemory, 0});
  EXPECT_THAT(Touch(*map, Ids(4000), 1), IsOk());
  std::vector<Eviction> evictions;
  EXPECT_THAT(map->EvictIdle(2, 3, evictions, {}), IsOk());
  EXPECT_THAT(factory.device.health(), IsOk());
}

// A sweep of many ids takes several trips.
TEST(DeviceIdMapEvictIdle, ThatFailsStopsTheDevice) {
  for (const std::uint32_t skip : {0u, 1u, 2u}) {
    SmallPieces factory;
    const auto map = factory.Make(SmallOptions(), {});
    ASSERT_THAT(map->AddBucket(0), IsOk());
    ASSERT_THAT(Touch(*map, Ids(400), 1), IsOk());
    factory.device.Inject({Fault::At::kSynchronize, Fault::Kind::kRefused, skip});
    std::vector<Eviction> evictions;
    EXPECT_EQ(map->EvictIdle(2, 3, evictions, {}).code(), Code::kUnavailable);
  }
}

TEST(DeviceIdMapImport, ThatIsRefusedLeavesNothingOfTheBucketAndMayBeDoneAgain) {
  SmallPieces factory;
  const auto map = factory.Make(SmallOptions(), {});
  ASSERT_THAT(map->AddBucket(0), IsOk());
  const std::vector<std::byte> empty = BlockOf(*map, 0);
  ASSERT_THAT(Touch(*map, Ids(400), 1), IsOk());
  const std::vector<std::byte> block = BlockOf(*map, 0);
  ASSERT_NE(block, empty);
  ASSERT_THAT(map->RemoveBucket(0), IsOk());
  factory.device.Inject({Fault::At::kQueue, Fault::Kind::kRefused, 1});
  EXPECT_EQ(map->ImportBucket(block).code(), Code::kInternal);
  EXPECT_FALSE(map->Holds(0));
  ASSERT_THAT(map->ImportBucket(block), IsOk());
  EXPECT_EQ(BlockOf(*map, 0), block);
  ASSERT_THAT(map->RemoveBucket(0), IsOk());
  ASSERT_THAT(map->AddBucket(0), IsOk());
  EXPECT_EQ(BlockOf(*map, 0), empty);
}

TEST(DeviceIdMapOnAStoppedGpu, AnswersUnavailableToWhateverNeedsIt) {
  SmallPieces factory;
  const auto map = factory.Make(SmallOptions(), {});
  ASSERT_THAT(map->AddBucket(0), IsOk());
  ASSERT_THAT(Touch(*map, Ids(50), 1), IsOk());
  const std::uint64_t residents = map->residents(0);
  factory.device.Inject({Fault::At::kSynchronize, Fault::Kind::kStop, 0});
  const absl::Status stopped = Find(*map, Ids(3));
  EXPECT_EQ(stopped.code(), Code::kUnavailable);
  EXPECT_THAT(Message(stopped), HasSubstr("GPU 5 (simulated) has stopped"));
  std::vector<Eviction> evictions;
  std::vector<ZchSlot> slots(3);
  std::vector<std::optional<RowId>> owners(3);
  std::vector<RowId> of_bucket = IdsOfOneGroup(SmallOptions(), 1);
  EXPECT_EQ(Touch(*map, {}, 2), stopped);
  EXPECT_EQ(Touch(*map, Ids(3), 2), stopped);
  EXPECT_EQ(map->Locate(Ids(3), slots), stopped);
  EXPECT_EQ(map->Remove(of_bucket, 2, evictions), stopped);
  EXPECT_EQ(map->EvictExpired({2, 2}, evictions, {}), stopped);
  EXPECT_EQ(map->EvictIdle(2, 2, evictions, {}), stopped);
  EXPECT_EQ(map->HalveCounts(), stopped);
  EXPECT_EQ(map->ExportBucket(0).status(), stopped);
  EXPECT_EQ(map->Explain(of_bucket[0]).status(), stopped);
  EXPECT_EQ(map->IdsAt(ZchSlot{0}, owners), stopped);
  EXPECT_EQ(map->TakeSurvey(2, {}).status(), stopped);
  EXPECT_EQ(factory.TryMake(SmallOptions(), {}).status(), stopped);
  // The host's counts remain readable, and buckets can still be removed.
  EXPECT_EQ(map->residents(0), residents);
  EXPECT_THAT(map->RemoveBucket(0), IsOk());
}

}  // namespace
}  // namespace embla::zch
