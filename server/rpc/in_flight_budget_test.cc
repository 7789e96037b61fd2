#include "server/rpc/in_flight_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr InFlightLimits kLimits{
    .bytes_max = 1000, .stranger_bytes_max = 20, .strangers_bytes_max = 50};

InFlightHolder Session(std::uint64_t id) { return {.has_session = true, .id = id}; }
InFlightHolder Contributions(std::uint64_t id, TableId table = TableId{1}) {
  return {.has_session = true, .id = id, .table = table};
}
InFlightHolder Stranger(std::uint64_t id) { return {.has_session = false, .id = id}; }

TEST(InFlightBudgetTake, SessionsThatNeverLetGoLeaveRoomForAnother) {
  InFlightBudget budget(kLimits, Gauge());
  std::vector<Hold> holds;
  for (std::uint64_t session = 1; session <= 8; ++session) {
    for (;;) {
      absl::StatusOr<Hold> hold = budget.Take(Session(session), 1);
      if (!hold.ok()) break;
      holds.push_back(*std::move(hold));
    }
  }
  EXPECT_THAT(budget.Take(Session(1), 1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("read replies")));
  EXPECT_THAT(budget.Take(Session(9), 1), IsOk());
}

TEST(InFlightBudgetTake, CountsTheRequestsThatItLetIn) {
  InFlightBudget budget(kLimits, Gauge());
  (void)budget.Take(Session(1), 1);
  (void)budget.Take(Stranger(1), 1);
  EXPECT_THAT(budget.Take(Stranger(1), 100), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(budget.taken(), 2u);
}

TEST(InFlightBudgetTake, OneSessionAloneGetsHalf) {
  InFlightBudget budget(kLimits, Gauge());
  const auto first = budget.Take(Session(1), 500);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(budget.Take(Session(1), 1), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(budget.Take(Session(2), 500), IsOk());
}

TEST(InFlightBudgetTake, OneRequestIsAlwaysTaken) {
  InFlightBudget budget(kLimits, Gauge());
  EXPECT_THAT(budget.Take(Session(1), 5000), IsOk());
}

TEST(InFlightBudgetTake, WhatIsDestroyedIsGivenBack) {
  InFlightBudget budget(kLimits, Gauge());
  { const auto hold = budget.Take(Session(1), 500); }
  EXPECT_EQ(budget.held(), 0u);
  EXPECT_THAT(budget.Take(Session(1), 900), IsOk());
}

// Contributions of 100 bytes each: without the bound the fourth rank finds nothing left.
TEST(InFlightBudgetTake, ContributionsThatWaitLeaveRoomForTheRankThatIsMissing) {
  InFlightBudget budget(kLimits, Gauge());
  std::vector<Hold> holds;
  for (std::uint64_t session = 1; session <= 4; ++session) {
    for (;;) {
      absl::StatusOr<Hold> hold = budget.Take(Contributions(session), 100);
      if (!hold.ok()) break;
      holds.push_back(*std::move(hold));
    }
  }
  EXPECT_EQ(budget.held(), 800u) << "5 of the first, and 1 of each other";
  EXPECT_THAT(budget.Take(Contributions(1), 100),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("wait until steps")));
  EXPECT_THAT(budget.Take(Session(5), 100), IsOk()) << "it looks up before it contributes";
  EXPECT_THAT(budget.Take(Contributions(5), 100), IsOk());
}

TEST(InFlightBudgetTake, FirstContributionsToEachTableAreTaken) {
  InFlightBudget budget(kLimits, Gauge());
  const auto first = budget.Take(Contributions(1, TableId{1}), 450);
  const auto second = budget.Take(Contributions(1, TableId{2}), 450);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(second, IsOk());
  EXPECT_THAT(budget.Take(Contributions(1, TableId{2}), 1),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(budget.Take(Contributions(2, TableId{1}), 100), IsOk());
}

TEST(InFlightBudgetTake, StrangersHaveABoundEachAndOneForAll) {
  InFlightBudget budget(kLimits, Gauge());
  EXPECT_THAT(budget.Take(Stranger(1), 21),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("open a session")));
  const auto first = budget.Take(Stranger(1), 20);
  const auto second = budget.Take(Stranger(2), 20);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(second, IsOk());
  EXPECT_THAT(budget.Take(Stranger(3), 11), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(budget.Take(Stranger(3), 10), IsOk());
  // Strangers take nothing from clients that have sessions.
  EXPECT_THAT(budget.Take(Session(1), 5000), IsOk());
}

}  // namespace
}  // namespace embla
