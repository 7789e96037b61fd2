#include "tools/train/slot_finder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace embla::train {
namespace {

// Begins each batch anew, with a table of `rows` rows and ids of which some are none of its rows.
TEST(SlotFinderFind, NumbersIdsInTheOrderInWhichTheyCome) {
  std::mt19937_64 random(7);
  SlotFinder finder;
  const std::size_t tables[] = {0, 10, 100, SlotFinder::kArrayRowsMax + 1, 3, 100};
  for (const std::size_t rows : tables) {
    finder.Begin(rows);
    std::map<std::int64_t, std::uint32_t> expected;
    for (int i = 0; i < 1000; ++i) {
      const auto id = static_cast<std::int64_t>(random() % 200) - 20;
      const auto next = static_cast<std::uint32_t>(expected.size());
      const std::uint32_t slot = expected.try_emplace(id, next).first->second;
      ASSERT_EQ(finder.Find(id, next), slot) << "rows " << rows << " id " << id;
    }
  }
}

}  // namespace
}  // namespace embla::train
