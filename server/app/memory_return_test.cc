#include "server/app/memory_return.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/base/testing/await.h"
#include "core/base/testing/used_memory.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::UsedBytes;

TEST(MemoryReturnLook, SmallBlocksOfAFloodAreGivenBack) {
  const std::size_t before = UsedBytes();
  const MemoryReturn memory(nullptr, absl::Milliseconds(100));
  std::vector<std::unique_ptr<char[]>> blocks;
  std::vector<std::unique_ptr<char[]>> survivors;  // Keep the heap's end where it is.
  for (int i = 0; i < 40'000; ++i) {
    blocks.push_back(std::make_unique<char[]>(4000));
    if (i % 1000 == 999) survivors.push_back(std::make_unique<char[]>(64));
  }
  EXPECT_GT(UsedBytes(), before + (std::size_t{100} << 20));
  blocks.clear();
  EXPECT_TRUE(AwaitFor([&] { return UsedBytes() < before + (std::size_t{32} << 20); },
                       absl::Seconds(10), "the memory of a flood is given back"));
}

}  // namespace
}  // namespace embla
