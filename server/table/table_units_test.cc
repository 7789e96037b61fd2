#include "server/table/table_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace embla {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class AnyGate final : public UnitGate {
 public:
  PartAnswer Check(const UnitUpdate&) const override { return {}; }
  void Apply(const UnitUpdate&) override {}
  void ForgetSessions(const SessionSet&) override {}
  PartAnswer CheckLookup() const override { return {.status = PartStatus::kApplied}; }
  bool IsAtRest() const override { return true; }
  bool TakesAveraging() const override { return true; }
  void Averaged(bool) override {}
  UnitStepping Stepping() const override { return {}; }
  UnitStanding Standing() const override { return {}; }
};

// 40 rows in 4 units of 10.
class TableUnitsTest : public ::testing::Test {
 protected:
  static TableSpec Spec() {
    TableSpec spec;
    spec.name = "t";
    spec.rows = 40;
    spec.dim = 4;
    spec.row_granules = 4;
    spec.SetDefaults();
    return spec;
  }
  void SetGate(std::uint32_t granule, std::shared_ptr<UnitGate> gate) {
    units_.SetGate(granule, {granule * 10, granule * 10 + 10, 0, 4, 10}, std::move(gate));
  }
  // By granule.
  std::span<const char> Rest() {
    units_.FindRest();
    return units_.cuts()[0].is_rest;
  }

  TableUnits units_{Spec()};
};

TEST_F(TableUnitsTest, TheRestIsWhatIsPresentAndHasNoGate) {
  units_.CutOf({0, 4}).present.Insert({0, 40});
  EXPECT_THAT(Rest(), ElementsAre(1, 1, 1, 1));
  SetGate(3, std::make_shared<AnyGate>());
  SetGate(1, std::make_shared<AnyGate>());
  EXPECT_THAT(Rest(), ElementsAre(1, 0, 1, 0));
  SetGate(3, nullptr);
  EXPECT_THAT(Rest(), ElementsAre(1, 0, 1, 1));
}

TEST_F(TableUnitsTest, RowsThatComeAndGoChangeTheRest) {
  units_.CutOf({0, 4}).present.Insert({0, 20});
  SetGate(0, std::make_shared<AnyGate>());
  EXPECT_THAT(Rest(), ElementsAre(0, 1, 0, 0));
  units_.CutOf({0, 4}).present.Insert({20, 30});
  EXPECT_THAT(Rest(), ElementsAre(0, 1, 1, 0));
  units_.CutOf({0, 4}).present.Erase({10, 30});
  EXPECT_THAT(Rest(), Each(0));
}

TEST(GranuleFinder, SaysWhatADivisionSays) {
  std::mt19937_64 random(20261123);
  std::vector<std::pair<std::int64_t, std::uint32_t>> tables = {
      {1, 1}, {7, 7}, {40, 4}, {1000, 7}, {std::int64_t{1} << 40, 1 << 12}};
  for (int i = 0; i < 200; ++i) {
    const std::int64_t rows = 1 + static_cast<std::int64_t>(random() >> (24 + random() % 38));
    const auto most = static_cast<std::uint64_t>(std::min<std::int64_t>(rows, 1 << 16));
    tables.emplace_back(rows, 1 + random() % most);
  }
  for (const auto& [rows, granules] : tables) {
    TableSpec spec;
    spec.rows = rows;
    spec.row_granules = granules;
    const GranuleFinder finder(spec);
    for (int i = 0; i < 100; ++i) {
      const std::int64_t border =
          spec.RowGranuleBegin(static_cast<std::uint32_t>(random() % granules));
      const std::int64_t any = static_cast<std::int64_t>(random() % rows);
      for (const std::int64_t row : {border - 1, border, border + 1, any, rows - 1}) {
        if (row < 0 || row >= rows) continue;
        ASSERT_EQ(finder.GranuleOf(row), RowGranuleOf(spec, row))
            << "row " << row << " of " << rows << " in " << granules;
      }
    }
  }
}

}  // namespace
}  // namespace embla
