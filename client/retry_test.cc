#include "client/retry.h"

#include <gtest/gtest.h>

namespace embla::client {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

TEST(RetryBudget, TokensThatAreNotThereYetAreTakenInTheirOrder) {
  RetryBudget budget(/*per_request=*/0.5, /*per_second=*/20, kStart);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(budget.Take(kStart, absl::Hours(1)), absl::ZeroDuration());
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(budget.Take(kStart, absl::Hours(1)), i * absl::Milliseconds(50));
  }
  // Time has brought the ten that are taken, and no more.
  EXPECT_EQ(budget.Take(kStart + absl::Milliseconds(500), absl::Hours(1)), absl::Milliseconds(50));
  budget.AddRequest();
  budget.AddRequest();
  EXPECT_EQ(budget.Take(kStart + absl::Milliseconds(500), absl::Hours(1)), absl::Milliseconds(50));
  // At rest it fills up again, and not further.
  const absl::Time later = kStart + absl::Hours(1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(budget.Take(later, absl::Hours(1)), absl::ZeroDuration());
  EXPECT_EQ(budget.Take(later, absl::Hours(1)), absl::Milliseconds(50));
}

TEST(RetryBudget, WhoHasNoTimeLeavesTheTokenToOthers) {
  RetryBudget budget(/*per_request=*/0, /*per_second=*/10, kStart);
  for (int i = 0; i < 10; ++i) budget.Take(kStart, absl::Hours(1));
  EXPECT_EQ(budget.Take(kStart, absl::Milliseconds(100)), std::nullopt);
  EXPECT_EQ(budget.Take(kStart, absl::Milliseconds(101)), absl::Milliseconds(100));
}

TEST(RetryBudget, WithoutTokensByTimeThereAreThoseOfRequests) {
  RetryBudget budget(/*per_request=*/0.25, /*per_second=*/0, kStart);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(budget.Take(kStart, absl::Hours(1)), absl::ZeroDuration());
  EXPECT_EQ(budget.Take(kStart + absl::Hours(1), absl::Hours(1)), std::nullopt);
  for (int i = 0; i < 4; ++i) budget.AddRequest();
  EXPECT_EQ(budget.Take(kStart, absl::Hours(1)), absl::ZeroDuration());
}

}  // namespace
}  // namespace embla::client
