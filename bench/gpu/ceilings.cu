// A row has a group of lanes, 16 bytes each; four rows are in flight, as in the kernels that are
// divided by these.
#include "bench/gpu/ceilings.h"

#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"

namespace embla::bench {
namespace {

namespace device = kernels::cuda;

constexpr int kInFlight = 4;
constexpr std::size_t kUnitBytes = 16;
// Enough for a large GPU's every thread, and few results to write.
constexpr unsigned kReadBlocks = kXorOutputs / 256;

__global__ void __launch_bounds__(device::kThreads)
    CopyKernel(const std::byte* from, std::byte* to, std::size_t units) {
  const device::Group thread = device::GroupOfThread(0);
  for (std::size_t i = thread.first; i < units; i += kInFlight * thread.count) {
    device::uint4 values[kInFlight] = {};
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const std::size_t at = i + u * thread.count;
      if (at < units) values[u] = device::LoadConstant<device::uint4>(from + at * kUnitBytes);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const std::size_t at = i + u * thread.count;
      if (at < units) device::StoreStreaming(to + at * kUnitBytes, values[u]);
    }
  }
}

__global__ void __launch_bounds__(device::kThreads)
    XorRowsKernel(DeviceRowArray rows, const std::uint32_t* slots, std::size_t count,
                  device::RowShape shape, std::uint32_t* out) {
  const device::Group group = device::GroupOfThread(shape.lanes_log2);
  const std::size_t units = rows.row_bytes / kUnitBytes;
  std::uint32_t sum = 0;
  for (std::size_t i = group.first; i < count; i += kInFlight * group.count) {
    for (std::size_t unit = group.lane; unit < units; unit += group.lanes) {
      device::uint4 values[kInFlight] = {};
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const std::size_t at = i + u * group.count;
        if (at >= count) continue;
        values[u] = device::LoadConstant<device::uint4>(rows.base + slots[at] * rows.row_bytes +
                                                        unit * kUnitBytes);
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        sum ^= values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
      }
    }
  }
  device::Store<std::uint32_t>(out + device::GroupOfThread(0).first, sum);
}

__global__ void __launch_bounds__(device::kThreads)
    IncrementRowsKernel(DeviceRowArray rows, const std::uint32_t* slots, std::size_t count,
                        device::RowShape shape) {
  const device::Group group = device::GroupOfThread(shape.lanes_log2);
  const std::size_t units = rows.row_bytes / kUnitBytes;
  for (std::size_t i = group.first; i < count; i += kInFlight * group.count) {
    for (std::size_t unit = group.lane; unit < units; unit += group.lanes) {
      std::byte* addresses[kInFlight] = {};
      device::uint4 values[kInFlight] = {};
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const std::size_t at = i + u * group.count;
        if (at >= count) continue;
        addresses[u] = rows.base + slots[at] * rows.row_bytes + unit * kUnitBytes;
        values[u] = device::Load<device::uint4>(addresses[u]);
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const std::size_t at = i + u * group.count;
        if (at >= count) continue;
        const device::uint4 v = values[u];
        device::Store(addresses[u], device::uint4{v.x + 1, v.y + 1, v.z + 1, v.w + 1});
      }
    }
  }
}

device::RowShape ShapeOf(const DeviceRowArray& rows) {
  return device::ShapeByGroup(rows.row_bytes / kUnitBytes);
}

}  // namespace

int CopyAsync(const std::byte* from, std::byte* to, std::size_t bytes,
              kernels::cuda::StreamHandle stream) {
  const std::size_t units = bytes / kUnitBytes;
  return device::Launch(CopyKernel, device::GridOfGroups(units, {0, 1}, kInFlight), stream, from,
                        to, units);
}

int XorRowsAsync(const DeviceRowArray& rows, const std::uint32_t* slots, std::size_t count,
                 std::uint32_t* out, kernels::cuda::StreamHandle stream) {
  const device::RowShape shape = ShapeOf(rows);
  device::Grid grid = device::GridOfGroups(count, shape, kInFlight);
  grid.blocks = std::min(grid.blocks, kReadBlocks);
  return device::Launch(XorRowsKernel, grid, stream, rows, slots, count, shape, out);
}

int IncrementRowsAsync(const DeviceRowArray& rows, const std::uint32_t* slots, std::size_t count,
                       kernels::cuda::StreamHandle stream) {
  const device::RowShape shape = ShapeOf(rows);
  return device::Launch(IncrementRowsKernel, device::GridOfGroups(count, shape, kInFlight), stream,
                        rows, slots, count, shape);
}

}  // namespace embla::bench
