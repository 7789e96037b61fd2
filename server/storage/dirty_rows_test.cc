#include "server/storage/dirty_rows.h"

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/base/testing/seeds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/row_kernels.h"

namespace embla {
namespace {

using kernels::kNoSlot;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr DirtyReader kReader = DirtyReader::kSnapshots;

std::vector<std::uint32_t> TakeAll(DirtyRows& rows) {
  std::vector<std::uint32_t> slots;
  rows.Take(kReader, 0, rows.slots(), slots);
  return slots;
}

// Rows that a reader watches, and has taken.
DirtyRows Clean(std::uint32_t slots) {
  DirtyRows rows(slots);
  rows.Watch(kReader);
  TakeAll(rows);
  return rows;
}

TEST(DirtyRowsWatch, AllSlotsAreDirtyAlsoWhenItWatchesAlready) {
  DirtyRows rows(130);
  for (int i = 0; i < 2; ++i) {
    rows.Watch(kReader);
    EXPECT_TRUE(rows.is_watched());
    EXPECT_EQ(rows.CountDirty(kReader), 130u);
    EXPECT_THAT(TakeAll(rows), SizeIs(130));
    EXPECT_EQ(rows.CountDirty(kReader), 0u);
  }
  rows.Unwatch(kReader);
  EXPECT_FALSE(rows.is_watched());
}

TEST(DirtyRowsUnwatch, FreesTheBitsAndAllSlotsAreDirtyAgain) {
  DirtyRows rows = Clean(1000);
  EXPECT_EQ(rows.memory_bytes(), 128u);
  for (int i = 0; i < 2; ++i) {
    rows.Unwatch(kReader);
    EXPECT_FALSE(rows.is_watched());
    EXPECT_EQ(rows.memory_bytes(), 0u);
    EXPECT_EQ(rows.CountDirty(kReader), 1000u);
  }
  EXPECT_THAT(TakeAll(rows), SizeIs(1000));
}

TEST(DirtyRowsMark, WithoutAReaderKeepsNothing) {
  DirtyRows rows(100);
  rows.Mark(std::vector<std::uint32_t>{1, 2});
  rows.MarkRun(3, 4);
  rows.MarkAll();
  EXPECT_FALSE(rows.is_watched());
  EXPECT_EQ(rows.memory_bytes(), 0u);
}

TEST(DirtyRowsMark, TakesSlotsInAnyOrderAndMoreThanOnceAndIgnoresNoSlot) {
  for (const std::uint32_t slots : {192u, 200u}) {
    DirtyRows rows = Clean(slots);
    rows.Mark(std::vector<std::uint32_t>{191, kNoSlot, 7, 64, 7, 0, 63});
    EXPECT_EQ(rows.CountDirty(kReader), 5u);
    EXPECT_THAT(TakeAll(rows), ElementsAre(0, 7, 63, 64, 191));
    EXPECT_THAT(TakeAll(rows), IsEmpty());
  }
}

TEST(DirtyRowsMarkDeathTest, WantsSlotsThatThereAre) {
  DirtyRows rows = Clean(100);
  EXPECT_DEATH(rows.Mark(std::vector<std::uint32_t>{100}), "");
  EXPECT_DEATH(rows.MarkRun(99, 2), "");
  std::vector<std::uint32_t> slots;
  EXPECT_DEATH(rows.Take(kReader, 101, 0, slots), "");
}

TEST(DirtyRowsTake, OfAReaderThatDoesNotWatchIsAllOfTheRangeAndItWatchesThen) {
  DirtyRows rows(100);
  std::vector<std::uint32_t> slots;
  rows.Take(kReader, 62, 3, slots);
  EXPECT_THAT(slots, ElementsAre(62, 63, 64));
  EXPECT_TRUE(rows.is_watched());
  EXPECT_EQ(rows.CountDirty(kReader), 97u);
}

TEST(DirtyRowsTake, AppendsAndLeavesSlotsOutsideOfTheRange) {
  DirtyRows rows = Clean(100);
  rows.Mark(std::vector<std::uint32_t>{9, 10, 19, 20});
  std::vector<std::uint32_t> slots = {5};
  rows.Take(kReader, 10, 10, slots);
  EXPECT_THAT(slots, ElementsAre(5, 10, 19));
  EXPECT_THAT(TakeAll(rows), ElementsAre(9, 20));
}

TEST(DirtyRowsTake, StopsBehindTheWordWithTheLastOfSoManyAndSaysWhereToGoOn) {
  DirtyRows rows = Clean(300);
  rows.Mark(std::vector<std::uint32_t>{9, 10, 70, 71, 130, 299});
  std::vector<std::uint32_t> slots;
  EXPECT_EQ(rows.Take(kReader, 0, 300, slots, 3), 128u);
  EXPECT_THAT(slots, ElementsAre(9, 10, 70, 71));
  EXPECT_EQ(rows.Take(kReader, 128, 172, slots, 1), 192u);
  EXPECT_EQ(rows.Take(kReader, 192, 8, slots, 1), 200u) << "the end of the range";
  EXPECT_EQ(rows.Take(kReader, 200, 100, slots, 1), 300u);
  EXPECT_THAT(slots, ElementsAre(9, 10, 70, 71, 130, 299));
  EXPECT_EQ(rows.Take(kReader, 300, 0, slots, 1), 300u);
  EXPECT_THAT(TakeAll(rows), IsEmpty());
}

TEST(DirtyRowsTake, RunsBeginAndEndAtAnyBitOfAWord) {
  for (const std::uint32_t slots : {0u, 1u, 63u, 64u, 65u, 128u, 191u}) {
    DirtyRows rows = Clean(slots);
    for (std::uint32_t first = 0; first <= slots; ++first) {
      for (std::uint32_t count = 0; count <= slots - first; ++count) {
        rows.MarkRun(first, count);
        ASSERT_EQ(rows.CountDirty(kReader), count) << slots << " slots from " << first;
        std::vector<std::uint32_t> taken;
        rows.Take(kReader, first, count, taken);
        ASSERT_EQ(taken.size(), count);
        for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(taken[i], first + i);
        ASSERT_EQ(rows.CountDirty(kReader), 0u);
      }
    }
  }
}

// The same by a set.
class Model {
 public:
  explicit Model(std::uint32_t slots) : slots_(slots) { MarkRun(0, slots); }

  void Mark(const std::vector<std::uint32_t>& slots) {
    dirty_.insert(slots.begin(), slots.end());
    dirty_.erase(kNoSlot);
  }
  void MarkRun(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) dirty_.insert(first + i);
  }
  void MarkAll() { MarkRun(0, slots_); }
  std::vector<std::uint32_t> Take(std::uint32_t first, std::uint32_t count) {
    const auto begin = dirty_.lower_bound(first);
    const auto end = dirty_.lower_bound(first + count);
    std::vector<std::uint32_t> slots(begin, end);
    dirty_.erase(begin, end);
    return slots;
  }
  std::size_t size() const { return dirty_.size(); }

 private:
  const std::uint32_t slots_;
  std::set<std::uint32_t> dirty_;
};

void Compare(std::uint32_t seed) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::uint32_t slots = 1 + random() % 500;
  const auto run = [&] {
    const std::uint32_t first = random() % (slots + 1);
    return std::pair(first, static_cast<std::uint32_t>(random() % (slots - first + 1)));
  };
  DirtyRows rows(slots);
  Model model(slots);
  for (int step = 0; step < 300; ++step) {
    const std::uint32_t verb = random() % 40;
    if (verb < 18) {
      std::vector<std::uint32_t> some(random() % 20);
      for (auto& slot : some) slot = random() % 9 == 0 ? kNoSlot : random() % slots;
      rows.Mark(some);
      model.Mark(some);
    } else if (verb < 24) {
      const auto [first, count] = run();
      rows.MarkRun(first, count);
      model.MarkRun(first, count);
    } else if (verb < 37) {
      const auto [first, count] = run();
      std::vector<std::uint32_t> taken;
      rows.Take(kReader, first, count, taken);
      ASSERT_EQ(taken, model.Take(first, count));
    } else {
      if (verb == 37) rows.MarkAll();
      if (verb == 38) rows.Watch(kReader);
      if (verb == 39) rows.Unwatch(kReader);
      model.MarkAll();
    }
    ASSERT_EQ(rows.CountDirty(kReader), model.size());
  }
}

TEST(DirtyRows, AgreeWithASet) {
  for (const std::uint32_t seed : testing::TestSeeds(200)) {
    Compare(seed);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace embla
