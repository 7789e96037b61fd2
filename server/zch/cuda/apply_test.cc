// Batches and sweeps on the device against SlotMap: the same answers, the same blocks of buckets,
// whatever the batches, while blocks travel between the two.
#include "server/zch/cuda/apply.h"

#include <iostream>
#include <limits>
#include <random>
#include <tuple>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "server/zch/cuda/device_table_test_support.h"
#include "server/zch/slot_map_test_support.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;

constexpr std::uint32_t kNotHeld = 2;  // One of the four buckets; it is added and removed.

// A map on each side, under the same operations.
class CudaApply : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::cuda::DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }

  // Both empty, with all buckets but one.
  void Make(const SlotMapOptions& options) {
    options_ = options;
    map_ = *SlotMap::Create(options);
    table_ = std::make_unique<DeviceTable>(options);
    for (std::uint32_t bucket = 0; bucket < options.buckets; ++bucket) {
      if (bucket == kNotHeld) continue;
      ASSERT_THAT(map_->AddBucket(bucket), IsOk());
      table_->AddBucket(bucket);
    }
  }

  void Apply(const Batch& batch) {
    map_->Apply(batch, answer_);
    const Answer got = table_->Apply(batch);
    ASSERT_EQ(got.slots, answer_.slots);
    ASSERT_EQ(got.outcomes, answer_.outcomes);
    ASSERT_EQ(got.evictions, answer_.evictions);
  }

  void ExpectSameContents() {
    for (std::uint32_t bucket = 0; bucket < options_.buckets; ++bucket) {
      if (map_->Holds(bucket)) {
        ASSERT_EQ(table_->ExportBucket(bucket), BlockOf(*map_, bucket));
      }
    }
    Statistics want = map_->statistics();
    want.read_hits = want.read_missing = 0;
    ASSERT_EQ(table_->statistics(), want);
  }

  std::size_t CountOf(Outcome outcome) const {
    return static_cast<std::size_t>(
        std::count(answer_.outcomes.begin(), answer_.outcomes.end(), outcome));
  }

  SlotMapOptions options_;
  std::unique_ptr<SlotMap> map_;
  std::unique_ptr<DeviceTable> table_;
  Answer answer_;  // The map's to the latest batch.
};

using Case = std::tuple<Policy, Admission, std::uint32_t>;  // The last: reserved lanes.

class CudaApplyRandom : public CudaApply, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    CudaApply::SetUp();
    if (IsSkipped()) return;
    random_.seed(seed_);
    const auto [policy, admission, reserved] = GetParam();
    SlotMapOptions options = SmallOptions(policy);
    options.admission = admission;
    options.admission_probability = 0.4;
    if (admission == Admission::kCount) options.admission_count = 2;
    options.seed = seed_;
    options.reserved_lanes = reserved;
    options.distance_exponent = reserved == 0 ? 1 : 2;
    options.evict_unexpired = reserved != 0;
    Make(options);
    for (int i = 0; i < 2000; ++i) universe_.push_back(static_cast<std::int64_t>(random_()));
    universe_.insert(universe_.end(), {0, -1, 1, std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max()});
  }

  std::uint64_t Below(std::uint64_t n) { return random_() % n; }

  // Skewed: low positions of the universe are frequent.
  RowId AnyId() {
    const std::uint64_t width = std::uint64_t{1} << Below(12);
    return RowId{universe_[Below(std::min<std::uint64_t>(width, universe_.size()))]};
  }

  void ApplyRandomBatch() {
    std::vector<RowId> ids;
    std::vector<std::uint32_t> counts;
    std::vector<std::uint32_t> ttls;
    const bool counted = Below(3) == 0;
    const bool with_ttls = Below(2) == 0;
    const std::uint64_t n = Below(8) == 0 ? 300 + Below(1500) : Below(80);
    for (std::uint64_t i = 0; i < n; ++i) {
      ids.push_back(AnyId());
      if (counted) counts.push_back(Below(50) == 0 ? 0xfffffff0u : 1 + Below(3));
      if (with_ttls) ttls.push_back(Below(2) == 0 ? 0 : static_cast<std::uint32_t>(Below(40)));
    }
    // Now and then steps fall, as those of several trainers may.
    clock_.step = Below(20) == 0 && clock_.step > 5 ? clock_.step - 5 : clock_.step + Below(3);
    clock_.now += Below(2);
    Apply({ids, counts, ttls, clock_});
  }

  void SweepSome() {
    const auto begin = static_cast<std::uint32_t>(Below(options_.buckets + 1));
    const auto end = begin + static_cast<std::uint32_t>(Below(options_.buckets + 1 - begin));
    std::vector<Eviction> want;
    std::vector<Eviction> got;
    cuda::DeviceSweep sweep{EvictionReason::kExpired, begin, end, clock_.now, 0};
    if (Below(2) == 0) {
      map_->EvictExpired(clock_, want, {begin, end});
    } else {
      sweep.reason = EvictionReason::kIdle;
      sweep.before_step = clock_.step < 20 ? 0 : clock_.step - 20;
      map_->EvictIdle(sweep.before_step, clock_.step, want, {begin, end});
    }
    table_->Sweep(sweep, clock_.step, got);
    ASSERT_EQ(got, want);
  }

  // The map goes on with the device's block, and the device with the map's.
  void SwapBucket() {
    const auto bucket = static_cast<std::uint32_t>(Below(options_.buckets));
    if (!map_->Holds(bucket)) return;
    const std::vector<std::byte> from_map = BlockOf(*map_, bucket);
    const std::vector<std::byte> from_device = table_->ExportBucket(bucket);
    ASSERT_EQ(from_device, from_map);
    ASSERT_THAT(map_->RemoveBucket(bucket), IsOk());
    table_->RemoveBucket(bucket);
    ApplyRandomBatch();  // Without it.
    ASSERT_THAT(map_->ImportBucket(from_device), IsOk());
    table_->ImportBucket(from_map);
  }

  const std::uint32_t seed_ = testing::TestSeed();
  std::mt19937_64 random_;
  std::vector<std::int64_t> universe_;
  Clock clock_{1, 1};
};

TEST_P(CudaApplyRandom, AgreesWithTheMapOverRandomOperations) {
  for (int round = 0; round < 150; ++round) {
    ASSERT_NO_FATAL_FAILURE(ApplyRandomBatch());
    if (Below(8) == 0) {
      ASSERT_NO_FATAL_FAILURE(SweepSome());
    }
    if (Below(30) == 0) {
      map_->HalveCounts();
      table_->HalveCounts();
    }
    if (Below(15) == 0) {
      ASSERT_NO_FATAL_FAILURE(SwapBucket());
    }
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  const Statistics statistics = map_->statistics();
  EXPECT_GT(statistics.inserts, 100u);
  EXPECT_GT(statistics.not_here, 100u);
}

INSTANTIATE_TEST_SUITE_P(All, CudaApplyRandom,
                         ::testing::Combine(::testing::Values(Policy::kLru, Policy::kLfu,
                                                              Policy::kDistanceLfu, Policy::kTtl),
                                            ::testing::Values(Admission::kAll,
                                                              Admission::kProbability),
                                            ::testing::Values(0u, 20u)));
INSTANTIATE_TEST_SUITE_P(Counted, CudaApplyRandom,
                         ::testing::Combine(::testing::Values(Policy::kLru, Policy::kDistanceLfu),
                                            ::testing::Values(Admission::kCount),
                                            ::testing::Values(20u)));

TEST_F(CudaApply, AGroupTakesItsLanesAndRefusesTheRest) {
  for (const std::uint32_t reserved : {0u, 3u, 63u}) {
    SlotMapOptions options = SmallOptions();
    options.reserved_lanes = reserved;
    ASSERT_NO_FATAL_FAILURE(Make(options));
    const std::vector<RowId> ids = IdsOfOneGroup(options_, 300);
    ASSERT_NO_FATAL_FAILURE(Apply({ids, {}, {}, {1, 0}}));
    EXPECT_EQ(CountOf(Outcome::kInserted), kLanes - reserved);
    EXPECT_EQ(CountOf(Outcome::kFull), 300 - kLanes + reserved);
    // The ids that were refused take the places of those that were admitted.
    ASSERT_NO_FATAL_FAILURE(Apply({ids, {}, {}, {2, 0}}));
    const std::vector<RowId> later(ids.begin() + 100, ids.end());
    ASSERT_NO_FATAL_FAILURE(Apply({later, {}, {}, {3, 0}}));
    EXPECT_EQ(answer_.evictions.size(), kLanes - reserved);
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  }
}

TEST_F(CudaApply, AnIdThatIsHalfOfABatchIsInsertedOnce) {
  for (const Policy policy : {Policy::kLfu, Policy::kTtl}) {
    ASSERT_NO_FATAL_FAILURE(Make(SmallOptions(policy)));
    std::vector<RowId> ids(4000, RowId{7});
    std::vector<std::uint32_t> ttls(ids.size());
    for (std::size_t i = 0; i < ids.size(); i += 2) {
      ids[i] = RowId{static_cast<std::int64_t>(1000 + i % 300)};
      ttls[i + 1] = static_cast<std::uint32_t>(i % 97);
    }
    for (std::uint64_t step = 1; step < 4; ++step) {
      ASSERT_NO_FATAL_FAILURE(Apply({ids, {}, ttls, {step, 5}}));
      ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
    }
  }
}

TEST_F(CudaApply, CountsSaturate) {
  ASSERT_NO_FATAL_FAILURE(Make(SmallOptions(Policy::kLfu)));
  const std::vector<RowId> ids(70, RowId{7});
  const std::vector<std::uint32_t> counts(ids.size(), 0x10000000);
  for (std::uint64_t step = 1; step < 3; ++step) {
    ASSERT_NO_FATAL_FAILURE(Apply({ids, counts, {}, {step, 0}}));
  }
  EXPECT_EQ(map_->Explain(RowId{7}).word, std::numeric_limits<std::uint32_t>::max());
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
}

TEST_F(CudaApply, NoIdsEvictNothing) {
  ASSERT_NO_FATAL_FAILURE(Make(SmallOptions()));
  ASSERT_NO_FATAL_FAILURE(Apply({{}, {}, {}, {1, 0}}));
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
}

// Find and touch, sort, insert, select (two of CUB's), list.
TEST_F(CudaApply, ASmallBatchIsSixLaunches) {
  ASSERT_NO_FATAL_FAILURE(Make(SmallOptions()));
  const std::vector<RowId> ids = IdsOfOneGroup(options_, 200);
  ASSERT_NO_FATAL_FAILURE(Apply({ids, {}, {}, {1, 0}}));
  EXPECT_LE(table_->launches(), 6u);
}

TEST_F(CudaApply, RefusesWhatIsNotTheDevices) {
  ASSERT_NO_FATAL_FAILURE(Make(SmallOptions()));
  const auto apply = [&](const SlotMapOptions& options, const cuda::DeviceGroups& groups,
                         std::size_t count) {
    return cuda::ApplyAsync(options, groups, {nullptr, nullptr, nullptr, count, {1, 0}}, {}, {},
                            nullptr);
  };
  EXPECT_NE(apply(options_, table_->groups(), 100), 0) << "no workspace";
  SlotMapOptions counting = options_;
  counting.admission = Admission::kCount;
  EXPECT_NE(apply(counting, table_->groups(), 100), 0) << "admission by count";
  cuda::DeviceGroups many = table_->groups();
  many.groups_per_bucket = 1u << 30;
  EXPECT_NE(apply(options_, many, 100), 0) << "2^32 groups";
  const auto sweep = [&](const cuda::DeviceSweep& which) {
    return cuda::SweepAsync(options_, table_->groups(), which, {}, {}, nullptr);
  };
  EXPECT_NE(sweep({EvictionReason::kRemoved, 0, 1, 0, 0}), 0) << "single ids";
  EXPECT_NE(sweep({EvictionReason::kIdle, 0, 5, 0, 0}), 0) << "a fifth bucket";
  EXPECT_NE(sweep({EvictionReason::kIdle, 2, 1, 0, 0}), 0) << "a range from behind";
}

}  // namespace
}  // namespace embla::zch
