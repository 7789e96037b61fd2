// The conformance suite of maps of ids on GPU 0, through the lanes and streams that tables use.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/gpu/gpus.h"
#include "server/zch/device/device_id_map.h"
#include "server/zch/id_map_conformance.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;

// Null lanes: there is no GPU.
struct CudaFactory {
  static constexpr std::uint64_t kOperations = 200000;
  static bool CanHold(const SlotMapOptions& options) { return DeviceIdMap::CanHold(options); }

  CudaFactory() {
    auto opened = gpu::OpenGpu(0);
    status = opened.status();
    if (!status.ok()) return;
    device = *std::move(opened);
    auto made = DeviceLanes::Create(*device);
    status = made.status();
    if (status.ok()) lanes = *std::move(made);
  }
  std::unique_ptr<IdMap> Make(const SlotMapOptions& options, BucketRange buckets) {
    buckets.end = std::min(buckets.end, options.buckets);
    auto map = DeviceIdMap::Create(options, buckets, budget, *lanes);
    EXPECT_THAT(map, IsOk());
    return *std::move(map);
  }

  absl::Status status;
  std::unique_ptr<gpu::Device> device;
  MemoryBudget budget{std::size_t{1} << 30};
  std::unique_ptr<DeviceLanes> lanes;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, IdMapConformance, CudaFactory);

}  // namespace
}  // namespace embla::zch
