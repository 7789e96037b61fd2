#include "core/base/memory_arena.h"

#include <cstdint>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

TEST(MemoryArenaMap, GivesZeroedAlignedMemory) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{5000}, std::size_t{5} << 20}) {
    const auto arena = MemoryArena::Map(size);
    ASSERT_THAT(arena, IsOk());
    const std::size_t alignment = size < (2 << 20) ? 4096 : 2 << 20;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % alignment, 0u);
    EXPECT_EQ(arena->size(), size);
    EXPECT_EQ(arena->data()[0], std::byte{0});
    arena->data()[size - 1] = std::byte{1};
  }
}

TEST(MemoryArenaMap, NothingIsAnEmptyArena) {
  const auto arena = MemoryArena::Map(0);
  ASSERT_THAT(arena, IsOk());
  EXPECT_EQ(arena->size(), 0u);
}

TEST(MemoryArenaMap, MoreThanTheAddressSpaceIsResourceExhausted) {
  for (const std::size_t size : {std::size_t{1} << 60, ~std::size_t{0}}) {
    EXPECT_EQ(MemoryArena::Map(size).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

TEST(MemoryArenaMap, SmallPagesAreAlignedToPages) {
  const auto arena = MemoryArena::Map(std::size_t{5} << 20, MemoryArena::Pages::kSmall);
  ASSERT_THAT(arena, IsOk());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % 4096, 0u);
  EXPECT_EQ(arena->data()[(5 << 20) - 1], std::byte{0});
}

}  // namespace
}  // namespace embla
