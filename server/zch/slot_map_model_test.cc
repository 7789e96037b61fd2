// Random operations on a slot map and on its model (slot_map_model_test_support.h): the same
// answers and the same content after each, for every policy and admission. EMBLA_ZCH_OPERATIONS ids
// in all (10^6), EMBLA_ZCH_SEED; both are printed.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/zch/slot_map.h"
#include "server/zch/slot_map_model_test_support.h"
#include "server/zch/slot_map_test_support.h"

namespace embla::zch {
namespace {

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

using Case = std::tuple<Policy, Admission, int>;  // The last: reserved lanes.

class SlotMapModel : public testing::TestWithParam<Case> {
 protected:
  static constexpr std::uint64_t kCases = 4 * 3 * 2;

  SlotMapModel() {
    const auto [policy, admission, reserved] = GetParam();
    options_ = SmallOptions(policy);
    options_.admission = admission;
    options_.admission_count = 3;
    options_.candidates_max = 100;
    options_.admission_probability = 0.4;
    options_.seed = seed_;
    options_.reserved_lanes = static_cast<std::uint32_t>(reserved);
    options_.distance_exponent = reserved == 0 ? 1 : 2;
    options_.evict_unexpired = reserved != 0;
    map_ = FullMap(options_);
    model_ = std::make_unique<ModelMap>(options_);
    random_.seed(seed_);
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

  void FillBatch() {
    ids_.clear();
    counts_.clear();
    ttls_.clear();
    const bool counted = Below(3) == 0;
    const bool with_ttls = Below(2) == 0;
    const std::uint64_t n = Below(10) == 0 ? 300 + Below(400) : Below(60);
    for (std::uint64_t i = 0; i < n; ++i) {
      ids_.push_back(AnyId());
      if (counted) counts_.push_back(Below(50) == 0 ? 0xfffffff0u : 1 + Below(3));
      if (with_ttls) ttls_.push_back(Below(2) == 0 ? 0 : static_cast<std::uint32_t>(Below(40)));
    }
    clock_.step += Below(3);
    clock_.now += Below(2);
  }

  void ApplyBatch() {
    FillBatch();
    const Batch batch{ids_, counts_, ttls_, clock_};
    map_->Apply(batch, answer_);
    const Answer expected = model_->Apply(batch);
    ASSERT_EQ(answer_.slots, expected.slots);
    ASSERT_EQ(answer_.outcomes, expected.outcomes);
    ASSERT_EQ(answer_.evictions, expected.evictions);
    operations_ += ids_.size();
  }

  void EvictSome() {
    std::vector<Eviction> evicted;
    std::vector<Eviction> expected;
    switch (Below(3)) {
      case 0: {
        const std::vector<RowId> ids = {AnyId(), AnyId()};
        map_->Remove(ids, clock_.step, evicted);
        for (const RowId id : ids) model_->Remove(ToInt(id), clock_.step, expected);
        break;
      }
      case 1:
        map_->EvictExpired(clock_, evicted);
        model_->Sweep(
            EvictionReason::kExpired, clock_.step,
            [&](const ModelMap::Entry& entry) {
              return options_.policy == Policy::kTtl && entry.word <= clock_.now;
            },
            expected);
        break;
      default: {
        const std::uint64_t before = clock_.step < 60 ? 0 : clock_.step - 60;
        map_->EvictIdle(before, clock_.step, evicted);
        model_->Sweep(
            EvictionReason::kIdle, clock_.step,
            [&](const ModelMap::Entry& entry) { return entry.last < before; }, expected);
      }
    }
    ASSERT_EQ(evicted, expected);
  }

  // Moves a bucket out of the map and in again: nothing may change.
  void MoveBucket() {
    const auto bucket = static_cast<std::uint32_t>(Below(options_.buckets));
    const std::vector<std::byte> block = BlockOf(*map_, bucket);
    ASSERT_TRUE(map_->RemoveBucket(bucket).ok());
    const absl::Status imported = map_->ImportBucket(block);
    ASSERT_TRUE(imported.ok()) << imported.message();
    ASSERT_EQ(BlockOf(*map_, bucket), block);
  }

  void CompareContents() {
    std::size_t residents = 0;
    for (const std::int64_t id : universe_) {
      const Explanation explanation = map_->Explain(RowId{id});
      ASSERT_EQ(explanation.waiting_count, model_->WaitingCount(id));
      const auto it = model_->entries().find(id);
      ASSERT_EQ(explanation.slot != kNoSlot, it != model_->entries().end()) << id;
      if (it == model_->entries().end()) continue;
      ++residents;
      ASSERT_EQ(explanation.slot, model_->SlotOf(it->second));
      ASSERT_EQ(explanation.last_step, it->second.last);
      ASSERT_EQ(explanation.word, it->second.word);
    }
    ASSERT_EQ(map_->TakeSurvey(clock_.step).residents, residents);
  }

  const std::uint64_t seed_ = FromEnvironment("EMBLA_ZCH_SEED", 20240229);
  SlotMapOptions options_;
  std::unique_ptr<SlotMap> map_;
  std::unique_ptr<ModelMap> model_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> universe_;
  std::vector<RowId> ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> ttls_;
  Clock clock_{1, 1};
  Answer answer_;
  std::uint64_t operations_ = 0;
};

TEST_P(SlotMapModel, AgreesOverRandomOperations) {
  const std::uint64_t all = FromEnvironment("EMBLA_ZCH_OPERATIONS", 1000000);
  std::cout << "seed=" << seed_ << " operations=" << all << " over " << kCases << " cases\n";
  for (int round = 0; operations_ < all / kCases + 1; ++round) {
    ASSERT_NO_FATAL_FAILURE(ApplyBatch());
    if (Below(20) == 0) {
      ASSERT_NO_FATAL_FAILURE(EvictSome());
    }
    if (Below(100) == 0) {
      map_->HalveCounts();
      model_->HalveCounts();
    }
    if (Below(50) == 0) {
      ASSERT_NO_FATAL_FAILURE(MoveBucket());
    }
    if (round % 100 == 0) {
      ASSERT_NO_FATAL_FAILURE(CompareContents());
    }
  }
  CompareContents();
}

INSTANTIATE_TEST_SUITE_P(All, SlotMapModel,
                         testing::Combine(testing::Values(Policy::kLru, Policy::kLfu,
                                                          Policy::kDistanceLfu, Policy::kTtl),
                                          testing::Values(Admission::kAll, Admission::kCount,
                                                          Admission::kProbability),
                                          testing::Values(0, 20)));

// Large enough for several chunks in the first phase and many buckets in the second.
class SlotMapThreads : public testing::TestWithParam<Policy> {};

TEST_P(SlotMapThreads, AnyNumberGivesTheSameBytes) {
  SlotMapOptions options = SmallOptions(GetParam());
  options.buckets = 24;
  options.capacity = 24 * 4 * kLanes;
  options.admission = Admission::kCount;
  options.admission_count = 2;
  const auto expected = FullMap(options);
  std::vector<std::unique_ptr<SlotMap>> maps;
  const std::size_t threads[] = {1, 2, 3, 8};
  for (std::size_t i = 0; i < std::size(threads); ++i) maps.push_back(FullMap(options));
  constexpr std::uint64_t kSeed = 7;
  std::cout << "seed=" << kSeed << '\n';
  std::mt19937_64 random(kSeed);
  Answer want;
  Answer got;
  for (std::uint32_t step = 1; step <= 12; ++step) {
    std::vector<RowId> ids(20000);
    for (auto& id : ids) id = RowId{static_cast<std::int64_t>(random() % 12000)};
    const Batch batch{ids, {}, {}, {step, step * 4}};
    expected->Apply(batch, want);
    for (std::size_t i = 0; i < maps.size(); ++i) {
      ShuffledThreads loop(threads[i], step);
      maps[i]->Apply(batch, got, loop);
      ASSERT_EQ(got.slots, want.slots);
      ASSERT_EQ(got.outcomes, want.outcomes);
      ASSERT_EQ(got.evictions, want.evictions);
    }
  }
  for (const auto& map : maps) {
    EXPECT_EQ(map->statistics(), expected->statistics());
    for (std::uint32_t bucket = 0; bucket < options.buckets; ++bucket) {
      EXPECT_EQ(BlockOf(*map, bucket), BlockOf(*expected, bucket));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SlotMapThreads,
                         testing::Values(Policy::kLru, Policy::kLfu, Policy::kDistanceLfu,
                                         Policy::kTtl));

}  // namespace
}  // namespace embla::zch
