// The conformance suite of maps of ids on a simulated GPU that runs the kernels of server/zch/cuda.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/zch/device/device_id_map.h"
#include "server/zch/id_map_conformance.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;

struct EmulatedFactory {
  static constexpr std::uint64_t kOperations = 50000;
  static bool CanHold(const SlotMapOptions& options) { return DeviceIdMap::CanHold(options); }

  EmulatedFactory() {
    auto made = DeviceLanes::Create(device, nullptr, std::size_t{64} << 10);
    EXPECT_THAT(made, IsOk());
    lanes = *std::move(made);
  }
  std::unique_ptr<IdMap> Make(const SlotMapOptions& options, BucketRange buckets) {
    buckets.end = std::min(buckets.end, options.buckets);
    auto map = DeviceIdMap::Create(options, buckets, budget, *lanes);
    EXPECT_THAT(map, IsOk());
    return *std::move(map);
  }

  gpu::SimulatedDevice device{{.kernels = &gpu::LinkedKernels()}};
  MemoryBudget budget{std::size_t{1} << 30};
  std::unique_ptr<DeviceLanes> lanes;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, IdMapConformance, EmulatedFactory);

}  // namespace
}  // namespace embla::zch
