#include "core/base/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <memory>

#include "core/base/testing/status_matchers.h"
#include "core/base/testing/used_memory.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::UsedBytes;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

long PageFaults() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void UseAndFree(std::size_t bytes) {
  const std::unique_ptr<volatile char[]> block(new volatile char[bytes]);  // Pages are written.
  for (std::size_t i = 0; i < bytes; i += 4096) block[i] = 1;
}

TEST(KeepHeap, MoreThanMallocCanCountIsRefused) {
  EXPECT_THAT(KeepHeap(kKeptHeapBytesMax + 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 2147483647")));
}

TEST(KeepHeap, ZeroChangesNothing) {
  ASSERT_THAT(KeepHeap(0), IsOk());
  UseAndFree(4 * kMiB);
  const long before = PageFaults();
  for (int i = 0; i < 50; ++i) UseAndFree(40 * kMiB);
  EXPECT_GT(PageFaults() - before, 1000);
}

TEST(KeepHeap, FreedMemoryIsUsedAgainWithoutPageFaultsUntilItIsTrimmed) {
  const absl::Status kept = KeepHeap(256 * kMiB);
  if (!kept.ok()) GTEST_SKIP() << kept.ToString();
  UseAndFree(24 * kMiB);
  const long before = PageFaults();
  for (int i = 0; i < 50; ++i) UseAndFree(24 * kMiB);
  EXPECT_LT(PageFaults() - before, 1000);
  EXPECT_GE(FreeHeapBytes(), 24 * kMiB);
  const std::size_t used = UsedBytes();
  ::malloc_trim(0);
  EXPECT_LT(UsedBytes() + 16 * kMiB, used);
}

}  // namespace
}  // namespace embla
