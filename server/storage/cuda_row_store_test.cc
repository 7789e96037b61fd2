// The row store's conformance suite on GPU 0.
#include <memory>
#include <string>
#include <utility>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/storage/device_row_store.h"
#include "server/storage/row_store_conformance.h"
#include "server/storage/testing/first_gpu.h"

namespace embla {
namespace {

struct CudaFactory : testing::FirstGpu {
  std::string WhyMissing() const { return std::string(status.message()); }
  std::unique_ptr<RowStore> Make(const TableSpec& spec, const Slice& slice) {
    auto store = DeviceRowStore::Create(spec, slice, budget, *lanes);
    EXPECT_THAT(store, testing::IsOk());
    return *std::move(store);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, RowStoreConformance, CudaFactory);

}  // namespace
}  // namespace embla
