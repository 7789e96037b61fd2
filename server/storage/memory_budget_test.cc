#include "server/storage/memory_budget.h"

#include <utility>

#include "gtest/gtest.h"

namespace embla {
namespace {

TEST(MemoryBudgetTake, StopsAtTheLimitAndGetsBackWhatGrantsHeld) {
  MemoryBudget budget(100);
  {
    auto first = budget.Take(60);
    ASSERT_TRUE(first.ok());
    const auto second = budget.Take(41);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(second.status().message(), "device memory: 41 B asked for, 60 B of 100 B in use");
    EXPECT_FALSE(budget.Take(~std::size_t{0}).ok());
    const MemoryGrant moved = *std::move(first);
    EXPECT_TRUE(budget.Take(40).ok());
    EXPECT_EQ(budget.used_bytes(), 60u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace embla
