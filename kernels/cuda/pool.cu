// Sums over bags: a group of lanes has a bag, or a chunk of its columns, and adds its rows in the
// order of their ids, as the CPU does. kInFlight rows are on their way at once, and the slots of
// the next ones with them; while bags have at most one entry, those are the rows of kInFlight bags.
// Entries that add nothing (kNoSlot, and those past the bag's end) are units of zeros: a sum that
// began with +0 is never -0, so adding 0 * 0 does not change it.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/units.cuh"

namespace embla::kernels::cuda {
namespace {

constexpr int kInFlight = 4;
constexpr std::size_t kWarpsBusy = 16384;

// The entries [i, end) of the id stream, up to kInFlight of them.
struct Entries {
  std::uint32_t slots[kInFlight];
  float weights[kInFlight];
};
__device__ __forceinline__ Entries EntriesFrom(const DeviceBags& bags, std::uint32_t i,
                                               std::uint32_t end) {
  Entries entries;
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    entries.slots[u] = i + u < end ? bags.slots[i + u] : kNoSlot;
    const bool weighted = bags.weights != nullptr && entries.slots[u] != kNoSlot;
    entries.weights[u] = weighted ? bags.weights[i + u] : 1.0f;
  }
  return entries;
}

template <Element kElement, bool kVector>
__device__ __forceinline__ Unit<kElement, kPerLane<kElement>> UnitOfSlot(const Rows& rows,
                                                                         std::uint32_t slot,
                                                                         unsigned column) {
  if (slot == kNoSlot) return {};
  const auto* const row = static_cast<const std::byte*>(rows.base) + slot * rows.stride_bytes;
  return LoadUnit<kElement, kPerLane<kElement>, kVector>(row, column, rows.columns);
}

// A bag's entries in the id stream.
struct Bag {
  std::uint32_t begin;
  std::uint32_t end;
};
__device__ __forceinline__ Bag BagAt(const DeviceBags& bags, std::size_t bag) {
  if (bag >= bags.count) return {0, 0};
  return {bags.offsets[bag], bags.offsets[bag + 1]};
}

// sum += the rows of a bag whose first entries are in hand; takes the first ones of `next` in hand.
template <Element kElement, bool kVector>
__device__ __forceinline__ void SumBag(const Rows& rows, const DeviceBags& bags, unsigned column,
                                       const Bag& bag, const Bag& next, Entries& entries,
                                       float (&sum)[kPerLane<kElement>]) {
  constexpr int kPer = kPerLane<kElement>;
  std::uint32_t i = bag.begin;
  do {
    Unit<kElement, kPer> units[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      units[u] = UnitOfSlot<kElement, kVector>(rows, entries.slots[u], column);
    }
    i += kInFlight;
    const Entries later =
        i < bag.end ? EntriesFrom(bags, i, bag.end) : EntriesFrom(bags, next.begin, next.end);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        sum[j] = sum[j] + entries.weights[u] * units[u].Value(j);
      }
    }
    entries = later;
  } while (i < bag.end);
}

template <int kPer>
__device__ __forceinline__ void StoreSum(const Output& out, std::size_t bag, unsigned column,
                                         unsigned columns, const float (&sum)[kPer]) {
  Unit<Element::kFloat32, kPer> unit;
#pragma unroll
  for (int j = 0; j < kPer; ++j) unit.Put(j, BitsOf(sum[j]));
  StoreUnit(static_cast<std::byte*>(out.base) + bag * out.stride_bytes, column, columns, unit);
}

// kInFlight bags, `step` apart, side by side: bags of one entry would have but one row on its way.
// False where one of the bags has more than one entry; nothing is done then.
template <Element kElement, bool kVector>
__device__ __forceinline__ bool SumShortBags(const Rows& rows, const DeviceBags& bags,
                                             const Output& out, unsigned column, std::size_t first,
                                             std::size_t step) {
  constexpr int kPer = kPerLane<kElement>;
  Bag short_bags[kInFlight];
  bool are_short = true;
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    short_bags[u] = BagAt(bags, first + u * step);
    are_short = are_short && short_bags[u].end - short_bags[u].begin <= 1;
  }
  if (!are_short) return false;
  std::uint32_t slots[kInFlight];
  float weights[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    const Bag& bag = short_bags[u];
    slots[u] = bag.begin < bag.end ? bags.slots[bag.begin] : kNoSlot;
    const bool weighted = bags.weights != nullptr && slots[u] != kNoSlot;
    weights[u] = weighted ? bags.weights[bag.begin] : 1.0f;
  }
  Unit<kElement, kPer> units[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    units[u] = UnitOfSlot<kElement, kVector>(rows, slots[u], column);
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    float sum[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) sum[j] = 0.0f + weights[u] * units[u].Value(j);
    if (first + u * step < bags.count) {
      StoreSum(out, first + u * step, column, rows.columns, sum);
    }
  }
  return true;
}

template <Element kElement, bool kVector>
__global__ void __launch_bounds__(kThreads, kVector ? 4 : 3)
    PoolKernel(Rows rows, DeviceBags bags, Output out, RowShape shape) {
  constexpr int kPer = kPerLane<kElement>;
  const Group group = GroupOfThread(shape.lanes_log2);
  const unsigned column = ((blockIdx.y << shape.lanes_log2) + group.lane) * kPer;
  if (column >= rows.columns) return;
  std::size_t b = group.first;
  Bag bag = BagAt(bags, b);
  while (bag.end - bag.begin <= 1 && b < bags.count &&
         SumShortBags<kElement, kVector>(rows, bags, out, column, b, group.count)) {
    b += kInFlight * group.count;
    bag = BagAt(bags, b);
  }
  Entries entries = EntriesFrom(bags, bag.begin, bag.end);
  for (; b < bags.count; b += group.count) {
    const Bag next = BagAt(bags, b + group.count);
    float sum[kPer] = {};
    SumBag<kElement, kVector>(rows, bags, column, bag, next, entries, sum);
    const bool divide = bags.mean && bag.begin != bag.end;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      if (divide) sum[j] = sum[j] / static_cast<float>(bag.end - bag.begin);
    }
    StoreSum(out, b, column, rows.columns, sum);
    bag = next;
  }
}

template <Element kElement>
int PoolRows(const Rows& rows, const DeviceBags& bags, const Output& out, StreamHandle stream) {
  constexpr int kPer = kPerLane<kElement>;
  const RowShape shape = ShapeByChunks((rows.columns + kPer - 1) / kPer);
  // Many bags: several for each group, whose entries travel while it sums the ones before.
  const std::size_t warps = bags.count * shape.chunks >> (5 - shape.lanes_log2);
  const std::size_t bags_per_group = std::clamp<std::size_t>(warps / kWarpsBusy, 1, 8);
  const Grid grid = WithChunks(GridOfGroups(bags.count, shape, bags_per_group), shape);
  const bool words = MovesInWords<kElement, kPer>(rows.base, rows.stride_bytes);
  return Launch(words ? PoolKernel<kElement, true> : PoolKernel<kElement, false>, grid, stream,
                rows, bags, out, shape);
}

__global__ void __launch_bounds__(kThreads)
    DivideKernel(MutableRows rows, const std::uint32_t* lengths, std::size_t count,
                 RowShape shape) {
  constexpr int kPer = 4;
  const Group group = GroupOfThread(shape.lanes_log2);
  const unsigned column = ((blockIdx.y << shape.lanes_log2) + group.lane) * kPer;
  if (column >= rows.columns) return;
  for (std::size_t i = group.first; i < count; i += group.count) {
    std::byte* const row = static_cast<std::byte*>(rows.base) + i * rows.stride_bytes;
    float* const sums = reinterpret_cast<float*>(row) + column;
    const auto length = static_cast<float>(lengths[i]);
    float values[kPer];
    LoadFloats(sums, rows.columns - column, values);
#pragma unroll
    for (int j = 0; j < kPer; ++j) values[j] = length == 0.0f ? 0.0f : values[j] / length;
    StoreFloats(sums, rows.columns - column, values);
  }
}

}  // namespace

int PoolAsync(const Rows& rows, const DeviceBags& bags, const Output& out, StreamHandle stream) {
  if (out.element != Element::kFloat32) return cudaErrorInvalidValue;
  if (bags.count == 0) return cudaSuccess;
  switch (rows.element) {
    case Element::kFloat32:
      return PoolRows<Element::kFloat32>(rows, bags, out, stream);
    case Element::kFloat16:
      return PoolRows<Element::kFloat16>(rows, bags, out, stream);
    case Element::kBFloat16:
      return PoolRows<Element::kBFloat16>(rows, bags, out, stream);
    case Element::kInt8Rowwise:
      break;
  }
  return cudaErrorInvalidValue;
}

int DivideRowsAsync(const MutableRows& rows, const std::uint32_t* lengths, std::size_t count,
                    StreamHandle stream) {
  if (rows.element != Element::kFloat32) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  const RowShape shape = ShapeByChunks((rows.columns + 3) / 4);
  const Grid grid = WithChunks(GridOfGroups(count, shape), shape);
  return Launch(DivideKernel, grid, stream, rows, lengths, count, shape);
}

}  // namespace embla::kernels::cuda
