// Promises to users, one per test. Random operations: slot_map_model_test.cc.
#include "server/zch/slot_map.h"

#include <cstdint>
#include <limits>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/zch/slot_map_test_support.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// One group whose ids have only `lanes` slots.
SlotMapOptions OneGroup(std::uint32_t lanes, Policy policy = Policy::kLru) {
  SlotMapOptions options = SmallOptions(policy);
  options.buckets = 1;
  options.capacity = 1;
  options.reserved_lanes = kLanes - lanes;
  return options;
}

std::vector<RowId> Range(std::int64_t begin, std::int64_t end) {
  std::vector<RowId> ids;
  for (std::int64_t number = begin; number < end; ++number) ids.push_back(RowId{number});
  return ids;
}

TEST(SlotMapOptionsValidate, NamesTheFieldOutOfRange) {
  const auto rejects = [](auto change, const char* field) {
    SlotMapOptions options = SmallOptions();
    change(options);
    const absl::Status status = options.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(field));
    EXPECT_THAT(SlotMap::Create(options), StatusIs(absl::StatusCode::kInvalidArgument));
  };
  rejects([](auto& o) { o.buckets = 0; }, "buckets");
  rejects([](auto& o) { o.buckets = 65537; }, "buckets");
  rejects([](auto& o) { o.capacity = 0; }, "capacity");
  rejects([](auto& o) { o.capacity = kCapacityMax; }, "capacity");
  rejects([](auto& o) { o.reserved_lanes = 64; }, "reserved_lanes");
  rejects([](auto& o) { o.policy = Policy{9}; }, "policy");
  rejects([](auto& o) { o.policy = Policy::kTtl, o.ttl_ticks = 0; }, "ttl_ticks");
  rejects([](auto& o) { o.policy = Policy::kDistanceLfu, o.distance_exponent = 3; },
          "distance_exponent");
  rejects([](auto& o) { o.admission = Admission::kCount, o.admission_count = 0; },
          "admission_count");
  rejects([](auto& o) { o.admission = Admission::kProbability, o.admission_probability = 1.5; },
          "admission_probability");
}

TEST(SlotMapOptionsSlots, RoundCapacityUpToWholeGroups) {
  SlotMapOptions options;
  options.capacity = 1000000;
  EXPECT_EQ(options.buckets, 768u);
  EXPECT_EQ(options.slots_per_bucket(), 21u * 64);
  EXPECT_EQ(options.slots(), 768 * 21 * 64);
}

TEST(SlotMapFind, UnseenIdHasNoSlotAndIsNotInserted) {
  const auto map = FullMap(SmallOptions());
  const Found found = FindIn(*map, RowIds({7, 7, -7}));
  EXPECT_THAT(found.outcomes, Each(Outcome::kMissing));
  EXPECT_THAT(found.slots, Each(kNoSlot));
  EXPECT_EQ(map->TakeSurvey(0).residents, 0u);
}

TEST(SlotMapFind, ChangesNothing) {
  SlotMapOptions options = SmallOptions(Policy::kLfu);
  options.admission = Admission::kCount;
  options.admission_count = 2;
  const auto map = FullMap(options);
  ApplyAt(*map, Range(0, 100), {1, 1});
  ApplyAt(*map, Range(50, 150), {2, 2});
  std::vector<std::vector<std::byte>> before;
  for (std::uint32_t b = 0; b < 4; ++b) before.push_back(BlockOf(*map, b));
  FindIn(*map, Range(0, 300));
  for (std::uint32_t b = 0; b < 4; ++b) EXPECT_EQ(BlockOf(*map, b), before[b]);
}

TEST(SlotMapApply, TakesEveryIdThereIs) {
  const auto map = FullMap(SmallOptions());
  const auto ids = RowIds({0, -1, 1, kLeast, kLeast + 1, kMost, kMost - 1});
  const Answer answer = ApplyAt(*map, ids, {1, 1});
  EXPECT_THAT(answer.outcomes, Each(Outcome::kInserted));
  EXPECT_THAT(std::set<ZchSlot>(answer.slots.begin(), answer.slots.end()), SizeIs(ids.size()));
  EXPECT_EQ(FindIn(*map, ids).slots, answer.slots);
}

TEST(SlotMapApply, GivesNoTwoIdsOneSlotUpToHalfLoad) {
  SlotMapOptions options;
  options.capacity = 768 * 64 * 2;
  const auto map = FullMap(options);
  const auto ids = Range(-13000, 36152);
  const Answer answer = ApplyAt(*map, ids, {1, 1});
  EXPECT_THAT(answer.outcomes, Each(Outcome::kInserted));
  EXPECT_THAT(std::set<ZchSlot>(answer.slots.begin(), answer.slots.end()), SizeIs(ids.size()));
  EXPECT_GT(map->statistics().collisions_avoided, 1000u);
}

TEST(SlotMapApply, ReportsAnIdThatRepeatsAsInsertedOnce) {
  const auto map = FullMap(SmallOptions());
  const Answer answer = ApplyAt(*map, RowIds({5, 6, 5, 5}), {1, 1});
  EXPECT_THAT(answer.outcomes,
              ElementsAre(Outcome::kInserted, Outcome::kInserted, Outcome::kHit, Outcome::kHit));
  EXPECT_EQ(answer.slots[0], answer.slots[2]);
  EXPECT_EQ(answer.slots[0], answer.slots[3]);
  EXPECT_EQ(map->TakeSurvey(1).residents, 2u);
}

TEST(SlotMapApply, DoesNotDependOnTheOrderOfIds) {
  const auto map = FullMap(SmallOptions());
  const auto reversed = FullMap(SmallOptions());
  auto ids = Range(0, 900);
  ApplyAt(*map, ids, {1, 1});
  std::reverse(ids.begin(), ids.end());
  ApplyAt(*reversed, ids, {1, 1});
  for (std::uint32_t b = 0; b < 4; ++b) EXPECT_EQ(BlockOf(*map, b), BlockOf(*reversed, b));
}

TEST(SlotMapApply, GivesTheSameForABatchAndForItsIdsOneByOneInOrder) {
  const auto batched = FullMap(SmallOptions());
  const auto single = FullMap(SmallOptions());
  for (std::uint64_t step = 1; step < 5; ++step) {
    const auto ids = Range(static_cast<std::int64_t>(step) * 30, 100);
    ApplyAt(*batched, ids, {step, 0});
    for (const RowId id : ids) ApplyAt(*single, {id}, {step, 0});
  }
  for (std::uint32_t b = 0; b < 4; ++b) EXPECT_EQ(BlockOf(*batched, b), BlockOf(*single, b));
}

TEST(SlotMapApply, OfAnEmptyBatchDoesNothing) {
  const auto map = FullMap(SmallOptions());
  const Answer answer = ApplyAt(*map, {}, {1, 1});
  EXPECT_THAT(answer.slots, IsEmpty());
  EXPECT_EQ(map->statistics(), Statistics{});
}

TEST(SlotMapApply, AnswersNotHereForBucketsOfOthers) {
  const auto map = SlotMap::Create(SmallOptions());
  ASSERT_THAT(map, IsOk());
  ASSERT_THAT((*map)->AddBucket(0), IsOk());
  const Answer answer = ApplyAt(**map, Range(0, 100), {1, 1});
  for (std::int64_t number = 0; number < 100; ++number) {
    const bool here = PlaceOf(RowId{number}, 4, 2).bucket == 0;
    EXPECT_EQ(answer.outcomes[number], here ? Outcome::kInserted : Outcome::kNotHere);
  }
  EXPECT_EQ(FindIn(**map, Range(0, 100)).slots, answer.slots);
}

TEST(SlotMapApply, NeverEvictsWhatTheSameStepTouched) {
  const SlotMapOptions options = OneGroup(5);
  const auto map = FullMap(options);
  ApplyAt(*map, Range(0, 5), {1, 1});
  const Answer answer = ApplyAt(*map, Range(0, 7), {2, 1});
  EXPECT_THAT(answer.outcomes,
              ElementsAre(Outcome::kHit, Outcome::kHit, Outcome::kHit, Outcome::kHit, Outcome::kHit,
                          Outcome::kFull, Outcome::kFull));
  EXPECT_THAT(answer.evictions, IsEmpty());
  EXPECT_EQ(map->statistics().full, 2u);
}

TEST(SlotMapReserved, SlotsAreSharedByIdsWithoutOneAndNeverOwned) {
  SlotMapOptions options = SmallOptions();
  options.reserved_lanes = 8;
  const auto map = FullMap(options);
  const auto ids = Range(0, 3000);
  const Found missing = FindIn(*map, ids);
  EXPECT_THAT(missing.outcomes, Each(Outcome::kMissing));
  for (const ZchSlot slot : missing.slots) EXPECT_GE(ToInt(slot) % 64, 56);
  EXPECT_THAT(std::set<ZchSlot>(missing.slots.begin(), missing.slots.end()), SizeIs(8 * 8));
  for (const ZchSlot slot : ApplyAt(*map, Range(0, 200), {1, 1}).slots) {
    EXPECT_LT(ToInt(slot) % 64, 56);
  }
}

// Follows PERSIA's tests.
TEST(SlotMapLru, KeepsTheMostRecentlyTouched) {
  const auto map = FullMap(OneGroup(5));
  std::uint64_t step = 0;
  for (const RowId id : Range(0, 10)) ApplyAt(*map, {id}, {++step, 0});
  for (const RowId id : Range(0, 10)) EXPECT_EQ(HasSlot(*map, id), ToInt(id) >= 5);
  ApplyAt(*map, RowIds({5}), {++step, 0});
  const Answer answer = ApplyAt(*map, RowIds({10}), {++step, 0});
  EXPECT_THAT(answer.evictions, SizeIs(1));
  EXPECT_EQ(answer.evictions[0].id, RowId{6});
  EXPECT_EQ(answer.evictions[0].reason, EvictionReason::kReplaced);
  EXPECT_EQ(answer.evictions[0].slot, answer.slots[0]);
  EXPECT_TRUE(HasSlot(*map, RowId{5}));
}

// Follows the tests of TFRA's HKV tables, with one group in place of theirs.
TEST(SlotMapLfu, KeepsTheMostFrequent) {
  const auto map = FullMap(OneGroup(64, Policy::kLfu));
  std::uint64_t step = 0;
  ApplyAt(*map, Range(0, 4), {++step, 0});
  ApplyAt(*map, Range(0, 4), {++step, 0});
  ApplyAt(*map, RowIds({0, 1, 4, 5}), {++step, 0});
  ApplyAt(*map, RowIds({4, 5}), {++step, 0});
  for (const RowId id : Range(100, 1130)) ApplyAt(*map, {id}, {++step, 0});
  for (const RowId id : Range(0, 6)) EXPECT_TRUE(HasSlot(*map, id)) << ToInt(id);
}

// Follows dynamicemb's tests.
TEST(SlotMapLfu, CountsTouchesAndReadsDoNotCount) {
  const auto map = FullMap(SmallOptions(Policy::kLfu));
  for (std::uint32_t i = 1; i <= 3; ++i) {
    ApplyAt(*map, RowIds({42}), {i, 0});
    FindIn(*map, RowIds({42}));
    EXPECT_EQ(map->Explain(RowId{42}).word, i);
    EXPECT_EQ(map->Explain(RowId{42}).last_step, i);
  }
}

TEST(SlotMapLfu, CountsSaturateAndHalve) {
  const auto map = FullMap(SmallOptions(Policy::kLfu));
  const auto ids = RowIds({42});
  const std::vector<std::uint32_t> counts = {0xffffffffu};
  Answer answer;
  map->Apply({ids, counts, {}, {1, 0}}, answer);
  map->Apply({ids, counts, {}, {2, 0}}, answer);
  EXPECT_EQ(map->Explain(RowId{42}).word, 0xffffffffu);
  map->HalveCounts();
  EXPECT_EQ(map->Explain(RowId{42}).word, 0x7fffffffu);
}

TEST(SlotMapDistanceLfu, WeighsCountsAgainstAge) {
  const auto map = FullMap(OneGroup(2, Policy::kDistanceLfu));
  for (std::uint64_t step = 1; step <= 8; ++step) ApplyAt(*map, RowIds({1}), {step, 0});
  ApplyAt(*map, RowIds({2}), {20, 0});
  // At step 22: 8 / 15 against 1 / 3.
  EXPECT_EQ(ApplyAt(*map, RowIds({3}), {22, 0}).evictions[0].id, RowId{2});
  // At step 40: 8 / 33 against 1 / 19.
  EXPECT_EQ(ApplyAt(*map, RowIds({4}), {40, 0}).evictions[0].id, RowId{3});
  // At step 41 plain counts would still keep id 1; at 8 / 34 against 1 / 2 it goes.
  EXPECT_EQ(ApplyAt(*map, RowIds({5}), {41, 0}).evictions[0].id, RowId{1});
}

// Follows Monolith's OneTimeEvict, in seconds.
TEST(SlotMapTtl, SweepEvictsTheGenerationsThatExpired) {
  constexpr std::uint32_t kDay = 86400;
  SlotMapOptions options = SmallOptions(Policy::kTtl);
  options.ttl_ticks = 14 * kDay;
  const auto map = FullMap(options);
  const auto ids = Range(0, 90);
  // TTLs of three features, one of which has the table's TTL.
  constexpr std::uint32_t kTtls[] = {5 * kDay, 6 * kDay, 0};
  std::vector<std::uint32_t> ttls;
  for (std::size_t i = 0; i < ids.size(); ++i) ttls.push_back(kTtls[i % 3]);
  constexpr std::uint32_t kStart = 1000000;
  Answer answer;
  map->Apply({ids, {}, ttls, {1, kStart}}, answer);

  std::vector<Eviction> evictions;
  map->EvictExpired({2, kStart + 5 * kDay - 1}, evictions);
  EXPECT_THAT(evictions, IsEmpty());
  map->EvictExpired({2, kStart + 5 * kDay + 60}, evictions);
  EXPECT_THAT(evictions, SizeIs(30));
  for (const Eviction& eviction : evictions) {
    EXPECT_EQ(ToInt(eviction.id) % 3, 0);
    EXPECT_EQ(eviction.reason, EvictionReason::kExpired);
  }
  for (const RowId id : ids) EXPECT_EQ(HasSlot(*map, id), ToInt(id) % 3 != 0);
  EXPECT_EQ(map->statistics().evictions[static_cast<int>(EvictionReason::kExpired)], 30u);
}

TEST(SlotMapTtl, SharedIdLivesAsLongAsItsLongestFeature) {
  const auto map = FullMap(SmallOptions(Policy::kTtl));
  const auto ids = RowIds({1, 1});
  const std::vector<std::uint32_t> ttls = {50, 5};
  Answer answer;
  map->Apply({ids, {}, ttls, {1, 100}}, answer);
  EXPECT_EQ(map->Explain(RowId{1}).word, 150u);
}

TEST(SlotMapTtl, FullGroupRefusesUntilSomethingExpires) {
  const auto map = FullMap(OneGroup(2, Policy::kTtl));
  ApplyAt(*map, RowIds({1}), {1, 100});
  ApplyAt(*map, RowIds({2}), {2, 103});
  EXPECT_THAT(ApplyAt(*map, RowIds({3}), {3, 109}).outcomes, ElementsAre(Outcome::kFull));
  const Answer answer = ApplyAt(*map, RowIds({3}), {4, 110});
  EXPECT_THAT(answer.outcomes, ElementsAre(Outcome::kInserted));
  EXPECT_EQ(answer.evictions[0].id, RowId{1});
  EXPECT_EQ(answer.evictions[0].reason, EvictionReason::kExpired);
}

TEST(SlotMapTtl, EvictUnexpiredTakesWhatExpiresFirst) {
  SlotMapOptions options = OneGroup(2, Policy::kTtl);
  options.evict_unexpired = true;
  const auto map = FullMap(options);
  ApplyAt(*map, RowIds({1}), {1, 103});
  ApplyAt(*map, RowIds({2}), {2, 100});
  const Answer answer = ApplyAt(*map, RowIds({3}), {3, 104});
  EXPECT_EQ(answer.evictions[0].id, RowId{2});
  EXPECT_EQ(answer.evictions[0].reason, EvictionReason::kReplaced);
}

// dynamicemb's oracle: an id is admitted when it has been seen `threshold` times, and not before.
TEST(SlotMapAdmission, ByCountFollowsTheNaiveDictionary) {
  SlotMapOptions options = SmallOptions();
  options.capacity = 1 << 16;
  options.admission = Admission::kCount;
  options.admission_count = 4;
  const auto map = FullMap(options);
  std::unordered_map<std::int64_t, std::uint64_t> seen;
  std::mt19937_64 random(11);
  for (std::uint64_t step = 1; step <= 100; ++step) {
    std::vector<RowId> ids;
    for (int i = 0; i < 100; ++i) {
      ids.push_back(RowId{static_cast<std::int64_t>(random() % 2500)});
      ++seen[ToInt(ids.back())];
    }
    const Answer answer = ApplyAt(*map, ids, {step, 0});
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(OwnsSlot(answer.outcomes[i]), seen[ToInt(ids[i])] >= 4);
    }
  }
  EXPECT_GT(map->statistics().not_admitted, 1000u);
}

TEST(SlotMapAdmission, WithThresholdOneNeitherFiltersNorCounts) {
  SlotMapOptions options = SmallOptions();
  options.admission = Admission::kCount;
  options.admission_count = 1;
  const auto map = FullMap(options);
  EXPECT_THAT(ApplyAt(*map, Range(0, 100), {1, 1}).outcomes, Each(Outcome::kInserted));
  EXPECT_EQ(map->TakeSurvey(1).waiting, 0u);
}

TEST(SlotMapAdmission, WaitingIdsAreBounded) {
  SlotMapOptions options = OneGroup(64);
  options.admission = Admission::kCount;
  options.admission_count = 3;
  options.candidates_max = 10;
  const auto map = FullMap(options);
  ApplyAt(*map, Range(0, 5), {1, 1});
  ApplyAt(*map, Range(0, 5), {2, 1});
  ApplyAt(*map, Range(5, 10), {3, 1});
  EXPECT_EQ(map->TakeSurvey(3).waiting, 10u);
  ApplyAt(*map, RowIds({10}), {4, 1});  // Halves 2 to 1 and 1 to nothing.
  EXPECT_EQ(map->TakeSurvey(4).waiting, 6u);
  EXPECT_EQ(map->Explain(RowId{0}).waiting_count, 1u);
  EXPECT_EQ(map->Explain(RowId{10}).waiting_count, 1u);
}

TEST(SlotMapAdmission, ByProbabilityAdmitsThatShareAtEachStep) {
  SlotMapOptions options = SmallOptions();
  options.capacity = 1 << 20;
  options.admission = Admission::kProbability;
  options.admission_probability = 0.25;
  const auto map = FullMap(options);
  ApplyAt(*map, Range(0, 100000), {1, 0});
  // Six standard deviations are 822.
  EXPECT_NEAR(static_cast<double>(map->statistics().inserts), 25000.0, 822.0);
  ApplyAt(*map, Range(0, 100000), {2, 0});
  EXPECT_NEAR(static_cast<double>(map->statistics().inserts), 43750.0, 942.0);
}

TEST(SlotMapAdmission, ByProbabilityOfZeroAndOneIsNoneAndAll) {
  SlotMapOptions options = SmallOptions();
  options.admission = Admission::kProbability;
  options.admission_probability = 0.0;
  EXPECT_THAT(ApplyAt(*FullMap(options), Range(0, 100), {1, 0}).outcomes,
              Each(Outcome::kNotAdmitted));
  options.admission_probability = 1.0;
  EXPECT_THAT(ApplyAt(*FullMap(options), Range(0, 100), {1, 0}).outcomes, Each(Outcome::kInserted));
}

TEST(SlotMapRemove, FreesSlotsAndSkipsAbsentIds) {
  const auto map = FullMap(OneGroup(3));
  const Answer inserted = ApplyAt(*map, RowIds({1, 2, 3}), {1, 0});
  std::vector<Eviction> evictions;
  map->Remove(RowIds({2, 99, 2}), 5, evictions);
  EXPECT_THAT(evictions,
              ElementsAre(Eviction{RowId{2}, inserted.slots[1], EvictionReason::kRemoved, 1, 5}));
  const Answer again = ApplyAt(*map, RowIds({4}), {6, 0});
  EXPECT_EQ(again.slots[0], inserted.slots[1]);
  EXPECT_THAT(again.evictions, IsEmpty());
}

TEST(SlotMapEvictIdle, TakesWhatWasNotTouchedSinceFromTheBucketsAsked) {
  const auto map = FullMap(SmallOptions());
  ApplyAt(*map, Range(0, 200), {1, 0});
  ApplyAt(*map, Range(0, 50), {9, 0});
  std::vector<Eviction> evictions;
  map->EvictIdle(9, 10, evictions, {1, 2});
  for (const Eviction& eviction : evictions) {
    EXPECT_EQ(PlaceOf(eviction.id, 4, 2).bucket, 1u);
    EXPECT_GE(ToInt(eviction.id), 50);
  }
  map->EvictIdle(9, 10, evictions);
  EXPECT_THAT(evictions, SizeIs(150));
  for (const RowId id : Range(0, 200)) EXPECT_EQ(HasSlot(*map, id), ToInt(id) < 50);
}

TEST(SlotMapExplain, RemembersWhenAndWhyAnIdWasEvicted) {
  const auto map = FullMap(OneGroup(1));
  ApplyAt(*map, RowIds({1}), {3, 0});
  ApplyAt(*map, RowIds({2}), {8, 0});
  const Explanation explanation = map->Explain(RowId{1});
  EXPECT_TRUE(explanation.bucket_here);
  EXPECT_EQ(explanation.slot, kNoSlot);
  ASSERT_TRUE(explanation.last_eviction.has_value());
  EXPECT_EQ(explanation.last_eviction->reason, EvictionReason::kReplaced);
  EXPECT_EQ(explanation.last_eviction->last_step, 3u);
  EXPECT_EQ(explanation.last_eviction->step, 8u);
  EXPECT_FALSE(map->Explain(RowId{3}).last_eviction.has_value());
}

TEST(SlotMapStatistics, CountWhatHappened) {
  const auto map = FullMap(OneGroup(2));
  ApplyAt(*map, RowIds({1, 2, 2}), {1, 0});
  ApplyAt(*map, RowIds({1, 3}), {5, 0});
  FindIn(*map, RowIds({1, 2, 3}));
  const Statistics statistics = map->statistics();
  EXPECT_EQ(statistics.inserts, 3u);
  EXPECT_EQ(statistics.hits, 2u);
  EXPECT_EQ(statistics.read_hits, 2u);
  EXPECT_EQ(statistics.read_missing, 1u);
  EXPECT_EQ(statistics.evictions[static_cast<int>(EvictionReason::kReplaced)], 1u);
  EXPECT_EQ(statistics.evicted_age_sum, 4u);
  const Survey survey = map->TakeSurvey(7);
  EXPECT_EQ(survey.residents, 2u);
  EXPECT_EQ(survey.occupancy(), 1.0);
  EXPECT_EQ(survey.full_groups, 1u);
  EXPECT_EQ(survey.mean_age(), 2.0);
}

TEST(SlotMapBuckets, AreAddedOnceAndRemovedOnce) {
  const auto map = SlotMap::Create(SmallOptions());
  ASSERT_THAT(map, IsOk());
  EXPECT_THAT((*map)->AddBucket(3), IsOk());
  EXPECT_EQ((*map)->AddBucket(3).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ((*map)->AddBucket(4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT((*map)->RemoveBucket(3), IsOk());
  EXPECT_EQ((*map)->RemoveBucket(3).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*map)->ExportBucket(3).status().code(), absl::StatusCode::kNotFound);
}

TEST(SlotMapBuckets, ComeBackEmpty) {
  SlotMapOptions options = SmallOptions();
  options.capacity = 4 * 64 * 32;  // Buckets of several pages, no border on a page.
  const auto map = FullMap(options);
  ApplyAt(*map, Range(0, 2000), {1, 0});
  const auto neighbour = BlockOf(*map, 2);
  ASSERT_THAT(map->RemoveBucket(1), IsOk());
  ASSERT_THAT(map->AddBucket(1), IsOk());
  EXPECT_EQ(BlockOf(*map, 1), BlockOf(*FullMap(options), 1));
  EXPECT_EQ(BlockOf(*map, 2), neighbour);
}

TEST(SlotMapExplain, SaysSinceWhenEvictionsAreKnown) {
  SlotMapOptions options = OneGroup(2, Policy::kLru);
  options.eviction_history = 2;
  const auto map = FullMap(options);
  ApplyAt(*map, RowIds({1}), {1, 0});
  ApplyAt(*map, RowIds({2}), {2, 0});
  ApplyAt(*map, RowIds({3}), {3, 0});
  EXPECT_EQ(map->Explain(RowId{1}).evictions_known_since, 0u);
  EXPECT_EQ(map->Explain(RowId{1}).last_eviction->step, 3u);
  ApplyAt(*map, RowIds({4}), {4, 0});
  ApplyAt(*map, RowIds({5}), {5, 0});
  EXPECT_FALSE(map->Explain(RowId{1}).last_eviction.has_value());
  EXPECT_EQ(map->Explain(RowId{1}).evictions_known_since, 4u);
}

}  // namespace
}  // namespace embla::zch
