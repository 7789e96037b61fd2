#include "server/storage/tiered_row_store.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/storage/host_row_store.h"
#include "server/storage/row_store_conformance.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::Not;

template <std::uint32_t kLines, RowCache::Policy kPolicy>
struct TieredFactory {
  TieredFactory() {
    auto made = DeviceLanes::Create(device, nullptr, 4096);
    EXPECT_THAT(made, IsOk());
    lanes = *std::move(made);
  }
  std::unique_ptr<TieredRowStore> Make(const TableSpec& spec, const Slice& slice) {
    const auto lines = static_cast<std::uint32_t>(std::min<std::int64_t>(kLines, slice.rows()));
    auto store = TieredRowStore::Create(spec, slice, {host, gpu, pool, *lanes, lines, kPolicy});
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }

  gpu::SimulatedDevice device;
  MemoryBudget host{std::size_t{1} << 30};
  MemoryBudget gpu{std::size_t{1} << 30};
  ThreadPool pool{1};
  std::unique_ptr<DeviceLanes> lanes;
};

// A cache of one row, one that is always too small, and one that holds
// everything.
using Factories = ::testing::Types<
    TieredFactory<1, RowCache::Policy::kLru>, TieredFactory<37, RowCache::Policy::kLru>,
    TieredFactory<100, RowCache::Policy::kLfu>, TieredFactory<900, RowCache::Policy::kLru>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tiered, RowStoreConformance, Factories);

TEST(TieredRowStoreCache, HotRowsAreReadFromTheGpuAndCounted) {
  TieredFactory<50, RowCache::Policy::kLru> factory;
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  const auto store = factory.Make(spec, WholeTable(spec));
  std::vector<std::uint32_t> hot(40);
  std::iota(hot.begin(), hot.end(), 100u);
  std::vector<float> rows(hot.size() * 24);
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(store->Gather(hot, {0, 24}, {rows.data(), 96, kernels::Element::kFloat32}), IsOk());
  }
  EXPECT_EQ(store->cache_statistics().misses, 40u);
  EXPECT_EQ(store->cache_statistics().hits, 80u);
  EXPECT_EQ(store->cache_statistics().evictions, 0u);
}

TEST(TieredRowStoreCache, RowsThatChangedOnTheGpuComeBackWhenOthersNeedTheirLines) {
  TieredFactory<10, RowCache::Policy::kLru> factory;
  TableSpec spec = ConformanceSpec(OptimizerKind::kAdagrad, DType::kFloat32);
  const auto store = factory.Make(spec, WholeTable(spec));
  std::vector<std::uint32_t> slots(10), others(10);
  std::iota(slots.begin(), slots.end(), 0u);
  std::iota(others.begin(), others.end(), 500u);
  const std::vector<float> gradients(10 * 24, 1.0f);
  ASSERT_THAT(store->Step({slots, gradients, 24, {}, 1}), IsOk());
  const StoredRows stepped = Read(*store, slots, {0, 24});
  ASSERT_THAT(store->Step({slots, gradients, 24, {}, 2}), IsOk());
  ASSERT_THAT(store->Step({others, gradients, 24, {}, 3}), IsOk());
  EXPECT_EQ(store->cache_statistics().write_backs, 10u);
  EXPECT_NE(Read(*store, slots, {0, 24}), stepped);
}

TEST(TieredRowStoreUpdates, SumGradientsOfRowsThatComeAndGo) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    TableSpec spec = ConformanceSpec(OptimizerKind::kAdam, dtype);
    spec.rounding = Rounding::kNearest;
    TieredFactory<100, RowCache::Policy::kLru> factory;
    const auto store = factory.Make(spec, WholeTable(spec));
    const auto host = HostRowStore::Create(spec, WholeTable(spec), factory.host, factory.pool);
    ASSERT_THAT(host, IsOk());
    for (const std::uint32_t seed : {1, 2, 3, 4, 5, 6}) {
      const RandomGradients batch(spec, kernels::Element::kFloat16, /*in_bags=*/seed % 2 == 0, 100,
                                  seed);
      ASSERT_TRUE(store->SumsGradients(batch.slots.size()));
      ExpectUpdatesAsSteps(*store, **host, batch);
    }
    EXPECT_GT(store->cache_statistics().evictions, 0u);
  }
}

TEST(TieredRowStoreUpdates, AreSummedBeforeTheyComeWhereLinesMayNotSuffice) {
  TieredFactory<100, RowCache::Policy::kLru> factory;
  TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat16);
  EXPECT_FALSE(factory.Make(spec, WholeTable(spec))->SumsGradients(100));
  spec.rounding = Rounding::kNearest;
  EXPECT_TRUE(factory.Make(spec, WholeTable(spec))->SumsGradients(100));
  EXPECT_FALSE(factory.Make(spec, WholeTable(spec))->SumsGradients(101));
}

// The newest of some rows are on the GPU only: the host's must not be given out in their place.
TEST(TieredRowStoreErrors, NothingOldIsReadOnceRowsAreLostWithTheGpu) {
  TableSpec spec = ConformanceSpec(OptimizerKind::kAdagrad, DType::kFloat32);
  const std::vector<float> gradients(10 * 24, 1.0f);
  std::vector<std::uint32_t> slots(10);
  std::iota(slots.begin(), slots.end(), 0u);
  for (const bool stops : {false, true}) {
    TieredFactory<10, RowCache::Policy::kLru> factory;
    const auto store = factory.Make(spec, WholeTable(spec));
    ASSERT_THAT(store->Step({slots, gradients, 24, {}, 1}), IsOk());
    std::vector<std::byte> weights(10 * 96);
    std::vector<float> state(10 * 24);
    if (stops) {
      EXPECT_THAT(factory.device.Stop(absl::InternalError("test")), Not(IsOk()));
    } else {
      // A copy that is refused loses them as well.
      factory.device.Inject(
          {gpu::SimulatedFault::At::kQueue, gpu::SimulatedFault::Kind::kRefused, 1});
    }
    for (int again = 0; again < 2; ++again) {
      const absl::Status read = store->ReadRows(slots, {0, 24}, {weights, state});
      EXPECT_EQ(read.code(), absl::StatusCode::kUnavailable) << read;
    }
    const kernels::Output out{weights.data(), 96, kernels::Element::kFloat32};
    const std::vector<std::uint32_t> lengths = {10};
    EXPECT_THAT(store->Gather(slots, {0, 24}, out), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(store->Pool({slots, lengths, nullptr}, {0, 24}, out),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(store->Step({slots, gradients, 24, {}, 2}),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(store->WriteRows(slots, {0, 24}, {weights, state}),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(store->ResetRows(0, 10), StatusIs(absl::StatusCode::kUnavailable));
  }
}

TEST(TieredRowStoreCache, TellsItsObserver) {
  struct Last final : CacheObserver {
    explicit Last(RowCache::Statistics& last) : last(last) {}
    void OnBatch(const RowCache::Statistics& so_far) override { last = so_far; }
    RowCache::Statistics& last;
  };
  TieredFactory<10, RowCache::Policy::kLru> factory;
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  RowCache::Statistics last;
  const auto store = TieredRowStore::Create(
      spec, WholeTable(spec),
      {factory.host, factory.gpu, factory.pool, *factory.lanes, 10, RowCache::Policy::kLru},
      NewRows::kInitial, std::make_unique<Last>(last));
  ASSERT_THAT(store, IsOk());
  const std::vector<std::uint32_t> slots = {3, 4};
  std::vector<float> rows(2 * 24);
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT((*store)->Gather(slots, {0, 24}, {rows.data(), 96, kernels::Element::kFloat32}),
                IsOk());
  }
  EXPECT_EQ(last.misses, 2u);
  EXPECT_EQ(last.hits, 4u);
}

}  // namespace
}  // namespace embla
