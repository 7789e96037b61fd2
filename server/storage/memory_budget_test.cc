#include "server/storage/memory_budget.h"

#include <utility>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

TEST(MemoryBudgetTake, StopsAtTheLimitAndGetsBackWhatGrantsHeld) {
  MemoryBudget budget(100);
  {
    auto first = budget.Take(60);
    ASSERT_THAT(first, IsOk());
    const auto second = budget.Take(41);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(second.status().message(), "device memory: 41 B asked for, 60 B of 100 B in use");
    EXPECT_THAT(budget.Take(~std::size_t{0}),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("device memory")));
    const MemoryGrant moved = *std::move(first);
    EXPECT_THAT(budget.Take(40), IsOk());
    EXPECT_EQ(budget.used_bytes(), 60u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace embla
