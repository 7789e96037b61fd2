#include "core/base/buffer.h"

#include <cstdint>
#include <utility>

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

TEST(BufferPoolTake, LargeBuffersFillWholePagesOfTwoMebibytes) {
  BufferPool pool;
  const Buffer first = pool.Take((1 << 20) + 1), second = pool.Take(3 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % (2 << 20), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.data()) % (2 << 20), 0u);
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
