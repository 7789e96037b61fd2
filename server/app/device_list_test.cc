#include "server/app/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/host_memory.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using gpu::SimulatedDevice;

TEST(ParseDevices, ReadsLists) {
  const DeviceItem two_cpus{.kind = DeviceKind::kCpu, .count = 2};
  const DeviceItem gpu_3{.kind = DeviceKind::kGpu, .first = 3, .last = 3};
  const DeviceItem gpus_0_to_7{.kind = DeviceKind::kGpu, .last = 7};
  const DeviceItem all_gpus{.kind = DeviceKind::kGpu, .all = true};
  EXPECT_THAT(*ParseDevices("cpu:2"), ElementsAre(two_cpus));
  EXPECT_THAT(*ParseDevices("gpu:3"), ElementsAre(gpu_3));
  EXPECT_THAT(*ParseDevices("gpu:0-7"), ElementsAre(gpus_0_to_7));
  EXPECT_THAT(*ParseDevices("gpu:all, cpu:2"), ElementsAre(all_gpus, two_cpus));
  EXPECT_THAT(*ParseDevices("cpu:2,gpu:3,gpu:3"), ElementsAre(two_cpus, gpu_3, gpu_3));
}

TEST(ParseDevices, RefusesWhatIsNoListAndSaysWhichPartIsNot) {
  for (const char* text : {"", "cpu", "cpu:", "cpu:0", "cpu:-1", "cpu:65", "cpu:2x", "tpu:1", "gpu",
                           "gpu:", "gpu:x", "gpu:-1", "gpu:1-", "gpu:3-1", "gpu:0-64", "gpu:all-1",
                           "gpu:0,1", "cpu:1,", "cpu:1;gpu:0"}) {
    EXPECT_EQ(ParseDevices(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(Message(ParseDevices("gpu:0,1").status()), HasSubstr("`1` is none of"));
}

// GPUs with that many bytes.
GpuSource Simulated(std::vector<std::size_t> memory_bytes, std::size_t others_bytes = 0,
                    bool has_peer_access = true) {
  const auto options = [=](std::uint32_t ordinal) {
    return gpu::SimulatedDeviceOptions{.ordinal = ordinal,
                                       .memory_bytes = memory_bytes[ordinal],
                                       .others_bytes = others_bytes,
                                       .has_peer_access = has_peer_access};
  };
  GpuSource source;
  source.list = [memory_bytes, options] {
    std::vector<gpu::DeviceProperties> all;
    for (std::uint32_t i = 0; i < memory_bytes.size(); ++i) {
      all.push_back(SimulatedDevice(options(i)).properties());
    }
    return absl::StatusOr<std::vector<gpu::DeviceProperties>>(all);
  };
  source.open = [options](std::uint32_t ordinal) {
    return absl::StatusOr<std::unique_ptr<gpu::Device>>(
        std::make_unique<SimulatedDevice>(options(ordinal)));
  };
  return source;
}

absl::StatusOr<DeviceList> Open(const std::string& text, std::int64_t memory_per_device,
                                const GpuSource& gpus,
                                Collectives collectives = Collectives::kHost) {
  const absl::StatusOr<std::vector<DeviceItem>> items = ParseDevices(text);
  if (!items.ok()) return items.status();
  return OpenDevices(*items, {.memory_per_device = memory_per_device, .collectives = collectives},
                     gpus);
}

TEST(OpenDevices, SplitsTheNode) {
  const auto devices = Open("cpu:3", 1000, Simulated({}));
  ASSERT_THAT(devices, IsOk());
  EXPECT_EQ(devices->specs,
            std::vector<DeviceSpec>(3, {.kind = DeviceKind::kCpu, .memory_bytes = 1000}));
  EXPECT_THAT(devices->gpus, Each(nullptr));
}

TEST(OpenDevices, CpuDevicesShareTheMemoryByDefault) {
  const std::int64_t one = Open("cpu:1", 0, Simulated({}))->specs.front().memory_bytes;
  const std::int64_t four = Open("cpu:3,cpu:1", 0, Simulated({}))->specs.front().memory_bytes;
  EXPECT_GT(one, 0);
  EXPECT_EQ(one / 4, four);
}

TEST(OpenDevices, MemoryThatTheMachineHasNotIsNotPromised) {
  const std::int64_t host = FindHostMemory().bytes;
  EXPECT_EQ(Open("cpu:2", host / 2, Simulated({})).status(), absl::OkStatus());
  const auto devices = Open("cpu:2", host / 2 + 1, Simulated({}));
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(devices.status()), HasSubstr("bytes in all, for 2 devices; state fewer"));
  const auto cached =
      OpenDevices(*ParseDevices("gpu:0"), {.memory_per_device = host + 1, .gpu_cache_bytes = 500},
                  Simulated({1000}));
  EXPECT_EQ(cached.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(OpenDevices, GpusAreOpenedOnceAndGiveNineTenthsOfTheirMemory) {
  const auto devices = Open("gpu:1,cpu:1,gpu:all", 0, Simulated({1000, 2000}));
  ASSERT_THAT(devices, IsOk());
  ASSERT_EQ(devices->specs.size(), 4u);
  EXPECT_EQ(devices->specs[0], (DeviceSpec{.kind = DeviceKind::kGpu,
                                           .memory_bytes = 900,
                                           .memory_bytes_per_second = 1'000'000'000'000}));
  EXPECT_EQ(devices->specs[1].kind, DeviceKind::kCpu);
  EXPECT_EQ(devices->specs[2], devices->specs[0]);
  EXPECT_EQ(devices->specs[3], devices->specs[0]);
  EXPECT_EQ(devices->owned.size(), 2u);
  EXPECT_EQ(devices->gpus[0], devices->gpus[3]);
  EXPECT_EQ(devices->gpus[1], nullptr);
  EXPECT_EQ(devices->gpus[0]->properties().ordinal, 1u);
  EXPECT_EQ(devices->gpus[2]->properties().ordinal, 0u);
}

TEST(OpenDevices, RefusesMoreMemoryThanAGpuHas) {
  EXPECT_EQ(Open("gpu:0", 1000, Simulated({1000}))->specs.front().memory_bytes, 1000);
  for (const auto& [text, memory] : {std::pair("gpu:0", 1001), std::pair("gpu:0,gpu:0", 501)}) {
    const auto devices = Open(text, memory, Simulated({1000}));
    EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(devices.status()), HasSubstr("1000 of 1000 bytes free"));
  }
}

// Otherwise a node that has tables would come back with other devices.
TEST(OpenDevices, TheDefaultDoesNotDependOnWhoElseUsesTheGpu) {
  EXPECT_EQ(Open("gpu:0", 0, Simulated({1000}, 100))->specs.front().memory_bytes, 900);
  const auto devices = Open("gpu:0", 0, Simulated({1000}, 101));
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(devices.status()), HasSubstr("899 of 1000 bytes free"));
}

TEST(OpenDevices, RefusesGpusThatAreNotThere) {
  const auto devices = Open("gpu:0-2", 0, Simulated({1000, 1000}));
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(devices.status()), HasSubstr("gpu:2: this machine has 2 GPUs, gpu:0-1"));
}

TEST(OpenDevices, WithACacheRowsAreInHostMemory) {
  const auto open = [](std::int64_t memory, std::int64_t cache) {
    return OpenDevices(*ParseDevices("gpu:0,gpu:0"),
                       {.memory_per_device = memory, .gpu_cache_bytes = cache}, Simulated({1000}));
  };
  const auto devices = open(5000, 500);
  ASSERT_THAT(devices, IsOk());
  EXPECT_EQ(devices->specs[1].memory_bytes, 5000);
  EXPECT_LT(devices->specs[1].memory_bytes_per_second, 1'000'000'000'000);
  EXPECT_THAT(Message(open(5000, 501).status()), HasSubstr("--gpu-cache 501: GPU 0"));
  EXPECT_EQ(open(0, 500).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(OpenDevices, StatesDirectAccessWhereSumsUseIt) {
  const auto access = [](Collectives collectives, bool possible) {
    GpuSource gpus = Simulated({1000, 1000}, 0, possible);
    const auto devices = Open("gpu:all", 0, gpus, collectives);
    EXPECT_THAT(devices, IsOk());
    EXPECT_EQ(devices->specs[0], devices->specs[1]);
    return devices->specs[0].peer_access;
  };
  EXPECT_FALSE(access(Collectives::kHost, true));
  EXPECT_TRUE(access(Collectives::kPeer, true));
  EXPECT_TRUE(access(Collectives::kNccl, true));
  EXPECT_FALSE(access(Collectives::kNccl, false));
}

TEST(OpenDevices, ChoosesHowSumsAreAddedUpWhereNobodySays) {
  const auto devices = Open("gpu:all", 0, Simulated({1000, 1000}), Collectives::kAuto);
  ASSERT_THAT(devices, IsOk());
  EXPECT_NE(devices->choice.collectives, Collectives::kAuto);
  EXPECT_EQ(devices->specs[0].peer_access, devices->choice.collectives != Collectives::kHost);
  EXPECT_THAT(devices->choice.why, HasSubstr("peer "));
  EXPECT_EQ(Open("cpu:2", 1000, Simulated({}), Collectives::kAuto)->choice.collectives,
            Collectives::kHost);
}

TEST(OpenDevices, RefusesMoreDevicesThanANodeHas) {
  EXPECT_EQ(Open("cpu:64,gpu:0", 0, Simulated({1000})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The result depends on the machine: it has GPUs, or the message says what is missing.
TEST(OpenDevices, SaysWhatIsMissingForGpusAndWhatToUseInstead) {
  const auto devices = Open("gpu:0", 0, MachineGpus());
  if (devices.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(devices.status()),
              AnyOf(HasSubstr("built without CUDA"), HasSubstr("no NVIDIA driver"),
                    HasSubstr("shows no GPU"), HasSubstr("cannot be used")));
  EXPECT_THAT(Message(devices.status()), HasSubstr("--devices cpu:N"));
}

TEST(ParseBytes, KnowsUnits) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("123"), 123);
  EXPECT_EQ(*ParseBytes("2K"), 2048);
  EXPECT_EQ(*ParseBytes("3MiB"), std::int64_t{3} << 20);
  EXPECT_EQ(*ParseBytes("64 gb"), std::int64_t{64} << 30);
  EXPECT_EQ(*ParseBytes("1TiB"), std::int64_t{1} << 40);
  for (const char* text : {"", "x", "-1", "1X", "1KK", "9999999999999T", "1 G x"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace embla
