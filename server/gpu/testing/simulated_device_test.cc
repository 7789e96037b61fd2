#include "server/gpu/testing/simulated_device.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla::gpu {
namespace {

using ::embla::testing::IsOk;

using Pace = SimulatedDeviceOptions::Pace;

absl::Status Fill(SimulatedDevice& device, Stream& stream, float* data, std::size_t count,
                  float value) {
  return stream.Launch("Fill", device.kernels().fill, data, count, value);
}

absl::Status SumInOrder(SimulatedDevice& device, Stream& stream, std::vector<const float*> inputs,
                        std::size_t count, float* out) {
  return stream.Queue("SumInOrder", [sum = device.kernels().sum_in_order,
                                     inputs = std::move(inputs), count, out](void* handle) {
    return sum(inputs.data(), inputs.size(), count, out, handle);
  });
}

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
    ASSERT_THAT(Fill(device, **stream, there->As<float>(), 1, 7.0f), IsOk());
    ASSERT_THAT((*stream)->CopyToHost(here->data(), there->data(), 4), IsOk());
    EXPECT_EQ(*here->As<float>(), pace == Pace::kLate ? 0.0f : 7.0f);
    ASSERT_THAT((*stream)->Synchronize(), IsOk());
    EXPECT_EQ(*here->As<float>(), 7.0f);
  }
}

TEST(SimulatedStream, WorkHasItsArgumentsByValueAndTheStreamsHandle) {
  SimulatedDevice device({.pace = Pace::kLate});
  const auto stream = device.NewStream();
  int seen = 0;
  void* queued_on = nullptr;
  const auto kernel = [&](const int& value, void* handle) {
    seen = value;
    queued_on = handle;
    return 0;
  };
  {
    int value = 7;
    ASSERT_THAT((*stream)->Launch("kernel", kernel, value), IsOk());
    value = 8;
  }
  EXPECT_EQ(seen, 0);
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(queued_on, (*stream)->handle());
}

TEST(SimulatedStream, SumsInOrderAlsoInPlaceAndOfOtherDevices) {
  SimulatedDevice device({.ordinal = 0}), other({.ordinal = 1});
  ASSERT_THAT(device.EnableAccessTo(other), IsOk());
  const auto a = device.Allocate(8), b = device.Allocate(8), c = other.Allocate(8);
  const auto here = device.AllocatePinned(8);
  const auto stream = device.NewStream(), other_stream = other.NewStream();
  // In another order the 1 is lost.
  ASSERT_THAT(Fill(device, **stream, a->As<float>(), 2, 1e8f), IsOk());
  ASSERT_THAT(Fill(device, **stream, b->As<float>(), 2, -1e8f), IsOk());
  ASSERT_THAT(Fill(other, **other_stream, c->As<float>(), 2, 1.0f), IsOk());
  ASSERT_THAT((*other_stream)->Synchronize(), IsOk());
  ASSERT_THAT(SumInOrder(device, **stream, {a->As<float>(), b->As<float>(), c->As<float>()}, 2,
                         b->As<float>()),
              IsOk());
  ASSERT_THAT((*stream)->CopyToHost(here->data(), b->data(), 8), IsOk());
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(here->As<float>()[0], 1.0f);
  EXPECT_EQ(here->As<float>()[1], 1.0f);
}

TEST(SimulatedStream, SeveralThreadsUseADeviceAndItsPeersAtOnce) {
  constexpr int kThreads = 4;
  SimulatedDevice eager({.ordinal = 0, .pace = Pace::kEager});
  SimulatedDevice late({.ordinal = 1, .pace = Pace::kLate});
  ASSERT_THAT(eager.EnableAccessTo(late), IsOk());
  ASSERT_THAT(late.EnableAccessTo(eager), IsOk());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      SimulatedDevice& device = t % 2 == 0 ? eager : late;
      SimulatedDevice& other = t % 2 == 0 ? late : eager;
      const auto stream = device.NewStream();
      for (int i = 0; i < 100; ++i) {
        const auto there = device.Allocate(4), away = other.Allocate(4);
        const auto here = device.AllocatePinned(4);
        const auto value = static_cast<float>(i);
        EXPECT_THAT(Fill(device, **stream, away->As<float>(), 1, value), IsOk());
        EXPECT_THAT(SumInOrder(device, **stream, {away->As<float>()}, 1, there->As<float>()),
                    IsOk());
        EXPECT_THAT((*stream)->CopyToHost(here->data(), there->data(), 4), IsOk());
        EXPECT_THAT((*stream)->Synchronize(), IsOk());
        EXPECT_EQ(*here->As<float>(), value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
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

class SimulatedDeviceDeathTest : public ::testing::Test {
 protected:
  Stream& stream() { return **stream_; }

  SimulatedDevice device_{{.pace = Pace::kEager}};
  const absl::StatusOr<std::unique_ptr<Stream>> stream_ = device_.NewStream();
  const absl::StatusOr<DeviceMemory> there_ = device_.Allocate(8);
  const absl::StatusOr<PinnedMemory> here_ = device_.AllocatePinned(8);
};

TEST_F(SimulatedDeviceDeathTest, OnlyKernelsUseItsMemory) {
  volatile float* const data = there_->As<float>();
  EXPECT_DEATH(static_cast<void>(*data), "");
  ASSERT_THAT(Fill(device_, stream(), there_->As<float>(), 2, 1.0f), IsOk());
  EXPECT_DEATH(static_cast<void>(*data), "");
  EXPECT_DEATH(*data = 0.0f, "");
}

TEST_F(SimulatedDeviceDeathTest, KernelsReachOtherDevicesOnlyWithAccess) {
  SimulatedDevice other({.ordinal = 1});
  const auto away = other.Allocate(8);
  EXPECT_DEATH((void)Fill(device_, stream(), away->As<float>(), 2, 1.0f), "");
  ASSERT_THAT(device_.EnableAccessTo(other), IsOk());
  EXPECT_THAT(Fill(device_, stream(), away->As<float>(), 2, 1.0f), IsOk());
}

TEST_F(SimulatedDeviceDeathTest, CopiesWantPinnedMemoryAndTheInsideOfOneAllocation) {
  const auto behind = device_.Allocate(8);
  const auto large = device_.AllocatePinned(1024);
  std::vector<std::byte> heap(8);
  EXPECT_DEATH((void)stream().CopyToDevice(there_->data(), heap.data(), 8), "IsPinned");
  EXPECT_DEATH((void)stream().CopyToHost(heap.data(), there_->data(), 8), "IsPinned");
  EXPECT_DEATH((void)stream().CopyToDevice(there_->data(), here_->data(), 9), "Has");
  EXPECT_DEATH((void)stream().CopyToDevice(there_->data() + 4, here_->data(), 8), "Has");
  EXPECT_DEATH((void)stream().CopyToHost(large->data(), there_->data(), 1024), "Has");
  EXPECT_DEATH((void)stream().CopyToHost(here_->data(), here_->data(), 8), "Has");
}

TEST_F(SimulatedDeviceDeathTest, UnderAddressSanitizerKernelsStayInsideAllocations) {
#ifdef __SANITIZE_ADDRESS__
  float* const freed = device_.Allocate(8)->As<float>();
  EXPECT_DEATH((void)Fill(device_, stream(), there_->As<float>(), 3, 1.0f), "poison");
  EXPECT_DEATH((void)Fill(device_, stream(), freed, 2, 1.0f), "poison");
#else
  GTEST_SKIP() << "built without AddressSanitizer";
#endif
}

TEST_F(SimulatedDeviceDeathTest, AllMemoryIsGivenBack) {
  EXPECT_DEATH(
      {
        SimulatedDevice device;
        new absl::StatusOr<DeviceMemory>(device.Allocate(8));
      },
      "used_bytes");
}

TEST(SimulatedMemory, IsUsedAgainAndOneAllocationAfterTheOtherFits) {
  SimulatedDevice device({.memory_bytes = 1024});
  const std::byte* place = nullptr;
  {
    const auto whole = device.Allocate(1024);
    ASSERT_THAT(whole, IsOk());
    place = whole->data();
    EXPECT_EQ(device.Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
  }
  std::vector<DeviceMemory> parts;
  for (int i = 0; i < 1024; ++i) parts.push_back(*device.Allocate(1));
  EXPECT_EQ(parts[0].data(), place);
  EXPECT_EQ(device.used_bytes(), 1024u);
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

TEST(SimulatedDeviceFaults, OfACallChangeNothingElse) {
  SimulatedDevice device;
  const auto there = device.Allocate(4);
  const auto here = device.AllocatePinned(4);
  const auto stream = device.NewStream();
  device.Inject({SimulatedFault::At::kQueue, SimulatedFault::Kind::kRefused, 1});
  EXPECT_THAT(Fill(device, **stream, there->As<float>(), 1, 1.0f), IsOk());
  EXPECT_EQ(Fill(device, **stream, there->As<float>(), 1, 2.0f).code(),
            absl::StatusCode::kInternal);
  EXPECT_THAT((*stream)->CopyToHost(here->data(), there->data(), 4), IsOk());
  EXPECT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(*here->As<float>(), 1.0f);
}

TEST(SimulatedDeviceFaults, StopTheDeviceWithItsQueuedWork) {
  SimulatedDevice device;
  const auto stream = device.NewStream();
  bool done = false;
  EXPECT_THAT((*stream)->Queue("work", [&](void*) { return done = true, 0; }), IsOk());
  device.Inject({SimulatedFault::At::kSynchronize, SimulatedFault::Kind::kStop});
  EXPECT_EQ((*stream)->Synchronize().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*stream)->IsDone().status(), device.health());
  EXPECT_FALSE(done);
}

TEST(DeviceWorkspaceBytes, AreTheKernelsWordOrItsError) {
  SimulatedDevice device;
  const auto twice = [](int count, std::size_t* bytes) {
    *bytes = 2 * static_cast<std::size_t>(count);
    return count < 100 ? 0 : 1;
  };
  EXPECT_EQ(*device.WorkspaceBytes("twice", twice, 21), 42u);
  EXPECT_EQ(device.WorkspaceBytes("twice", twice, 100).status().code(),
            absl::StatusCode::kInternal);
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
