#include "server/storage/row_cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/row_kernels.h"

namespace embla::row_cache_test {
namespace {

using kernels::kNoSlot;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Policy = RowCache::Policy;

TEST(RowCachePlace, GivesLinesFromTheLowestAndKeepsThem) {
  RowCache cache(3, Policy::kLru);
  RowCache::Placement placement;
  cache.Place(std::vector<std::uint32_t>{70, 50, kNoSlot, 70}, false, placement);
  EXPECT_THAT(placement.lines, ElementsAre(0, 1, kNoSlot, 0));
  EXPECT_THAT(placement.fills.slots, ElementsAre(70, 50));
  EXPECT_THAT(placement.fills.lines, ElementsAre(0, 1));
  cache.Place(std::vector<std::uint32_t>{50}, false, placement);
  EXPECT_THAT(placement.lines, ElementsAre(1));
  EXPECT_THAT(placement.fills.slots, IsEmpty());
  EXPECT_EQ(cache.statistics().hits, 1u);
  EXPECT_EQ(cache.statistics().misses, 2u);
}

TEST(RowCachePlace, LruLosesTheOldestAndLfuTheLeastUsed) {
  for (const Policy policy : {Policy::kLru, Policy::kLfu}) {
    RowCache cache(2, policy);
    RowCache::Placement placement;
    for (const std::uint32_t slot : {7u, 7u, 8u}) {
      cache.Place(std::vector<std::uint32_t>{slot}, false, placement);
    }
    cache.Place(std::vector<std::uint32_t>{9}, false, placement);
    // 7 was used longest ago, 8 least often.
    EXPECT_THAT(placement.lines, ElementsAre(policy == Policy::kLru ? 0 : 1));
    EXPECT_EQ(cache.statistics().evictions, 1u);
    EXPECT_EQ(cache.statistics().write_backs, 0u);
  }
}

TEST(RowCachePlace, RowsThatChangedAreWrittenBackBeforeTheirLinesAreFilled) {
  RowCache cache(1, Policy::kLru);
  RowCache::Placement placement;
  cache.Place(std::vector<std::uint32_t>{7}, true, placement);
  cache.Place(std::vector<std::uint32_t>{8}, false, placement);
  EXPECT_THAT(placement.write_backs.slots, ElementsAre(7));
  EXPECT_THAT(placement.write_backs.lines, ElementsAre(0));
  EXPECT_THAT(placement.fills.slots, ElementsAre(8));
}

TEST(RowCachePlaceDeathTest, WantsNoMoreRowsThanLines) {
  RowCache cache(2, Policy::kLru);
  RowCache::Placement placement;
  EXPECT_DEATH(cache.Place(std::vector<std::uint32_t>{1, 2, 3}, false, placement), "");
}

// The same by plain searches.
class Model {
 public:
  Model(std::uint32_t lines, Policy policy) : lines_(lines), policy_(policy) {}

  void Place(const std::vector<std::uint32_t>& slots, bool changes,
             RowCache::Placement& placement) {
    ++tick_;
    placement = {};
    placement.lines.assign(slots.size(), kNoSlot);
    const std::set<std::uint32_t> batch(slots.begin(), slots.end());
    for (const std::uint32_t slot : batch) {
      if (rows_.contains(slot)) Use(rows_[slot], changes);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == kNoSlot) continue;
      if (!rows_.contains(slots[i])) Bring(slots[i], changes, batch, placement);
      placement.lines[i] = rows_[slots[i]].line;
    }
  }
  std::vector<std::uint32_t> TakeChanged(const std::vector<std::uint32_t>& slots) {
    std::vector<std::uint32_t> changed;
    for (const std::uint32_t slot : slots) {
      if (!rows_.contains(slot) || !rows_[slot].changed) continue;
      rows_[slot].changed = false;
      changed.push_back(slot);
    }
    return changed;
  }
  void Drop(const std::vector<std::uint32_t>& slots) {
    for (const std::uint32_t slot : slots) rows_.erase(slot);
  }

 private:
  struct Row {
    std::uint32_t line = 0;
    std::uint64_t uses = 0;
    std::uint64_t tick = 0;
    bool changed = false;
  };

  void Use(Row& row, bool changes) const {
    row.tick = tick_;
    ++row.uses;
    row.changed = row.changed || changes;
  }
  void Bring(std::uint32_t slot, bool changes, const std::set<std::uint32_t>& batch,
             RowCache::Placement& placement) {
    if (rows_.size() == lines_) {
      const auto rank = [&](const auto& row) {
        const std::uint64_t uses = policy_ == Policy::kLfu ? row.second.uses : 0;
        return std::tuple(batch.contains(row.first), uses, row.second.tick, row.second.line);
      };
      const auto victim =
          std::min_element(rows_.begin(), rows_.end(),
                           [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
      if (victim->second.changed) placement.write_backs.Add(victim->first, victim->second.line);
      rows_.erase(victim);
    }
    std::set<std::uint32_t> taken;
    for (const auto& [other, row] : rows_) taken.insert(row.line);
    Row row;
    while (taken.contains(row.line)) ++row.line;
    Use(row, changes);
    placement.fills.Add(slot, row.line);
    rows_[slot] = row;
  }

  const std::uint32_t lines_;
  const Policy policy_;
  std::uint64_t tick_ = 0;
  std::map<std::uint32_t, Row> rows_;  // By slot.
};

void Compare(std::uint32_t seed) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::uint32_t lines = 1 + random() % 12;
  const Policy policy = random() % 2 == 0 ? Policy::kLru : Policy::kLfu;
  RowCache cache(lines, policy);
  Model model(lines, policy);
  RowCache::Placement got, want;
  RowCache::Pairs changed;
  for (int step = 0; step < 300; ++step) {
    std::set<std::uint32_t> few;
    while (few.size() < 1 + random() % lines) few.insert(random() % 30);
    std::vector<std::uint32_t> slots(few.begin(), few.end());
    std::shuffle(slots.begin(), slots.end(), random);
    slots.push_back(slots[random() % slots.size()]);
    if (random() % 4 == 0) slots.push_back(kNoSlot);
    const std::uint32_t verb = random() % 10;
    if (verb == 0) {
      cache.Drop(slots);
      model.Drop(slots);
    } else if (verb == 1) {
      cache.TakeChanged(slots, changed);
      ASSERT_EQ(changed.slots, model.TakeChanged(slots));
    } else {
      const bool changes = random() % 3 == 0;
      cache.Place(slots, changes, got);
      model.Place(slots, changes, want);
      ASSERT_EQ(got.lines, want.lines);
      ASSERT_EQ(got.fills.slots, want.fills.slots);
      ASSERT_EQ(got.fills.lines, want.fills.lines);
      ASSERT_EQ(got.write_backs.slots, want.write_backs.slots);
      ASSERT_EQ(got.write_backs.lines, want.write_backs.lines);
    }
  }
}

TEST(RowCache, DoesWhatAModelWithPlainSearchesDoes) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    Compare(seed);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace embla::row_cache_test
