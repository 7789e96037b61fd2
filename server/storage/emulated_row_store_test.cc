// The row store's conformance suite on a simulated GPU that runs the kernels of kernels/cuda.
#include <memory>
#include <utility>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/storage/device_row_store.h"
#include "server/storage/row_store_conformance.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

struct EmulatedFactory {
  EmulatedFactory() {
    auto made = DeviceLanes::Create(device, nullptr, std::size_t{64} << 10);
    EXPECT_THAT(made, IsOk());
    lanes = *std::move(made);
  }
  std::unique_ptr<RowStore> Make(const TableSpec& spec, const Slice& slice) {
    auto store = DeviceRowStore::Create(spec, slice, budget, *lanes);
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }

  gpu::SimulatedDevice device{{.kernels = &gpu::LinkedKernels()}};
  MemoryBudget budget{std::size_t{1} << 30};
  std::unique_ptr<DeviceLanes> lanes;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, RowStoreConformance, EmulatedFactory);

}  // namespace
}  // namespace embla
