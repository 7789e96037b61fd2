// The hash is part of the format: these numbers never change.
#include "core/plan/id_place.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace embla::zch {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(IdPlaceHash, IsPinned) {
  // SplitMix64 of seed 0 begins with these two (its state after n steps is n * the increment).
  EXPECT_EQ(HashId(RowId{0}), 0xe220a8397b1dcdafu);
  EXPECT_EQ(HashId(RowId{static_cast<std::int64_t>(0x9e3779b97f4a7c15u)}), 0x6e789e6aa1b965f4u);
}

TEST(IdPlaceOf, IsPinnedForEdgeIds) {
  EXPECT_EQ(PlaceOf(RowId{0}, 768, 4), (Place{678, 1, 0xaf, 13}));
  EXPECT_EQ(PlaceOf(RowId{-1}, 768, 4), (Place{686, 2, 0x20, 44}));
  EXPECT_EQ(PlaceOf(RowId{kLeast}, 768, 4), (Place{216, 1, 0xdb, 51}));
  EXPECT_EQ(PlaceOf(RowId{kMost}, 768, 4), (Place{127, 0, 0xa7, 30}));
}

TEST(IdPlaceOf, NeverHasTagZero) {
  for (std::int64_t number = 0; number < 10000; ++number) {
    EXPECT_NE(PlaceOf(RowId{number}, 1, 1).tag, 0);
  }
}

TEST(IdPlaceOf, SpreadsConsecutiveIdsOverBucketsAndGroups) {
  constexpr std::uint32_t kBuckets = 768;
  constexpr std::uint32_t kGroups = 5;
  std::vector<int> counts(kBuckets * kGroups);
  constexpr int kPerGroup = 100;
  for (std::int64_t number = 0; number < std::int64_t{kPerGroup} * kBuckets * kGroups; ++number) {
    const Place place = PlaceOf(RowId{number}, kBuckets, kGroups);
    ++counts[place.bucket * kGroups + place.group];
  }
  // Poisson with mean 100: six standard deviations.
  for (const int count : counts) {
    EXPECT_GT(count, 40);
    EXPECT_LT(count, 160);
  }
}

TEST(IdPlaceOf, StaysInRangeForEveryBucketCount) {
  for (const std::uint32_t buckets : {1u, 2u, 7u, 768u, 65536u}) {
    for (const std::uint32_t groups : {1u, 3u, 64u}) {
      for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, kLeast, kMost}) {
        const Place place = PlaceOf(RowId{number}, buckets, groups);
        EXPECT_LT(place.bucket, buckets);
        EXPECT_LT(place.group, groups);
        EXPECT_LT(place.home_lane, 64);
      }
    }
  }
}

}  // namespace
}  // namespace embla::zch
