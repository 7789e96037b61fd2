#include "server/storage/kept_memory.h"

#include <cstddef>
#include <utility>

#include "core/base/memory_arena.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

constexpr std::size_t kMiB = std::size_t{1} << 20;

MemoryArena New(std::size_t size) {
  auto arena = MemoryArena::Map(size);
  EXPECT_THAT(arena, IsOk());
  return *std::move(arena);
}

TEST(KeptMemoryMap, PrefersTheSmallestThatFitsAndWastesAtMostHalf) {
  KeptMemory kept(100 * kMiB);
  for (const std::size_t size : {20 * kMiB, 8 * kMiB, 12 * kMiB}) kept.Keep(New(size));
  EXPECT_EQ(kept.Map(7 * kMiB)->size(), 8 * kMiB);
  EXPECT_EQ(kept.Map(7 * kMiB)->size(), 12 * kMiB);
  EXPECT_EQ(kept.Map(7 * kMiB)->size(), 7 * kMiB);
  EXPECT_EQ(kept.Map(21 * kMiB)->size(), 21 * kMiB);
  EXPECT_EQ(kept.bytes(), 20 * kMiB);
}

TEST(KeptMemoryMap, OfKeptMemoryEveryByteCanBeUsed) {
  KeptMemory kept(100 * kMiB);
  MemoryArena first = New(4 * kMiB);
  for (std::size_t i = 0; i < first.size(); ++i) first.data()[i] = std::byte{7};
  const std::byte* const place = first.data();
  kept.Keep(std::move(first));
  const auto again = kept.Map(4 * kMiB);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->data(), place);
  for (std::size_t i = 0; i < again->size(); ++i) again->data()[i] = std::byte{9};
  for (std::size_t i = 0; i < again->size(); ++i) ASSERT_EQ(again->data()[i], std::byte{9});
}

TEST(KeptMemoryKeep, DropsTheOldestBeyondTheLimitAndWhatIsSmall) {
  KeptMemory kept(10 * kMiB);
  kept.Keep(New(6 * kMiB));
  kept.Keep(New(5 * kMiB));
  EXPECT_EQ(kept.bytes(), 5 * kMiB);
  kept.Keep(New(1 * kMiB));
  kept.Keep(New(11 * kMiB));
  kept.Keep(MemoryArena());
  EXPECT_EQ(kept.bytes(), 5 * kMiB);
}

}  // namespace
}  // namespace embla
