// The conformance suite of maps of ids on GPU 0, through the lanes and streams that tables use.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/storage/testing/first_gpu.h"
#include "server/zch/device/device_id_map.h"
#include "server/zch/id_map_conformance.h"

namespace embla::zch {
namespace {

using ::embla::testing::IsOk;

struct CudaFactory : testing::FirstGpu {
  static constexpr std::uint64_t kOperations = 200000;
  static bool CanHold(const SlotMapOptions& options) { return DeviceIdMap::CanHold(options); }

  std::unique_ptr<IdMap> Make(const SlotMapOptions& options, BucketRange buckets) {
    buckets.end = std::min(buckets.end, options.buckets);
    auto map = DeviceIdMap::Create(options, buckets, budget, *lanes);
    EXPECT_THAT(map, IsOk());
    return *std::move(map);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, IdMapConformance, CudaFactory);

}  // namespace
}  // namespace embla::zch
