// Groups of lanes. A group is 1, 2, 4, ... 32 neighbouring lanes of a warp that share a row: lane l
// has the units l, l + lanes, ... of it. Small rows get small groups, so that a warp has many rows
// in hand and no idle lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace embla::kernels::cuda {

// How rows of some units are laid over lanes.
struct RowShape {
  unsigned lanes_log2 = 0;
  unsigned chunks = 1;  // ceil(units / lanes): turns of a group, or blocks along y.
};

// Groups of 2^log2 lanes need at least one turn, also for no units.
inline std::size_t ChunksOf(std::size_t units, unsigned log2) {
  return units == 0 ? 1 : (units + (1u << log2) - 1) >> log2;
}

// For kernels whose blocks along y take the chunks of a row: few idle lanes and few chunks.
inline RowShape ShapeByChunks(std::size_t units) {
  RowShape best;
  std::size_t best_cost = ~std::size_t{0};
  for (unsigned log2 = units > 1 ? 1 : 0; log2 <= 5; ++log2) {
    const std::size_t chunks = ChunksOf(units, log2);
    // A turn of an address costs about as much as one lane.
    const std::size_t cost = chunks * ((1u << log2) + 1);
    if (cost > best_cost || (units <= 1 && log2 > 0)) continue;
    best_cost = cost;
    best = {log2, static_cast<unsigned>(chunks)};
  }
  return best;
}

// For kernels where one group has the whole row, at least `lanes_min` of them.
inline RowShape ShapeByGroup(std::size_t units, unsigned lanes_min = 1) {
  unsigned log2 = 0;
  while (log2 < 5 && ((1u << log2) < units || (1u << log2) < lanes_min)) ++log2;
  return {log2, static_cast<unsigned>(ChunksOf(units, log2))};
}

// Blocks of kThreads for `rows` rows, `rows_per_group` at a time.
inline Grid GridOfGroups(std::size_t rows, const RowShape& shape, std::size_t rows_per_group = 1) {
  const std::size_t rows_per_block = (kThreads >> shape.lanes_log2) * rows_per_group;
  const std::size_t blocks = rows == 0 ? 1 : (rows + rows_per_block - 1) / rows_per_block;
  return {static_cast<unsigned>(blocks < kBlocksMax ? blocks : kBlocksMax), kThreads, 1};
}
inline Grid WithChunks(Grid grid, const RowShape& shape) {
  grid.chunks = shape.chunks;
  return grid;
}

struct Group {
  unsigned lanes;
  unsigned lane;      // Lane of this thread.
  unsigned mask;      // The group's lanes in the warp.
  std::size_t first;  // The group's number in the grid,
  std::size_t count;  // and how many there are.
};

__device__ __forceinline__ Group GroupOfThread(unsigned lanes_log2) {
  const unsigned lanes = 1u << lanes_log2;
  const unsigned per_block = blockDim.x >> lanes_log2;
  const unsigned ones = lanes == kWarp ? 0xffffffffu : (1u << lanes) - 1;
  return {lanes, threadIdx.x & (lanes - 1), ones << (threadIdx.x % kWarp & ~(lanes - 1)),
          std::size_t{blockIdx.x} * per_block + (threadIdx.x >> lanes_log2),
          std::size_t{gridDim.x} * per_block};
}

// A warp's turns over the items that its groups take one each, as long as one of them has one: all
// lanes of the warp take every turn, so that they can meet.
struct WarpTurns {
  std::size_t first;  // The item of the warp's first group,
  std::size_t own;    // and this group's, which may be past the end.
  std::size_t step;

  __device__ __forceinline__ explicit WarpTurns(const Group& group)
      : first(group.first - (threadIdx.x % kWarp) / group.lanes),
        own(group.first),
        step(group.count) {}
  __device__ __forceinline__ void Next() {
    first += step;
    own += step;
  }
};

inline constexpr unsigned kAllLanes = 0xffffffff;

// `value` of lane `source` of the group.
template <typename T>
__device__ __forceinline__ T FromLane(const Group& group, T value, unsigned source) {
  return __shfl_sync(group.mask, value, static_cast<int>(source), static_cast<int>(group.lanes));
}

// Bit l: lane l of the group called it with true.
__device__ __forceinline__ unsigned LanesWhere(const Group& group, bool predicate) {
  const unsigned first = threadIdx.x % kWarp & ~(group.lanes - 1);
  return (__ballot_sync(group.mask, predicate) & group.mask) >> first;
}

// kernels/row_kernels.h's sum of squares over columns by 16 virtual lanes. Unit u of a row holds
// virtual lanes u * kPer % 16 and up, so that 16 / kPer neighbouring lanes have them all; those
// lanes take the units of the others in order.
//
// All lanes of the warp call it: who takes part is a constant then, and costs nothing to find out.
// Requires: group.lanes >= 16 / kPer; lanes_log2 is the same for all lanes of the warp.
template <int kPer>
class TreeOfSquares {
 public:
  // The next chunk's values; zeros where the row has no columns.
  __device__ __forceinline__ void Add(const Group& group, const float (&values)[kPer]) {
    const unsigned own = group.lane % kSpan;
    float squares[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) squares[j] = values[j] * values[j];
#pragma unroll 2
    for (unsigned begin = 0; begin < group.lanes; begin += kSpan) {
#pragma unroll
      for (int j = 0; j < kPer; ++j) sums_[j] = sums_[j] + Of(group, squares[j], begin + own);
    }
  }

  // The same in every lane.
  __device__ __forceinline__ float Total(const Group& group) const {
    float sums[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) sums[j] = sums_[j];
#pragma unroll
    for (unsigned half = 8; half >= static_cast<unsigned>(kPer); half /= 2) {
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        sums[j] = sums[j] + Of(group, sums[j], group.lane + half / kPer);
      }
    }
#pragma unroll
    for (int half = kPer / 2; half > 0; half /= 2) {
#pragma unroll
      for (int j = 0; j < half; ++j) sums[j] = sums[j] + sums[j + half];
    }
    return Of(group, sums[0], 0);
  }

 private:
  static constexpr unsigned kSpan = 16 / kPer;

  static __device__ __forceinline__ float Of(const Group& group, float value, unsigned source) {
    return __shfl_sync(kAllLanes, value, static_cast<int>(source), static_cast<int>(group.lanes));
  }
  float sums_[kPer] = {};
};

}  // namespace embla::kernels::cuda
