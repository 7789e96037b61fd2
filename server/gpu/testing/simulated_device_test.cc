#include "server/gpu/testing/simulated_device.h"

#include <algorithm>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla::gpu {
namespace {

using ::embla::testing::IsOk;

using Pace = SimulatedDeviceOptions::Pace;

TEST(SimulatedStream, LateWorkRunsWhenSomebodyWaitsAndEagerWorkAtOnce) {
  for (const Pace pace : {Pace::kLate, Pace::kEager}) {
    SimulatedDevice device({.pace = pace});
    const auto there = device.Allocate(4);
    const auto here = device.AllocatePinned(4);
    const auto stream = device.NewStream();
    ASSERT_THAT(there, IsOk());
    ASSERT_THAT(here, IsOk());
    ASSERT_THAT(stream, IsOk());
    *here->As<float>() = 0.0f;
    ASSERT_THAT((*stream)->Fill(there->As<float>(), 1, 7.0f), IsOk());
    ASSERT_THAT((*stream)->CopyToHost(here->data(), there->data(), 4), IsOk());
    EXPECT_EQ(*here->As<float>(), pace == Pace::kLate ? 0.0f : 7.0f);
    ASSERT_THAT((*stream)->Synchronize(), IsOk());
    EXPECT_EQ(*here->As<float>(), 7.0f);
  }
}

TEST(SimulatedStream, SumsInOrderAlsoInPlaceAndOfOtherDevices) {
  SimulatedDevice device({.ordinal = 0}), other({.ordinal = 1});
  ASSERT_THAT(device.EnableAccessTo(other), IsOk());
  const auto a = device.Allocate(8), b = device.Allocate(8), c = other.Allocate(8);
  const auto here = device.AllocatePinned(8);
  const auto stream = device.NewStream(), other_stream = other.NewStream();
  // In another order the 1 is lost.
  ASSERT_THAT((*stream)->Fill(a->As<float>(), 2, 1e8f), IsOk());
  ASSERT_THAT((*stream)->Fill(b->As<float>(), 2, -1e8f), IsOk());
  ASSERT_THAT((*other_stream)->Fill(c->As<float>(), 2, 1.0f), IsOk());
  ASSERT_THAT((*other_stream)->Synchronize(), IsOk());
  const std::vector<const float*> inputs = {a->As<float>(), b->As<float>(), c->As<float>()};
  ASSERT_THAT((*stream)->SumInOrder(inputs, 2, b->As<float>()), IsOk());
  ASSERT_THAT((*stream)->CopyToHost(here->data(), b->data(), 8), IsOk());
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(here->As<float>()[0], 1.0f);
  EXPECT_EQ(here->As<float>()[1], 1.0f);
}

TEST(SimulatedDevice, KnowsWhatIsHeldOfIt) {
  SimulatedDevice device;
  {
    const auto there = device.Allocate(100);
    const auto here = device.AllocatePinned(30);
    const auto none = device.Allocate(0);
    EXPECT_EQ(device.held_bytes(MemoryKind::kDevice), 100u);
    EXPECT_EQ(device.held_bytes(MemoryKind::kPinned), 30u);
  }
  EXPECT_EQ(device.held_bytes(MemoryKind::kDevice), 0u);
  EXPECT_EQ(device.held_bytes(MemoryKind::kPinned), 0u);
}

TEST(SimulatedDeviceDeathTest, IsAsStrictAsAGpu) {
  SimulatedDevice device({.pace = Pace::kEager});
  const auto there = device.Allocate(8);
  const auto here = device.AllocatePinned(8);
  const auto stream = device.NewStream();
  std::vector<std::byte> heap(8);
  EXPECT_DEATH(std::copy_n(there->data(), 8, heap.data()), "");
  EXPECT_DEATH((void)(*stream)->CopyToDevice(there->data(), heap.data(), 8), "");
  EXPECT_DEATH((void)(*stream)->CopyToDevice(there->data(), here->data(), 9), "");
  EXPECT_DEATH((void)(*stream)->CopyToDevice(there->data() + 4, here->data(), 8), "");
}

TEST(SimulatedDeviceFaults, ComeOnceAfterTheCallsThatGoWell) {
  SimulatedDevice device;
  device.Inject({SimulatedFault::At::kAllocate, SimulatedFault::Kind::kOutOfMemory, 1});
  const auto first = device.Allocate(8);
  EXPECT_THAT(first, IsOk());
  EXPECT_EQ(device.Allocate(8).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(device.Allocate(8), IsOk());
  EXPECT_THAT(device.health(), IsOk());
}

TEST(DeviceStop, IsForGoodAndKeepsTheFirstReason) {
  SimulatedDevice device;
  const auto stream = device.NewStream();
  const absl::Status first = device.Stop(absl::InternalError("one"));
  EXPECT_EQ(first.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(device.Stop(absl::InternalError("two")), first);
  EXPECT_EQ(device.health(), first);
  EXPECT_EQ(device.Allocate(8).status(), first);
  EXPECT_EQ(device.AllocatePinned(8).status(), first);
  EXPECT_EQ((*stream)->Synchronize(), first);
}

}  // namespace
}  // namespace embla::gpu
