// Contract of all id maps (id_map.h): random operations on a map and on its model
// (slot_map_model_test_support.h) give the same answers and the same content after each, for every
// policy and admission; and a map of some buckets has the bytes, the statistics and the surveys of
// a SlotMap of the same buckets.
//
// EMBLA_ZCH_OPERATIONS: ids in all (the factory's kOperations); EMBLA_ZCH_SEED. Both are printed.
//
// A factory has kOperations, CanHold(options), and Make(options, buckets): a map without buckets
// that may get `buckets`. One that may lack what it needs says so in `status`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/zch/id_map.h"
#include "server/zch/slot_map.h"
#include "server/zch/slot_map_model_test_support.h"
#include "server/zch/slot_map_test_support.h"

namespace embla::zch {

inline std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

inline std::vector<std::byte> BlockOf(const IdMap& map, std::uint32_t bucket) {
  const auto block = map.ExportBucket(bucket);
  if (!block.ok()) {
    ADD_FAILURE() << block.status();
    return {};
  }
  return {block->bytes().begin(), block->bytes().end()};
}

// All of them, small, with every rule.
inline std::vector<SlotMapOptions> ConformanceOptions(std::uint64_t seed) {
  std::vector<SlotMapOptions> all;
  for (const Policy policy : {Policy::kLru, Policy::kLfu, Policy::kDistanceLfu, Policy::kTtl}) {
    for (const Admission admission :
         {Admission::kAll, Admission::kCount, Admission::kProbability}) {
      for (const std::uint32_t reserved : {0u, 20u}) {
        SlotMapOptions options = SmallOptions(policy);
        options.admission = admission;
        options.admission_count = 3;
        options.candidates_max = 100;
        options.admission_probability = 0.4;
        options.seed = seed;
        options.reserved_lanes = reserved;
        options.distance_exponent = reserved == 0 ? 1 : 2;
        options.evict_unexpired = reserved != 0;
        all.push_back(options);
      }
    }
  }
  return all;
}

// Batches of ids of which some are frequent, and more of them than the map has slots.
class RandomBatches {
 public:
  explicit RandomBatches(std::uint64_t seed) : random_(seed) {
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
  const std::vector<std::int64_t>& universe() const { return universe_; }
  const Clock& clock() const { return clock_; }

  // The next one; its memory is this object's.
  Batch Next() {
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
    return {ids_, counts_, ttls_, clock_, Below(8) == 0};
  }
  // Parameter for a sweep of idle ids.
  std::uint64_t BeforeStep() const { return clock_.step < 60 ? 0 : clock_.step - 60; }

 private:
  std::mt19937_64 random_;
  std::vector<std::int64_t> universe_;
  std::vector<RowId> ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> ttls_;
  Clock clock_{1, 1};
};

// A map under test beside its model.
class MapAndModel {
 public:
  MapAndModel(const SlotMapOptions& options, std::unique_ptr<IdMap> map, std::uint64_t seed)
      : options_(options), map_(std::move(map)), model_(options), batches_(seed) {
    for (std::uint32_t b = 0; b < options.buckets; ++b)
      EXPECT_THAT(map_->AddBucket(b), testing::IsOk());
  }

  void Run(std::uint64_t operations) {
    for (int round = 0; operations_ < operations; ++round) {
      ASSERT_NO_FATAL_FAILURE(ApplyBatch());
      if (batches_.Below(20) == 0) {
        ASSERT_NO_FATAL_FAILURE(EvictSome());
      }
      if (batches_.Below(100) == 0) {
        ASSERT_THAT(map_->HalveCounts(), testing::IsOk());
        model_.HalveCounts();
      }
      if (batches_.Below(50) == 0) {
        ASSERT_NO_FATAL_FAILURE(MoveBucket());
      }
      if (round % 400 == 0) {
        ASSERT_NO_FATAL_FAILURE(CompareContents());
      }
    }
    CompareContents();
  }

 private:
  void ApplyBatch() {
    const Batch batch = batches_.Next();
    const absl::Status status = map_->Apply(batch, answer_, RunInline);
    ASSERT_THAT(status, testing::IsOk());
    const Answer expected = model_.Apply(batch);
    ASSERT_EQ(answer_.slots, expected.slots);
    ASSERT_EQ(answer_.outcomes, expected.outcomes);
    ASSERT_EQ(answer_.evictions, expected.evictions);
    operations_ += batch.ids.size() + 1;
  }

  void EvictSome() {
    const Clock& clock = batches_.clock();
    std::vector<Eviction> evicted;
    std::vector<Eviction> expected;
    switch (batches_.Below(3)) {
      case 0: {
        const std::vector<RowId> ids = {batches_.AnyId(), batches_.AnyId()};
        ASSERT_THAT(map_->Remove(ids, clock.step, evicted), testing::IsOk());
        for (const RowId id : ids) model_.Remove(ToInt(id), clock.step, expected);
        break;
      }
      case 1:
        ASSERT_THAT(map_->EvictExpired(clock, evicted, {}), testing::IsOk());
        model_.Sweep(
            EvictionReason::kExpired, clock.step,
            [&](const ModelMap::Entry& entry) {
              return options_.policy == Policy::kTtl && entry.word <= clock.now;
            },
            expected);
        break;
      default: {
        const std::uint64_t before = batches_.BeforeStep();
        ASSERT_THAT(map_->EvictIdle(before, clock.step, evicted, {}), testing::IsOk());
        model_.Sweep(
            EvictionReason::kIdle, clock.step,
            [&](const ModelMap::Entry& entry) { return entry.last < before; }, expected);
      }
    }
    ASSERT_EQ(evicted, expected);
  }

  // Moves a bucket out of the map and in again: nothing may change.
  void MoveBucket() {
    const auto bucket = static_cast<std::uint32_t>(batches_.Below(options_.buckets));
    const std::vector<std::byte> block = BlockOf(*map_, bucket);
    ASSERT_THAT(map_->RemoveBucket(bucket), testing::IsOk());
    const absl::Status imported = map_->ImportBucket(block);
    ASSERT_THAT(imported, testing::IsOk());
    ASSERT_EQ(BlockOf(*map_, bucket), block);
  }

  void CompareContents() {
    std::vector<RowId> ids;
    for (const std::int64_t id : batches_.universe()) ids.push_back(RowId{id});
    std::vector<ZchSlot> slots(ids.size());
    ASSERT_THAT(map_->Locate(ids, slots), testing::IsOk());
    std::vector<std::optional<RowId>> owners(options_.slots());
    ASSERT_THAT(map_->IdsAt(ZchSlot{0}, owners), testing::IsOk());
    std::size_t residents = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto it = model_.entries().find(ToInt(ids[i]));
      const bool resident = it != model_.entries().end();
      ASSERT_EQ(slots[i], resident ? model_.SlotOf(it->second) : kNoSlot) << ToInt(ids[i]);
      if (resident) {
        ASSERT_EQ(owners[ToInt(slots[i])], ids[i]);
      }
      residents += resident ? 1 : 0;
      if (batches_.Below(40) == 0) {
        ASSERT_NO_FATAL_FAILURE(CompareExplanation(ids[i], resident ? &it->second : nullptr));
      }
    }
    EXPECT_EQ(std::count_if(owners.begin(), owners.end(), [](auto id) { return id.has_value(); }),
              residents);
    const auto survey = map_->TakeSurvey(batches_.clock().step, {});
    ASSERT_THAT(survey, testing::IsOk());
    ASSERT_EQ(survey->residents, residents);
  }

  void CompareExplanation(RowId id, const ModelMap::Entry* entry) {
    const auto explanation = map_->Explain(id);
    ASSERT_THAT(explanation, testing::IsOk());
    ASSERT_EQ(explanation->waiting_count, model_.WaitingCount(ToInt(id)));
    ASSERT_EQ(explanation->slot != kNoSlot, entry != nullptr);
    if (entry == nullptr) return;
    ASSERT_EQ(explanation->slot, model_.SlotOf(*entry));
    ASSERT_EQ(explanation->last_step, entry->last);
    ASSERT_EQ(explanation->word, entry->word);
  }

  const SlotMapOptions options_;
  const std::unique_ptr<IdMap> map_;
  ModelMap model_;
  RandomBatches batches_;
  Answer answer_;
  std::uint64_t operations_ = 0;
};

template <typename Factory>
class IdMapConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    if constexpr (requires { factory_.status; }) {
      if (!factory_.status.ok()) GTEST_SKIP() << factory_.status;
    }
  }

  const std::uint64_t seed_ = FromEnvironment("EMBLA_ZCH_SEED", 20240229);
  Factory factory_;
};

TYPED_TEST_SUITE_P(IdMapConformance);

TYPED_TEST_P(IdMapConformance, AgreesWithTheModelOverRandomOperations) {
  const std::uint64_t all = FromEnvironment("EMBLA_ZCH_OPERATIONS", TypeParam::kOperations);
  const std::vector<SlotMapOptions> cases = ConformanceOptions(this->seed_);
  std::cout << "seed=" << this->seed_ << " operations=" << all << " over " << cases.size()
            << " cases\n";
  for (const SlotMapOptions& options : cases) {
    if (!TypeParam::CanHold(options)) continue;
    SCOPED_TRACE(::testing::Message() << "policy " << static_cast<int>(options.policy)
                                      << ", admission " << static_cast<int>(options.admission)
                                      << ", reserved lanes " << options.reserved_lanes);
    MapAndModel subject(options, this->factory_.Make(options, {}), this->seed_);
    ASSERT_NO_FATAL_FAILURE(subject.Run(all / cases.size() + 1));
  }
}

// Two of four buckets are in the map, and one of them is added and removed.
TYPED_TEST_P(IdMapConformance, HasTheBytesOfASlotMapOfTheSameBuckets) {
  for (const SlotMapOptions& options : ConformanceOptions(this->seed_)) {
    if (!TypeParam::CanHold(options)) continue;
    RandomBatches batches(this->seed_);
    const auto host = *SlotMap::Create(options);
    const std::unique_ptr<IdMap> map = this->factory_.Make(options, {1, 3});
    for (const std::uint32_t bucket : {1u, 2u}) {
      ASSERT_THAT(host->AddBucket(bucket), testing::IsOk());
      ASSERT_THAT(map->AddBucket(bucket), testing::IsOk());
    }
    for (int round = 0; round < 40; ++round) {
      const Batch batch = batches.Next();
      Answer want, got;
      host->Apply(batch, want);
      ASSERT_THAT(map->Apply(batch, got, RunInline), testing::IsOk());
      ASSERT_EQ(got.slots, want.slots);
      ASSERT_EQ(got.outcomes, want.outcomes);
      ASSERT_EQ(got.evictions, want.evictions);
      std::vector<ZchSlot> slots(batch.ids.size());
      std::vector<Outcome> outcomes(batch.ids.size());
      ASSERT_THAT(map->Find(batch.ids, slots, outcomes), testing::IsOk());
      const Found found = FindIn(*host, {batch.ids.begin(), batch.ids.end()});
      ASSERT_EQ(slots, found.slots);
      ASSERT_EQ(outcomes, found.outcomes);
      if (round % 10 == 5) {
        ASSERT_THAT(host->RemoveBucket(2), testing::IsOk());
        ASSERT_THAT(map->RemoveBucket(2), testing::IsOk());
      } else if (round % 10 == 7) {
        ASSERT_THAT(host->AddBucket(2), testing::IsOk());
        ASSERT_THAT(map->AddBucket(2), testing::IsOk());
      } else if (round % 10 == 9) {
        want.evictions.clear();
        got.evictions.clear();
        host->EvictIdle(batches.clock().step, 99, want.evictions, {2, 4});
        ASSERT_THAT(map->EvictIdle(batches.clock().step, 99, got.evictions, {2, 4}),
                    testing::IsOk());
        ASSERT_EQ(got.evictions, want.evictions);
      }
    }
    for (const std::uint32_t bucket : {1u, 2u}) {
      EXPECT_EQ(BlockOf(*map, bucket), BlockOf(*host, bucket));
      EXPECT_EQ(map->residents(bucket), host->residents(bucket));
    }
    EXPECT_EQ(map->statistics(), host->statistics());
    const absl::StatusOr<Survey> survey = map->TakeSurvey(500, {});
    ASSERT_THAT(survey, testing::IsOk());
    EXPECT_EQ(*survey, host->TakeSurvey(500));
  }
}

// Room for 1 to 96 ids in whole lines of 32 places, and more ids than that: counts are halved again
// and again, places change hands, and lines overflow into the next. Groups of four lanes are full
// for some ids of a batch while others are to wait.
TYPED_TEST_P(IdMapConformance, CountsWhoWaitsAsASlotMapDoes) {
  for (const std::uint32_t most : {1u, 10u, 64u, 96u}) {
    SlotMapOptions options = SmallOptions(Policy::kLfu);
    options.admission = Admission::kCount;
    options.admission_count = 4;
    options.candidates_max = most;
    options.reserved_lanes = most == 10 ? 60 : 0;
    if (!TypeParam::CanHold(options)) continue;
    const auto host = FullMap(options);
    const std::unique_ptr<IdMap> map = this->factory_.Make(options, {});
    for (std::uint32_t b = 0; b < options.buckets; ++b)
      ASSERT_THAT(map->AddBucket(b), testing::IsOk());
    std::mt19937_64 random(this->seed_);
    std::uint64_t admitted = 0;
    for (std::uint64_t step = 1; step <= 40; ++step) {
      std::vector<RowId> ids(1 + random() % 150);
      for (RowId& id : ids) id = RowId{static_cast<std::int64_t>(random() % (4 * most + 100))};
      std::vector<std::uint32_t> counts(ids.size());
      for (std::uint32_t& count : counts) count = 1 + random() % 4;
      Answer want, got;
      host->Apply({ids, counts, {}, {step, 0}}, want);
      ASSERT_THAT(map->Apply({ids, counts, {}, {step, 0}}, got, RunInline), testing::IsOk());
      ASSERT_EQ(got.slots, want.slots);
      ASSERT_EQ(got.outcomes, want.outcomes);
      admitted += static_cast<std::uint64_t>(
          std::count(got.outcomes.begin(), got.outcomes.end(), Outcome::kInserted));
      const auto bucket = static_cast<std::uint32_t>(step % options.buckets);
      ASSERT_EQ(BlockOf(*map, bucket), BlockOf(*host, bucket));
    }
    EXPECT_GT(admitted, 10u);
    EXPECT_EQ(map->TakeSurvey(40, {})->waiting, host->TakeSurvey(40).waiting);
  }
}

TYPED_TEST_P(IdMapConformance, BucketsAreAddedOnceAndRemovedOnceAndComeBackEmpty) {
  const SlotMapOptions options = SmallOptions();
  const std::unique_ptr<IdMap> map = this->factory_.Make(options, {});
  EXPECT_FALSE(map->Holds(3));
  EXPECT_THAT(map->AddBucket(3), testing::IsOk());
  EXPECT_TRUE(map->Holds(3));
  EXPECT_EQ(map->AddBucket(3).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(map->AddBucket(4).code(), absl::StatusCode::kInvalidArgument);
  const std::vector<std::byte> empty = BlockOf(*map, 3);
  std::vector<RowId> ids;
  for (std::int64_t id = 0; id < 200; ++id) ids.push_back(RowId{id});
  Answer answer;
  ASSERT_THAT(map->Apply({ids, {}, {}, {1, 1}}, answer, RunInline), testing::IsOk());
  EXPECT_NE(BlockOf(*map, 3), empty);
  EXPECT_GT(map->residents(3), 20u);
  EXPECT_THAT(map->RemoveBucket(3), testing::IsOk());
  EXPECT_EQ(map->residents(3), 0u);
  EXPECT_EQ(map->RemoveBucket(3).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(map->ExportBucket(3).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(map->Explain(RowId{1})->bucket_here);
  std::vector<std::optional<RowId>> owners(options.slots_per_bucket());
  ASSERT_THAT(map->IdsAt(ZchSlot{3 * std::int64_t{options.slots_per_bucket()}}, owners),
              testing::IsOk());
  for (const auto& owner : owners) EXPECT_FALSE(owner.has_value());
  EXPECT_THAT(map->AddBucket(3), testing::IsOk());
  EXPECT_EQ(BlockOf(*map, 3), empty);
}

TYPED_TEST_P(IdMapConformance, ImportRefusesDamagedBlocksAndBucketsThatAreHere) {
  const SlotMapOptions options = SmallOptions();
  const std::unique_ptr<IdMap> map = this->factory_.Make(options, {});
  ASSERT_THAT(map->AddBucket(1), testing::IsOk());
  std::vector<std::byte> block = BlockOf(*map, 1);
  EXPECT_EQ(map->ImportBucket(block).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_THAT(map->RemoveBucket(1), testing::IsOk());
  block.back() ^= std::byte{1};
  EXPECT_EQ(map->ImportBucket(block).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(map->ImportBucket({}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(map->Holds(1));
}

REGISTER_TYPED_TEST_SUITE_P(IdMapConformance, AgreesWithTheModelOverRandomOperations,
                            HasTheBytesOfASlotMapOfTheSameBuckets, CountsWhoWaitsAsASlotMapDoes,
                            BucketsAreAddedOnceAndRemovedOnceAndComeBackEmpty,
                            ImportRefusesDamagedBlocksAndBucketsThatAreHere);

}  // namespace embla::zch
