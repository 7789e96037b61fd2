#include "server/gpu/pinned_buffers.h"

#include <memory>
#include <utility>

#include "core/base/buffer.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla::gpu {
namespace {

using ::embla::testing::IsOk;

constexpr std::size_t kLimit = 64 << 10;

class PinnedBuffersTest : public ::testing::Test {
 protected:
  bool IsPinned(const Buffer& buffer) const {
    return device_.IsPinned(buffer.data(), buffer.size());
  }

  SimulatedDevice device_;
  BufferPool pool_{kLimit, std::make_shared<PinnedBuffers>(device_, kLimit)};
};

TEST_F(PinnedBuffersTest, BuffersArePinnedAndUsedAgain) {
  Buffer first = pool_.Take(10'000);
  EXPECT_TRUE(IsPinned(first));
  const std::byte* const place = first.data();
  first = Buffer();
  EXPECT_EQ(device_.pinned_bytes(), 16'384u);
  EXPECT_EQ(pool_.Take(9'000).data(), place);
}

TEST_F(PinnedBuffersTest, BeyondTheLimitTheyAreOfTheHeap) {
  const Buffer most = pool_.Take(50'000);
  EXPECT_TRUE(IsPinned(most));
  {
    const Buffer beyond = pool_.Take(1);
    EXPECT_FALSE(IsPinned(beyond));
    EXPECT_EQ(device_.pinned_bytes(), kLimit);
  }
  EXPECT_FALSE(IsPinned(Buffer::Allocate(10)));
}

TEST_F(PinnedBuffersTest, WhereTheDeviceGivesNoneTheyAreOfTheHeap) {
  device_.Inject({.at = SimulatedFault::At::kAllocate, .kind = SimulatedFault::Kind::kOutOfMemory});
  const Buffer first = pool_.Take(50'000);
  EXPECT_FALSE(IsPinned(first));
  const Buffer second = pool_.Take(50'000);
  EXPECT_TRUE(IsPinned(second));
}

TEST_F(PinnedBuffersTest, AStoppedDeviceStillTakesItsMemoryBack) {
  Buffer buffer = pool_.Take(50'000);
  ASSERT_TRUE(IsPinned(buffer));
  (void)device_.Stop(absl::InternalError("stopped"));
  buffer = Buffer();
  EXPECT_FALSE(IsPinned(pool_.Take(1)));
}

TEST(PinnedMemoryOfADevice, IsReachedByOthers) {
  SimulatedDevice device({.ordinal = 0}), other({.ordinal = 1});
  const auto pinned = device.AllocatePinned(100);
  ASSERT_THAT(pinned, IsOk());
  EXPECT_TRUE(other.IsPinned(pinned->data(), 100));
  EXPECT_FALSE(other.IsPinned(pinned->data(), 101));
}

}  // namespace
}  // namespace embla::gpu
