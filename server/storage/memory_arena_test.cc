#include "server/storage/memory_arena.h"

#include <cstdint>
#include <utility>

#include "gtest/gtest.h"
#include "server/storage/memory_budget.h"

namespace embla {
namespace {

TEST(MemoryArenaMap, GivesZeroedAlignedMemory) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{5000}, std::size_t{5} << 20}) {
    const auto arena = MemoryArena::Map(size);
    ASSERT_TRUE(arena.ok());
    const std::size_t alignment = size < (2 << 20) ? 4096 : 2 << 20;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % alignment, 0u);
    EXPECT_EQ(arena->size(), size);
    EXPECT_EQ(arena->data()[0], std::byte{0});
    arena->data()[size - 1] = std::byte{1};
  }
}

TEST(MemoryArenaMap, NothingIsAnEmptyArena) {
  const auto arena = MemoryArena::Map(0);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->size(), 0u);
}

TEST(MemoryArenaMap, MoreThanTheAddressSpaceIsResourceExhausted) {
  for (const std::size_t size : {std::size_t{1} << 60, ~std::size_t{0}}) {
    EXPECT_EQ(MemoryArena::Map(size).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

TEST(MemoryBudgetTake, StopsAtTheLimitAndGetsBackWhatGrantsHeld) {
  MemoryBudget budget(100);
  {
    auto first = budget.Take(60);
    ASSERT_TRUE(first.ok());
    const auto second = budget.Take(41);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(second.status().message(), "device memory: 41 bytes asked for, 60 of 100 in use");
    EXPECT_FALSE(budget.Take(~std::size_t{0}).ok());
    const MemoryGrant moved = *std::move(first);
    EXPECT_TRUE(budget.Take(40).ok());
    EXPECT_EQ(budget.used_bytes(), 60u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace embla
