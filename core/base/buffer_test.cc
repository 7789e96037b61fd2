#include "core/base/buffer.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "core/base/testing/seeds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

TEST(BufferPoolTake, ReusesAReturnedBufferOfTheSameSizeClass) {
  BufferPool pool;
  Buffer first = pool.Take(100'000);
  const std::byte* const address = first.data();
  first = Buffer();
  EXPECT_EQ(pool.retained_bytes(), 131'072u);
  const Buffer second = pool.Take(120'000);
  EXPECT_EQ(second.data(), address);
  EXPECT_EQ(pool.retained_bytes(), 0u);
}

TEST(BufferPoolTake, KeepsNoMoreThanItsLimit) {
  BufferPool pool(/*retained_bytes_max=*/8192);
  { const Buffer small = pool.Take(4096), large = pool.Take(1 << 20); }
  EXPECT_LE(pool.retained_bytes(), 8192u);
}

// Sizes are powers of two from 32 KiB to 2 MiB, as many buffers of each as chance will have.
TEST(HugePages, PiecesOfPagesAreApartAndJoinedAgain) {
  BufferMemory& memory = *BufferMemory::HugePages();
  std::mt19937 random(testing::TestSeed());
  std::map<std::byte*, std::size_t> held;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const std::size_t capacity = (std::size_t{32} << 10) << random() % 7;
      std::byte* const data = memory.Allocate(capacity);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % capacity, 0u);
      const auto [at, is_new] = held.emplace(data, capacity);
      ASSERT_TRUE(is_new);
      EXPECT_TRUE(std::next(at) == held.end() || data + capacity <= std::next(at)->first);
      EXPECT_TRUE(at == held.begin() || std::prev(at)->first + std::prev(at)->second <= data);
    } else if (!held.empty()) {
      const auto at = std::next(held.begin(), random() % held.size());
      memory.Free(at->first, at->second);
      held.erase(at);
    }
  }
  for (const auto& [data, capacity] : held) memory.Free(data, capacity);
  // Nothing is left of a page but the page: two halves lie in one.
  std::byte* const first = memory.Allocate(1 << 20);
  std::byte* const second = memory.Allocate(1 << 20);
  EXPECT_EQ(std::abs(first - second), 1 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(std::min(first, second)) % (2 << 20), 0u);
  memory.Free(first, 1 << 20);
  memory.Free(second, 1 << 20);
}

TEST(BufferPoolReturnIdle, KeepsWhatIsUsedBetweenTwoCalls) {
  BufferPool pool;
  { const Buffer first = pool.Take(4096), second = pool.Take(4096), large = pool.Take(65536); }
  pool.ReturnIdle();  // All buffers were used.
  EXPECT_EQ(pool.retained_bytes(), 2 * 4096u + 65536u);
  { const Buffer one = pool.Take(4096); }
  pool.ReturnIdle();
  EXPECT_EQ(pool.retained_bytes(), 4096u);
  pool.ReturnIdle();
  EXPECT_EQ(pool.retained_bytes(), 0u);
}

TEST(BufferPoolTake, BuffersAreAlignedAndOutliveTheirPool) {
  Buffer survivor;
  {
    BufferPool pool;
    survivor = pool.Take(65);
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(survivor.data()) % kBufferAlignment, 0u);
  survivor.bytes()[64] = std::byte{1};
}

TEST(BufferMove, LeavesTheSourceEmpty) {
  Buffer source = Buffer::Allocate(16);
  const Buffer target = std::move(source);
  EXPECT_EQ(target.As<std::uint64_t>().size(), 2u);
  // The moved-from state is specified.
  EXPECT_TRUE(source.empty());  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace embla
