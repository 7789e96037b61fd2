// Units move between two nodes with journals, and between the devices of one, step by step, and
// either node is killed between any two steps, with what was not synced lost, or not: afterwards
// every row and all optimizer state have the bits of a node that nothing moved on, and no update is
// lost or applied twice (testing/unit_trial.h).
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/seeds.h"
#include "gtest/gtest.h"
#include "server/journal/testing/unit_trial.h"

namespace embla::testing {
namespace {

TEST(UnitRecovery, UnitsMoveBetweenNodesThatDieAndKeepTheBitsOfNoMove) {
  const std::vector<std::uint32_t> seeds = TestSeeds(20);
  UnitTrial::Counts counts;
  for (const std::uint32_t seed : seeds) {
    if (HasFailure()) break;
    SCOPED_TRACE(absl::StrCat("EMBLA_TEST_SEED=", seed));
    UnitTrial trial(seed, counts);
    trial.Run();
  }
  std::cout << counts.kills << " kills, " << counts.snapshots << " snapshots, " << counts.folds
            << " units folded back, " << counts.taken_apart << " times taken apart, "
            << counts.starts_amid_moves << " starts amid moves\n";
  // Units of tables with steps are not folded back.
  EXPECT_TRUE(seeds.size() == 1 || counts.folds > 0);
  EXPECT_TRUE(seeds.size() == 1 || counts.taken_apart > 0);
  EXPECT_GT(counts.kills, static_cast<int>(seeds.size()));
  EXPECT_TRUE(seeds.size() == 1 || counts.starts_amid_moves > 0);
}

}  // namespace
}  // namespace embla::testing
