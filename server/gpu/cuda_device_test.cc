// The CUDA device without its kernels, on a GPU; and the meaning of errors, on any machine.
#include "server/gpu/cuda_device.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/gpu/cuda_status.h"
#include "server/gpu/gpus.h"
#include "server/gpu/kernel_table.h"

namespace embla::gpu {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

TEST(CudaStatus, TellsMemoryFromOtherErrorsAndErrorsThatStopADevice) {
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "x").code(),
            absl::StatusCode::kResourceExhausted);
  const absl::Status status = CudaStatus(cudaErrorIllegalAddress, "Gather");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("Gather: "));
  EXPECT_THAT(Message(status), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_TRUE(StopsDevice(cudaErrorIllegalAddress));
  EXPECT_TRUE(StopsDevice(cudaErrorECCUncorrectable));
  EXPECT_FALSE(StopsDevice(cudaErrorMemoryAllocation));
  EXPECT_FALSE(StopsDevice(cudaErrorInvalidValue));
  EXPECT_FALSE(StopsDevice(cudaErrorInvalidConfiguration));
}

TEST(NoGpus, SaysWhatIsMissing) {
  EXPECT_THAT(Message(NoGpus(cudaErrorInsufficientDriver)), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(Message(NoGpus(cudaErrorNoDevice)), HasSubstr("shows no GPU"));
  EXPECT_THAT(Message(NoGpus(cudaErrorInitializationError)), HasSubstr("cannot be used"));
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Device>> device = OpenGpu(0);
    if (!device.ok()) GTEST_SKIP() << device.status();
    device_ = *std::move(device);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, StatesItsProperties) {
  EXPECT_FALSE(device_->properties().name.empty());
  EXPECT_FALSE(device_->properties().bus_id.empty());
  EXPECT_GT(device_->properties().memory_bytes, 0);
  EXPECT_GT(device_->properties().memory_bytes_per_second, 0);
}

TEST_F(CudaDeviceTest, AnErrorOfAnEarlierCallIsNotALaunchs) {
  const auto there = device_->Allocate(400);
  const auto stream = device_->NewStream();
  ASSERT_THAT(there, IsOk());
  ASSERT_THAT(stream, IsOk());
  EXPECT_EQ(cudaSetDevice(10000), cudaErrorInvalidDevice);  // Stays with the thread.
  EXPECT_THAT((*stream)->Launch("Fill", device_->kernels().fill, there->As<float>(),
                                std::size_t{100}, 1.0f),
              IsOk());
  EXPECT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_THAT(device_->health(), IsOk());
}

TEST_F(CudaDeviceTest, CopiesThereAndBack) {
  const auto there = device_->Allocate(4000);
  const auto here = device_->AllocatePinned(4000);
  const auto back = device_->AllocatePinned(4000);
  const auto stream = device_->NewStream();
  ASSERT_THAT(there, IsOk());
  ASSERT_THAT(here, IsOk());
  ASSERT_THAT(back, IsOk());
  ASSERT_THAT(stream, IsOk());
  std::iota(here->As<int>(), here->As<int>() + 1000, 0);
  ASSERT_THAT((*stream)->CopyToDevice(there->data(), here->data(), 4000), IsOk());
  ASSERT_THAT((*stream)->CopyToHost(back->data(), there->data(), 4000), IsOk());
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(std::memcmp(back->data(), here->data(), 4000), 0);
  EXPECT_TRUE(*(*stream)->IsDone());
}

TEST_F(CudaDeviceTest, MoreMemoryThanThereIsIsResourceExhaustedAndStopsNothing) {
  const auto memory =
      device_->Allocate(static_cast<std::size_t>(device_->properties().memory_bytes) * 2);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(device_->health(), IsOk());
  EXPECT_THAT(device_->Allocate(1000), IsOk());
}

TEST_F(CudaDeviceTest, ThreadsThatWaitForItSleep) {
  ASSERT_THAT(device_->MakeCurrent(), IsOk());
  unsigned int flags = 0;
  ASSERT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_EQ(flags & cudaDeviceScheduleMask,
            static_cast<unsigned int>(cudaDeviceScheduleBlockingSync));
}

TEST_F(CudaDeviceTest, OrdinalsThatAreNotThereAreNotFound) {
  EXPECT_EQ(OpenGpu(static_cast<std::uint32_t>(ListGpus()->size())).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace embla::gpu
