#include "server/coordinator/solved_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"
#include "server/state_store/memory_state_store.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

planner::ProblemDigest Inputs(char tables, char topology = '0') {
  return {.tables = std::string(64, tables),
          .topology = std::string(64, topology),
          .rules = std::string(64, 'a'),
          .options = std::string(64, 'b')};
}

TEST(SolvedPlans, TheSameInputsFindTheirPlan) {
  MemoryStateStore store;
  ASSERT_THAT(PutSolvedPlan(store, Inputs('1'), "one", absl::FromUnixSeconds(1)), IsOk());
  ASSERT_THAT(PutSolvedPlan(store, Inputs('2', '2'), "two", absl::FromUnixSeconds(2)), IsOk());
  EXPECT_EQ(*FindSolvedPlan(store, Inputs('1')), "one");
  ASSERT_THAT(PutSolvedPlan(store, Inputs('1'), "again", absl::FromUnixSeconds(3)), IsOk());
  EXPECT_EQ(*FindSolvedPlan(store, Inputs('1')), "again");
}

TEST(SolvedPlans, AChangedInputIsNamed) {
  MemoryStateStore store;
  ASSERT_THAT(PutSolvedPlan(store, Inputs('1', '1'), "one", absl::FromUnixSeconds(1)), IsOk());
  const absl::Status changed = FindSolvedPlan(store, Inputs('1', '2')).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(changed));
  EXPECT_THAT(std::string(changed.message()), HasSubstr("topology changed"));
  EXPECT_TRUE(absl::IsNotFound(FindSolvedPlan(store, Inputs('3', '4')).status()));
}

TEST(SolvedPlans, OnlyTheNewestAreKept) {
  MemoryStateStore store;
  const std::string digits = "0123456789abcdef0";
  for (std::size_t i = 0; i < kSolvedPlansMax; ++i) {
    ASSERT_THAT(PutSolvedPlan(store, Inputs(digits[i], digits[i]), "p",
                              absl::FromUnixSeconds(static_cast<std::int64_t>(i))),
                IsOk());
  }
  ASSERT_THAT(PutSolvedPlan(store, Inputs('e', 'f'), "new", absl::FromUnixSeconds(99)), IsOk());
  EXPECT_TRUE(absl::IsNotFound(FindSolvedPlan(store, Inputs('0', '0')).status()));
  EXPECT_THAT(FindSolvedPlan(store, Inputs('1', '1')), IsOk());
  EXPECT_EQ(*FindSolvedPlan(store, Inputs('e', 'f')), "new");
}

TEST(SolvedPlans, RefusesWhatIsNoDigestAndWhatIsTooLong) {
  MemoryStateStore store;
  planner::ProblemDigest inputs = Inputs('1');
  EXPECT_TRUE(absl::IsInvalidArgument(
      PutSolvedPlan(store, inputs, std::string(kSolvedPlanBytesMax + 1, 'x'), absl::UnixEpoch())));
  inputs.rules = "../x";
  EXPECT_TRUE(absl::IsInvalidArgument(PutSolvedPlan(store, inputs, "p", absl::UnixEpoch())));
}

}  // namespace
}  // namespace embla
