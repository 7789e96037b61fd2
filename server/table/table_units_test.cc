#include "server/table/table_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace embla {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AnyGate final : public UnitGate {
 public:
  PartAnswer Check(const UnitUpdate&) const override { return {}; }
  void Apply(const UnitUpdate&) override {}
  void ForgetSessions(const SessionSet&) override {}
  bool ServesLookups() const override { return true; }
  bool IsAtRest() const override { return true; }
  bool TakesAveraging() const override { return true; }
  void Averaged(bool) override {}
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
  std::span<const RowInterval> Rest() {
    units_.FindRest();
    return units_.cuts()[0].rest.intervals();
  }

  TableUnits units_{Spec()};
};

TEST_F(TableUnitsTest, TheRestIsWhatIsPresentAndHasNoGate) {
  units_.CutOf({0, 4}).present.Insert({0, 40});
  EXPECT_THAT(Rest(), ElementsAre(RowInterval{0, 40}));
  SetGate(3, std::make_shared<AnyGate>());
  SetGate(1, std::make_shared<AnyGate>());
  EXPECT_THAT(Rest(), ElementsAre(RowInterval{0, 10}, RowInterval{20, 30}));
  SetGate(3, nullptr);
  EXPECT_THAT(Rest(), ElementsAre(RowInterval{0, 10}, RowInterval{20, 40}));
}

TEST_F(TableUnitsTest, RowsThatComeAndGoChangeTheRest) {
  units_.CutOf({0, 4}).present.Insert({0, 20});
  SetGate(0, std::make_shared<AnyGate>());
  EXPECT_THAT(Rest(), ElementsAre(RowInterval{10, 20}));
  units_.CutOf({0, 4}).present.Insert({20, 30});
  EXPECT_THAT(Rest(), ElementsAre(RowInterval{10, 30}));
  units_.CutOf({0, 4}).present.Erase({10, 30});
  EXPECT_THAT(Rest(), IsEmpty());
}

}  // namespace
}  // namespace embla
