#include "server/app/memory_return.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/testing/await.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;

// Memory that is this process's alone and that the kernel may not simply take.
std::size_t UsedBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::size_t anonymous = 0;
  std::size_t lazy = 0;
  for (std::string key; rollup >> key;) {
    if (key == "Anonymous:") rollup >> anonymous;
    if (key == "LazyFree:") rollup >> lazy;
  }
  return (anonymous - lazy) << 10;
}

TEST(MemoryReturnLook, SmallBlocksOfAFloodAreGivenBack) {
  const std::size_t before = UsedBytes();
  const MemoryReturn memory(absl::Milliseconds(100));
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
