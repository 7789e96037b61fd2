#include "client/route/distinct_ids.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace embla::client {
namespace {

TEST(FindDistinct, KeepsTheOrderOfFirstOccurrence) {
  const std::int64_t ids[] = {7, -1, 7, 3, -1};
  const DistinctIds distinct = FindDistinct(ids);
  EXPECT_TRUE(distinct.has_duplicates);
  EXPECT_THAT(distinct.ids, testing::ElementsAre(7, -1, 3));
  EXPECT_THAT(distinct.entry_of, testing::ElementsAre(0, 1, 0, 2, 1));
}

TEST(FindDistinct, ReturnsNothingWithoutDuplicates) {
  const std::int64_t ids[] = {7, -1, 3};
  const DistinctIds distinct = FindDistinct(ids);
  EXPECT_FALSE(distinct.has_duplicates);
  EXPECT_TRUE(distinct.ids.empty());
  EXPECT_TRUE(distinct.entry_of.empty());
  EXPECT_FALSE(FindDistinct({}).has_duplicates);
}

TEST(FindDistinct, AgreesWithAMapOnRandomBatches) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<std::int64_t> ids(random() % 2000);
    const std::uint64_t range = 1 + random() % 4000;
    const int shift = static_cast<int>(random() % 53);  // Ids whose low bits are all the same, too.
    for (std::int64_t& id : ids) {
      id = static_cast<std::int64_t>((random() % range) << shift);
      if (random() % 8 == 0) id = -id;
    }
    std::map<std::int64_t, std::uint32_t> entries;
    std::vector<std::uint32_t> expected;
    for (const std::int64_t id : ids) {
      expected.push_back(
          entries.emplace(id, static_cast<std::uint32_t>(entries.size())).first->second);
    }
    const DistinctIds distinct = FindDistinct(ids);
    ASSERT_EQ(distinct.has_duplicates, entries.size() != ids.size());
    if (!distinct.has_duplicates) continue;
    ASSERT_EQ(distinct.entry_of, expected);
    ASSERT_EQ(distinct.ids.size(), entries.size());
    for (const auto& [id, entry] : entries) ASSERT_EQ(distinct.ids[entry], id);
  }
}

TEST(HasManyDuplicates, FromOneIdIn32OnOverAllBatches) {
  std::vector<std::int64_t> ids(64);
  std::iota(ids.begin(), ids.end(), std::int64_t{100});
  const std::span<const std::int64_t> first = std::span(ids).first(40);
  const std::span<const std::int64_t> rest = std::span(ids).subspan(40);
  const std::span<const std::int64_t> batches[] = {first, {}, rest};
  EXPECT_FALSE(HasManyDuplicates(batches));
  ids.back() = ids.front();
  EXPECT_FALSE(HasManyDuplicates(batches));
  std::copy_n(ids.begin(), 2, ids.end() - 2);
  EXPECT_TRUE(HasManyDuplicates(batches));
  EXPECT_FALSE(HasManyDuplicates({}));
}

TEST(HasManyDuplicates, IsRightButForAPercentOfTheIds) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::size_t count = 2 + random() % (seed % 8 == 0 ? 100000 : 8192);
    const int shift = static_cast<int>(random() % 32);
    std::vector<std::int64_t> ids(count);
    std::iota(ids.begin(), ids.end(), static_cast<std::int64_t>(random() % 1000000));
    const std::size_t duplicates = random() % (1 + count / 8);
    std::fill_n(ids.begin(), duplicates, ids.back());
    std::ranges::shuffle(ids, random);
    for (std::int64_t& id : ids) id <<= shift;
    const std::span<const std::int64_t> batches[] = {std::span(ids).first(count / 3),
                                                     std::span(ids).subspan(count / 3)};
    const std::size_t off = count / 100 + 1;
    if (IsWorthCombining(count, duplicates - std::min(duplicates, off))) {
      EXPECT_TRUE(HasManyDuplicates(batches)) << duplicates << " of " << count;
    }
    if (!IsWorthCombining(count, duplicates + off)) {
      EXPECT_FALSE(HasManyDuplicates(batches)) << duplicates << " of " << count;
    }
  }
}

}  // namespace
}  // namespace embla::client
