#include "server/table/id_numbering.h"

#include <algorithm>
#include <random>
#include <unordered_map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(IdNumberingNumber, NumbersIdsAsTheyCome) {
  IdNumbering numbering;
  const std::vector<std::int64_t> ids = {7, 3, 7, -1, 3, 9};
  numbering.Number(ids);
  EXPECT_THAT(numbering.ids(), ElementsAre(7, 3, -1, 9));
  EXPECT_THAT(numbering.number_of(), ElementsAre(0, 1, 0, 2, 1, 3));
}

TEST(IdNumberingNumber, TakesNoIds) {
  IdNumbering numbering;
  numbering.Number(std::vector<std::int64_t>{2, 1});
  numbering.Number({});
  EXPECT_THAT(numbering.ids(), IsEmpty());
  EXPECT_THAT(numbering.number_of(), IsEmpty());
}

TEST(IdNumberingNumber, EqualsAMapForRandomBatches) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  IdNumbering numbering;  // Reused: stale memory must not show.
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> ids(random() % 3000);
    const std::int64_t step = round % 3 == 0 ? 1 : std::int64_t{1} << (random() % 50);
    for (auto& id : ids) id = static_cast<std::int64_t>(random() % 2000 - 1000) * step;
    if (round % 4 == 0) std::sort(ids.begin(), ids.end());
    std::unordered_map<std::int64_t, std::uint32_t> numbers;
    std::vector<std::int64_t> want;
    std::vector<std::uint32_t> want_numbers;
    for (const std::int64_t id : ids) {
      const auto [entry, is_new] = numbers.try_emplace(id, numbers.size());
      if (is_new) want.push_back(id);
      want_numbers.push_back(entry->second);
    }
    numbering.Number(ids);
    ASSERT_TRUE(std::ranges::equal(numbering.ids(), want));
    ASSERT_TRUE(std::ranges::equal(numbering.number_of(), want_numbers));
  }
}

}  // namespace
}  // namespace embla
