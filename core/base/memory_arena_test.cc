#include "core/base/memory_arena.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

TEST(MemoryArenaMap, GivesZeroedAlignedMemory) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{5000}, std::size_t{9} << 20}) {
    const auto arena = MemoryArena::Map(size);
    ASSERT_THAT(arena, IsOk());
    const std::size_t alignment = size <= (8 << 20) ? 4096 : 2 << 20;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % alignment, 0u);
    EXPECT_EQ(arena->size(), size);
    EXPECT_EQ(arena->data()[0], std::byte{0});
    arena->data()[size - 1] = std::byte{1};
  }
}

std::size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(MemoryArenaMap, SmallArenasAreApartAndGivenBackOneByOne) {
  constexpr std::size_t kBytes = (std::size_t{1} << 20) - 100;
  constexpr int kArenas = 200;  // Several shared mappings hold them.
  std::vector<MemoryArena> arenas;
  for (int i = 0; i < kArenas; ++i) {
    auto arena = MemoryArena::Map(kBytes);
    ASSERT_THAT(arena, IsOk());
    for (std::size_t at = 0; at < kBytes; at += 4096) {
      ASSERT_EQ(arena->data()[at], std::byte{0});
    }
    std::memset(arena->data(), i, kBytes);
    arenas.push_back(*std::move(arena));
  }
  const std::size_t all = ResidentBytes();
  for (int i = 0; i < kArenas; ++i) {
    if (i % 50 != 0) arenas[i] = MemoryArena();
  }
  EXPECT_LT(ResidentBytes() + kBytes * kArenas * 3 / 4, all) << "one of many keeps them";
  for (int i = 0; i < kArenas; i += 50) {
    EXPECT_EQ(arenas[i].data()[0], static_cast<std::byte>(i));
    EXPECT_EQ(arenas[i].data()[kBytes - 1], static_cast<std::byte>(i));
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
