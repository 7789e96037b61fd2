#include "server/app/memory_return.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/base/heap.h"
#include "core/base/testing/await.h"
#include "core/base/testing/used_memory.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::UsedBytes;

constexpr std::size_t kMiB = std::size_t{1} << 20;
using Blocks = std::vector<std::unique_ptr<char[]>>;

// malloc by itself gives nothing back in these tests.
class MemoryReturnLook : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status kept = KeepHeap(512 * kMiB); !kept.ok()) GTEST_SKIP() << kept.ToString();
  }
};

// Allocates 160 MB in small blocks and frees them, but for a few among them, which it returns.
Blocks Flood(std::size_t before) {
  Blocks blocks;
  Blocks survivors;
  for (int i = 0; i < 40'000; ++i) {
    blocks.push_back(std::make_unique<char[]>(4000));
    if (i % 1000 == 999) survivors.push_back(std::make_unique<char[]>(64));
  }
  EXPECT_GT(UsedBytes(), before + 100 * kMiB);
  return survivors;
}

TEST_F(MemoryReturnLook, SmallBlocksOfAFloodAreGivenBack) {
  const std::size_t before = UsedBytes();
  const MemoryReturn memory({.look = absl::Milliseconds(100)});
  const Blocks survivors = Flood(before);
  EXPECT_TRUE(AwaitFor([&] { return UsedBytes() < before + 32 * kMiB; }, absl::Seconds(10),
                       "the memory of a flood is given back"));
}

TEST_F(MemoryReturnLook, FreeMemoryIsKeptWhileRequestsComeAndGivenBackAtRest) {
  std::atomic<bool> is_loaded = true;
  std::atomic<std::uint64_t> looks = 0;
  const std::size_t before = UsedBytes();
  const MemoryReturn memory({.look = absl::Milliseconds(20),
                             .requests = [&] { return is_loaded ? ++looks : looks.load(); },
                             .kept_bytes_max = 256 * kMiB});
  const Blocks survivors = Flood(before);
  const std::uint64_t then = looks;
  ASSERT_TRUE(AwaitFor([&] { return looks > then + 10; }, absl::Seconds(10), "ten looks"));
  EXPECT_GT(UsedBytes(), before + 100 * kMiB);
  is_loaded = false;
  EXPECT_TRUE(AwaitFor([&] { return UsedBytes() < before + 32 * kMiB; }, absl::Seconds(10),
                       "the memory of the load is given back"));
}

// The second flood begins and ends between two looks, in memory that the first one had.
TEST_F(MemoryReturnLook, ASecondFloodIsGivenBackToo) {
  std::atomic<bool> is_due = false;
  std::atomic<bool> is_over = false;
  Blocks survivors;
  const std::size_t before = UsedBytes();
  const auto requests = [&] {
    if (is_due.exchange(false)) {
      survivors = Flood(before);
      is_over = true;
    }
    return 0;
  };
  const MemoryReturn memory({.look = absl::Milliseconds(100), .requests = requests});
  const Blocks first = Flood(before);
  ASSERT_TRUE(AwaitFor([&] { return UsedBytes() < before + 32 * kMiB; }, absl::Seconds(10),
                       "the memory of a flood is given back"));
  is_due = true;
  EXPECT_TRUE(AwaitFor([&] { return is_over && UsedBytes() < before + 32 * kMiB; },
                       absl::Seconds(10), "the memory of the second one is given back"));
}

TEST_F(MemoryReturnLook, MoreThanMayBeKeptIsGivenBackWhileRequestsCome) {
  std::atomic<std::uint64_t> looks = 0;
  const std::size_t before = UsedBytes();
  const MemoryReturn memory({.look = absl::Milliseconds(20),
                             .requests = [&] { return ++looks; },
                             .kept_bytes_max = 64 * kMiB});
  const Blocks survivors = Flood(before);
  EXPECT_TRUE(AwaitFor([&] { return UsedBytes() < before + 32 * kMiB; }, absl::Seconds(10),
                       "the memory of a flood is given back"));
}

}  // namespace
}  // namespace embla
