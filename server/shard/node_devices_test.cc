#include "server/shard/node_devices.h"

#include <cstddef>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/shard/shard_node.h"
#include "server/storage/dirty_rows.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

TableSpec Spec() {
  TableSpec spec;
  spec.name = "t";
  spec.rows = 100;
  spec.dim = 4;
  spec.SetDefaults();
  return spec;
}

TEST(DeviceMakeMemory, KeepsWhichRowsHaveChangedInEveryKindOfMemory) {
  const TableSpec spec = Spec();
  gpu::SimulatedDevice gpu;
  struct Case {
    const char* name;
    DeviceKind kind;
    std::size_t gpu_cache_bytes;
  };
  for (const Case& c :
       {Case{"host", DeviceKind::kCpu, 0}, Case{"GPU", DeviceKind::kGpu, 0},
        Case{"host with a cache on a GPU", DeviceKind::kGpu, std::size_t{1} << 16}}) {
    SCOPED_TRACE(c.name);
    ShardNodeOptions options;
    options.devices = {{c.kind, 1 << 20}};
    if (c.kind == DeviceKind::kGpu) options.gpus = {&gpu};
    options.gpu_cache_bytes = c.gpu_cache_bytes;
    ASSERT_THAT(CheckDevices(options), IsOk());
    const auto node = MakeNodeDevices(options);
    ASSERT_THAT(node, IsOk());
    const auto memory =
        node->devices[0]->MakeMemory(spec, {0, spec.rows, 0, spec.dim, {}}, NewRows::kInitial);
    ASSERT_THAT(memory, IsOk());
    ASSERT_NE(memory->rows->dirty_rows(), nullptr);
    EXPECT_EQ(memory->rows->dirty_rows()->slots(), 100u);
  }
}

}  // namespace
}  // namespace embla
