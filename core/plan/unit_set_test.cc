#include "core/plan/unit_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace embla {
namespace {

using ::testing::ElementsAre;
using UnitRun = UnitSet::Run;

TEST(UnitSet, JoinsNeighboursOfAColumnGranule) {
  UnitSet units(UnitRun{0, 4, 6});
  units.Include(UnitSet(UnitRun{0, 2, 4}));
  units.Include(UnitSet(UnitRun{1, 6, 7}));
  EXPECT_THAT(units.runs(), ElementsAre(UnitRun{0, 2, 6}, UnitRun{1, 6, 7}));
  EXPECT_EQ(units.size(), 5u);
  EXPECT_EQ(ToString(units), "0:2..5, 1:6..6");
}

using Model = std::set<std::pair<std::uint32_t, std::uint32_t>>;

UnitSet Of(const Model& model) {
  UnitSet units;
  for (const auto& [column, row] : model) units.Include(UnitSet(UnitRun{column, row, row + 1}));
  return units;
}

TEST(UnitSet, HasWhatASetHas) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    Model models[2];
    for (int i = 0; i < 12; ++i) {
      const auto column = static_cast<std::uint32_t>(random() % 2);
      const auto row = static_cast<std::uint32_t>(random() % 9);
      models[random() % 2].insert({column, row});
    }
    Model both;
    Model left;
    Model all = models[1];
    for (const auto& unit : models[0]) {
      (models[1].contains(unit) ? both : left).insert(unit);
      all.insert(unit);
    }
    const UnitSet a = Of(models[0]);
    const UnitSet b = Of(models[1]);
    UnitSet joined = a;
    joined.Include(b);
    EXPECT_EQ(joined, Of(all)) << "seed " << seed;
    EXPECT_EQ(a.And(b), Of(both)) << "seed " << seed;
    EXPECT_EQ(a.Minus(b), Of(left)) << "seed " << seed;
    EXPECT_EQ(a.size(), models[0].size()) << "seed " << seed;
    EXPECT_EQ(a.Meets(b), !both.empty()) << "seed " << seed;
    EXPECT_EQ(b.Covers(a), left.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace embla
