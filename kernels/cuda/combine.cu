// Grouping by slot, and the partial sums of long segments (sums.cuh).
#include "kernels/cuda/combine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/sort.h"
#include "kernels/cuda/sums.cuh"
#include "kernels/cuda/units.cuh"
#include "kernels/cuda/workspace.h"

namespace embla::kernels::cuda {
namespace {

// Memory to sort a batch: keys with their values, and their destinations.
struct WorkspacePairs {
  std::uint32_t* keys;
  std::uint32_t* values;
  std::uint32_t* keys_out;
  std::uint32_t* values_out;
};

WorkspacePairs TakePairs(std::size_t count, WorkspaceParts& parts) {
  WorkspacePairs pairs;
  pairs.keys = parts.Take<std::uint32_t>(count);
  pairs.values = parts.Take<std::uint32_t>(count);
  pairs.keys_out = parts.Take<std::uint32_t>(count);
  pairs.values_out = parts.Take<std::uint32_t>(count);
  return pairs;
}

// Enough to read at the memory's speed, and few enough for their sums to meet in one place.
constexpr unsigned kCountingBlocks = 256;

// One thread per item.
Grid GridOfItems(std::size_t items) { return GridOfGroups(items, {0, 1}); }

// The first of [0, count) whose value is at least `value`; count if there is none. Ascending
// values.
__device__ __forceinline__ std::uint32_t LowerBound(const std::uint32_t* values,
                                                    std::uint32_t count, std::uint32_t value) {
  std::uint32_t first = 0;
  while (count > 0) {
    const std::uint32_t half = count / 2;
    if (values[first + half] < value) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

__global__ void __launch_bounds__(kThreads)
    ExpandBagsKernel(const std::uint32_t* offsets, std::size_t bag_count,
                     std::size_t position_count, std::uint32_t* bag_of, float* inverse_lengths) {
  const Group thread = GroupOfThread(0);
  for (std::size_t p = thread.first; p < position_count; p += thread.count) {
    // The last bag that begins at or before p: bags of length 0 before it begin there, too.
    const std::uint32_t bag = LowerBound(offsets, static_cast<std::uint32_t>(bag_count),
                                         static_cast<std::uint32_t>(p) + 1) -
                              1;
    bag_of[p] = bag;
    if (inverse_lengths == nullptr) continue;
    inverse_lengths[p] = 1.0f / static_cast<float>(offsets[bag + 1] - offsets[bag]);
  }
}

__global__ void __launch_bounds__(kThreads)
    KeysKernel(const std::uint32_t* slots, std::size_t count, std::uint32_t slot_limit,
               std::uint32_t* keys, std::uint32_t* positions) {
  const Group thread = GroupOfThread(0);
  for (std::size_t i = thread.first; i < count; i += thread.count) {
    keys[i] = slots[i] < slot_limit ? slots[i] : slot_limit;
    positions[i] = static_cast<std::uint32_t>(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    CountSlotsKernel(DeviceGrouping grouping, std::uint64_t* count) {
  const Group thread = GroupOfThread(0);
  const std::uint32_t* const slots = grouping.slots;
  unsigned own = 0;
  for (std::size_t i = thread.first; i < grouping.count; i += thread.count) {
    if (slots[i] < grouping.slot_limit && (i == 0 || slots[i - 1] != slots[i])) ++own;
  }
#pragma unroll
  for (unsigned lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    own += __shfl_xor_sync(kAllLanes, own, static_cast<int>(lanes));
  }
  if (threadIdx.x % kWarp == 0 && own != 0) AddTo(count, std::uint64_t{own});
}

// A piece of the long segment that begins at segment_begin.
struct Piece {
  std::uint32_t segment_begin;
  Segment piece;
};

// The piece of a long segment that begins in the window from `begin` on: the segment's first (of
// the window's last segment), or a later one (of its first). Empty where there is none, which one
// look at the window's border says of nearly all.
__device__ __forceinline__ Piece FirstPieceOf(const DeviceGrouping& grouping, std::uint32_t begin) {
  const std::uint32_t* const slots = grouping.slots;
  const std::uint32_t next = begin + kPiece;
  if (next >= grouping.count) return {};
  const std::uint32_t slot = slots[next - 1];
  if (slot != slots[next] || slot >= grouping.slot_limit) return {};
  if (begin != 0 && slots[begin - 1] == slot) return {};
  const std::uint32_t from = begin + LowerBound(slots + begin, kPiece, slot);
  if (from + kPiece >= grouping.count || slots[from + kPiece] != slot) return {};
  return {from, {from, from + kPiece}};
}

__device__ __forceinline__ Piece LaterPieceOf(const DeviceGrouping& grouping, std::uint32_t begin) {
  const std::uint32_t* const slots = grouping.slots;
  const std::uint32_t slot = slots[begin];
  if (begin == 0 || slots[begin - 1] != slot || slot >= grouping.slot_limit) return {};
  const std::uint32_t from = LowerBound(slots, begin, slot);
  const std::uint32_t start = from + (begin - from + kPiece - 1) / kPiece * kPiece;
  if (start >= grouping.count || slots[start] != slot) return {};
  const auto left = static_cast<std::uint32_t>(grouping.count) - start;
  return {from,
          {start, start + LowerBound(slots + start, left < kPiece ? left : kPiece, slot + 1)}};
}

template <int kPer>
__device__ __forceinline__ void SumPieceTo(const SumSource& source, const Piece& piece,
                                           unsigned column) {
  if (piece.piece.begin == piece.piece.end) return;
  float sum[kPer] = {};
  SumPiece<8>(source, piece.piece, {}, column, sum);
  float* const partial = PartialOf(source, piece.segment_begin, piece.piece.begin) + column;
  // Stays in the caches: the next launch reads it.
#pragma unroll
  for (int j = 0; j < kPer; j += 4) {
    Store(partial + j,
          uint4{BitsOf(sum[j]), BitsOf(sum[j + 1]), BitsOf(sum[j + 2]), BitsOf(sum[j + 3])});
  }
}

template <int kPer>
__global__ void __launch_bounds__(kThreads, 2)
    SumPiecesKernel(SumSource source, std::uint32_t windows, RowShape shape) {
  const Group group = GroupOfThread(shape.lanes_log2);
  const unsigned column = ((blockIdx.y << shape.lanes_log2) + group.lane) * kPer;
  if (column >= source.gradients.columns) return;
  for (std::size_t i = group.first; i < 2 * windows; i += group.count) {
    // All windows' later pieces, then their first ones: neighbours in a warp do the same.
    const bool first = i >= windows;
    const auto begin = static_cast<std::uint32_t>(first ? i - windows : i) * kPiece;
    SumPieceTo<kPer>(
        source, first ? FirstPieceOf(source.grouping, begin) : LaterPieceOf(source.grouping, begin),
        column);
  }
}

template <int kPer>
int SumPiecesOf(const SumSource& source, StreamHandle stream) {
  const RowShape shape = ShapeByChunks((source.gradients.columns + kPer - 1) / kPer);
  const auto windows = static_cast<std::uint32_t>((source.grouping.count + kPiece - 1) / kPiece);
  const Grid grid = WithChunks(GridOfGroups(2 * std::size_t{windows}, shape), shape);
  return Launch(SumPiecesKernel<kPer>, grid, stream, source, windows, shape);
}

}  // namespace

int ExpandBagsAsync(const std::uint32_t* offsets, std::size_t bag_count, std::size_t position_count,
                    std::uint32_t* bag_of, float* inverse_lengths, StreamHandle stream) {
  if (position_count == 0) return cudaSuccess;
  return Launch(ExpandBagsKernel, GridOfItems(position_count), stream, offsets, bag_count,
                position_count, bag_of, inverse_lengths);
}

int GroupBytes(std::size_t count, std::size_t* bytes) {
  WorkspaceParts parts({});
  TakePairs(count, parts);
  std::size_t sort_bytes = 0;
  const int error = SortBytes(count, &sort_bytes);
  *bytes = parts.used() + sort_bytes;
  return error;
}

int GroupAsync(const std::uint32_t* slots, std::size_t count, std::uint32_t slot_limit,
               Workspace workspace, DeviceGrouping* grouping, StreamHandle stream) {
  *grouping = {nullptr, nullptr, count, slot_limit};
  if (count == 0) return cudaSuccess;
  WorkspaceParts parts(workspace);
  const WorkspacePairs pairs = TakePairs(count, parts);
  if (count > std::size_t{0x7fffffff} || slot_limit == kNoSlot || !parts.fits()) {
    return cudaErrorInvalidValue;
  }
  const int error = Launch(KeysKernel, GridOfItems(count), stream, slots, count, slot_limit,
                           pairs.keys, pairs.values);
  if (error != cudaSuccess) return error;
  grouping->slots = pairs.keys_out;
  grouping->positions = pairs.values_out;
  return SortAsync({pairs.keys, pairs.values, pairs.keys_out, pairs.values_out, count, slot_limit},
                   parts.Rest(), stream);
}

int CountSlotsAsync(const DeviceGrouping& grouping, std::uint64_t* count, StreamHandle stream) {
  if (grouping.count == 0) return cudaSuccess;
  Grid grid = GridOfItems(grouping.count);
  grid.blocks = std::min(grid.blocks, kCountingBlocks);
  return Launch(CountSlotsKernel, grid, stream, grouping, count);
}

std::size_t PartialSumsBytes(std::size_t count, std::uint32_t columns) {
  const std::size_t windows = (count + kPiece - 1) / kPiece;
  return count <= kPiece ? 0 : 2 * windows * ((columns + 7) / 8 * 8) * sizeof(float);
}

int MakeSumSource(const DeviceGrouping& grouping, const DeviceGradients& gradients,
                  Workspace partial_sums, int per, SumSource* source) {
  if (partial_sums.bytes < PartialSumsBytes(grouping.count, gradients.columns)) {
    return cudaErrorInvalidValue;
  }
  const Input& rows = gradients.rows;
  const std::size_t header = rows.element == Element::kInt8Rowwise ? kInt8RowHeaderBytes : 0;
  const std::size_t alignment = std::min<std::size_t>(16, ElementBytes(rows.element) * per);
  const std::size_t addresses =
      (reinterpret_cast<std::uintptr_t>(rows.base) + header) | rows.stride_bytes;
  *source = {grouping, gradients, addresses % alignment == 0 && gradients.columns % per == 0,
             static_cast<float*>(partial_sums.base), (gradients.columns + 7) / 8 * 8};
  return cudaSuccess;
}

int SumPiecesAsync(const SumSource& source, int per, StreamHandle stream) {
  if (source.grouping.count <= kPiece) return cudaSuccess;
  return per == 8 ? SumPiecesOf<8>(source, stream) : SumPiecesOf<4>(source, stream);
}

}  // namespace embla::kernels::cuda
