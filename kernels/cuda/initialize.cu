// Initial weights: a lane makes a unit of a row, from (seed, row, column) alone.
#include "kernels/cuda/initialize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/units.cuh"
#include "kernels/normal.h"
#include "kernels/random.h"

namespace embla::kernels::cuda {
namespace {

struct ConstantWeights {
  float a;
  __device__ __forceinline__ float Value(std::uint32_t) const { return a; }
};

struct UniformWeights {
  float a;
  float width;    // b - a
  float highest;  // The largest value allowed.
  __device__ __forceinline__ float Value(std::uint32_t bits) const {
    const float u = static_cast<float>(bits >> 8) * 5.9604644775390625e-8f;
    return fminf(a + width * u, highest);
  }
};

struct NormalWeights {
  double mean;
  double deviation;
  __device__ __forceinline__ float Value(std::uint32_t bits) const {
    return static_cast<float>(mean + deviation * StandardNormal(bits));
  }
};

// The rows to initialize: slot first_slot + i becomes row first_row + slot of the table; or, where
// ids are given, slot slots[i], or i, becomes row ids[i].
struct InitTarget {
  InitRows rows;
  std::size_t first_slot = 0;
  std::size_t count = 0;
  const std::uint32_t* slots = nullptr;
  const std::int64_t* ids = nullptr;
};

template <Element kElement, class Weights>
__global__ void __launch_bounds__(kThreads)
    InitializeKernel(Weights weights, InitTarget target, std::uint64_t batch_key, RowShape shape) {
  constexpr int kPer = kPerLane<kElement>;
  const MutableRows& rows = target.rows.weights;
  const Group group = GroupOfThread(shape.lanes_log2);
  const unsigned column = ((blockIdx.y << shape.lanes_log2) + group.lane) * kPer;
  if (column >= rows.columns) return;
  for (std::size_t i = group.first; i < target.count; i += group.count) {
    const std::size_t slot = target.slots == nullptr ? target.first_slot + i : target.slots[i];
    if (target.slots != nullptr && slot == kNoSlot) continue;
    const std::int64_t row = target.ids == nullptr
                                 ? target.rows.first_row + static_cast<std::int64_t>(slot)
                                 : target.ids[i];
    const std::uint64_t key = RowKey(batch_key, row);
    Unit<kElement, kPer> unit;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const std::uint32_t bits = RandomBits(key, target.rows.column_begin + column + j);
      unit.Put(j, ToNearest<kElement>(weights.Value(bits)));
    }
    StoreUnit(static_cast<std::byte*>(rows.base) + slot * rows.stride_bytes, column, rows.columns,
              unit);
  }
}

template <Element kElement, class Weights>
int Fill(const Weights& weights, const InitParameters& parameters, const InitTarget& target,
         StreamHandle stream) {
  constexpr int kPer = kPerLane<kElement>;
  const std::uint64_t batch_key = BatchKey(RandomPurpose::kInitialize, parameters.seed, 0, 0);
  const RowShape shape = ShapeByChunks((target.rows.weights.columns + kPer - 1) / kPer);
  const Grid grid = WithChunks(GridOfGroups(target.count, shape), shape);
  return Launch(InitializeKernel<kElement, Weights>, grid, stream, weights, target, batch_key,
                shape);
}

template <Element kElement>
int FillElements(const InitParameters& parameters, const InitTarget& target, StreamHandle stream) {
  const float a = parameters.a;
  const float b = parameters.b;
  switch (parameters.rule) {
    case InitRule::kConstant:
      return Fill<kElement>(ConstantWeights{a}, parameters, target, stream);
    case InitRule::kUniform: {
      const float highest =
          a < b ? std::nextafter(b, -std::numeric_limits<float>::infinity()) : std::max(a, b);
      return Fill<kElement>(UniformWeights{a, b - a, highest}, parameters, target, stream);
    }
    case InitRule::kNormal:
      return Fill<kElement>(NormalWeights{a, b}, parameters, target, stream);
  }
  return cudaErrorInvalidValue;
}

int InitializeTarget(const InitParameters& parameters, const InitTarget& target,
                     StreamHandle stream) {
  if (target.count == 0) return cudaSuccess;
  switch (target.rows.weights.element) {
    case Element::kFloat32:
      return FillElements<Element::kFloat32>(parameters, target, stream);
    case Element::kFloat16:
      return FillElements<Element::kFloat16>(parameters, target, stream);
    case Element::kBFloat16:
      return FillElements<Element::kBFloat16>(parameters, target, stream);
    case Element::kInt8Rowwise:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int InitializeAsync(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                    std::size_t row_count, StreamHandle stream) {
  return InitializeTarget(parameters, {rows, first_slot, row_count}, stream);
}

int InitializeIdsAsync(const InitParameters& parameters, const InitRows& rows,
                       const std::uint32_t* slots, const std::int64_t* ids, std::size_t count,
                       StreamHandle stream) {
  return InitializeTarget(parameters, {rows, 0, count, slots, ids}, stream);
}

}  // namespace embla::kernels::cuda
