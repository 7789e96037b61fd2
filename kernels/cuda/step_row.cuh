// One optimizer step of one row by one group of lanes, whatever its gradient comes from.
//
// A gradient is a function object (column, values) that gives the row's summed gradient from a
// column on, zeros past the row's end. Weights and state are loaded before it, so that all of a
// row's memory is in flight together. A rule that needs the row's sum of squares goes over the row
// twice, unless one turn of the group covers it: then everything stays in registers.
//
// All lanes of a warp step together; a group without a row has kNoSlot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/rules.cuh"
#include "kernels/cuda/units.cuh"
#include "kernels/optimizer_step.h"
#include "kernels/random.h"

namespace embla::kernels::cuda {

// The rows of a step, and how they lie.
struct StepTarget {
  StepRows rows;
  bool words = false;  // Weights can be loaded in words.
};

// One row in the group's hands.
template <Element kElement, class Rule>
class RowStepper {
 public:
  static constexpr int kPer = kPerLane<kElement>;

  __device__ RowStepper(const Group& group, const StepScalars& scalars, const StepTarget& target,
                        std::uint32_t slot)
      : group_(group),
        scalars_(scalars),
        target_(target),
        slot_(slot),
        weights_(static_cast<std::byte*>(target.rows.weights.base) +
                 slot * target.rows.weights.stride_bytes) {}

  // given_squares: null, or the row's sum of squares.
  template <class Gradient>
  __device__ __forceinline__ void Step(const Gradient& gradient, const float* given_squares) {
    const unsigned width = group_.lanes * kPer;
    const bool whole = Columns() <= width;
    bool measures = Rule::kNeedsSquares && given_squares == nullptr;
    float row_state = 0.0f;
    if (Rule::kRowState && slot_ != kNoSlot) {
      row_state = Load<float>(target_.rows.row_state + slot_);
    }
    Rule rule{scalars_};
    TreeOfSquares<kPer> squares;
#pragma unroll 1
    for (unsigned begin = 0; begin < Columns();) {
      // A row that is not there has no columns.
      const unsigned column = slot_ == kNoSlot ? Columns() : begin + group_.lane * kPer;
      begin += width;
      InMemory memory;
      if (!measures || whole || scalars_.parameters.l2 != 0.0f) LoadColumns(column, memory);
      float g[kPer] = {};
      if (column < Columns()) gradient(column, g);
      if (measures) {
        Measure(squares, column, g, memory);
        if (!whole) {
          if (begin >= Columns()) measures = false, begin = 0;
          continue;
        }
      }
      if (begin == width) BeginRow(rule, row_state, squares, given_squares);
      if (column < Columns()) Apply(rule, column, g, memory);
    }
  }

 private:
  __device__ __forceinline__ unsigned Columns() const { return target_.rows.weights.columns; }

  // A lane's columns as they are in memory.
  static constexpr int kArrays = Rule::kArrays;
  static constexpr int kValues = kArrays == 0 ? 1 : kArrays;
  struct InMemory {
    Unit<kElement, kPer> weights;
    float arrays[kValues][kPer];
  };

  __device__ __forceinline__ float* StateOf(unsigned column) const {
    return target_.rows.element_state + slot_ * std::size_t{kArrays} * Columns() + column;
  }

  __device__ __forceinline__ void LoadColumns(unsigned column, InMemory& memory) const {
    if (column >= Columns()) return;
    memory.weights = target_.words
                         ? LoadUnit<kElement, kPer, true, false>(weights_, column, Columns())
                         : LoadUnit<kElement, kPer, false, false>(weights_, column, Columns());
#pragma unroll
    for (int a = 0; a < kArrays; ++a) {
      LoadFloats(StateOf(column) + std::size_t{Columns()} * a, Columns() - column,
                 memory.arrays[a]);
    }
  }

  __device__ __forceinline__ void Measure(TreeOfSquares<kPer>& squares, unsigned column,
                                          const float (&g)[kPer], const InMemory& memory) const {
    const float l2 = scalars_.parameters.l2;
    float h[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) h[j] = g[j];
    if (l2 != 0.0f) {
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        h[j] = column + j < Columns() ? g[j] + l2 * memory.weights.Value(j) : 0.0f;
      }
    }
    squares.Add(group_, h);
  }

  // Every lane has the row's state in hand; the first one keeps it.
  __device__ __forceinline__ void BeginRow(Rule& rule, float& row_state,
                                           const TreeOfSquares<kPer>& squares,
                                           const float* given_squares) const {
    float mean_square = 0.0f;
    if constexpr (Rule::kNeedsSquares) {
      float sum = 0.0f;
      if (given_squares == nullptr) {
        sum = squares.Total(group_);
      } else if (slot_ != kNoSlot) {
        sum = *given_squares;
      }
      mean_square = sum / static_cast<float>(target_.rows.dim);
    }
    rule.BeginRow(row_state, mean_square);
    if constexpr (Rule::kRowState) {
      __syncwarp();  // Every lane has read the state before lane 0 writes it.
      if (group_.lane == 0 && slot_ != kNoSlot) Store(target_.rows.row_state + slot_, row_state);
    }
  }

  __device__ __forceinline__ void Apply(const Rule& rule, unsigned column, const float (&g)[kPer],
                                        InMemory& memory) {
    float stepped[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      float element[kValues];
#pragma unroll
      for (int a = 0; a < kValues; ++a) element[a] = kArrays == 0 ? 0.0f : memory.arrays[a][j];
      stepped[j] = rule.Apply(memory.weights.Value(j), g[j], element);
#pragma unroll
      for (int a = 0; a < kArrays; ++a) memory.arrays[a][j] = element[a];
    }
#pragma unroll
    for (int a = 0; a < kArrays; ++a) {
      StoreFloats(StateOf(column) + std::size_t{Columns()} * a, Columns() - column,
                  memory.arrays[a]);
    }
    StoreUnit(weights_, column, Columns(), Rounded(column, stepped));
  }

  __device__ __forceinline__ Unit<kElement, kPer> Rounded(unsigned column,
                                                          const float (&values)[kPer]) const {
    Unit<kElement, kPer> unit;
    if (kElement != Element::kFloat32 && scalars_.parameters.stochastic) {
      const std::uint64_t key = RowKey(scalars_.batch_key, target_.rows.first_row + slot_);
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        const std::uint32_t random = RandomBits(key, target_.rows.column_begin + column + j);
        unit.Put(j, ToStochastic<kElement>(values[j], random));
      }
      return unit;
    }
#pragma unroll
    for (int j = 0; j < kPer; ++j) unit.Put(j, ToNearest<kElement>(values[j]));
    return unit;
  }

  const Group& group_;
  const StepScalars& scalars_;
  const StepTarget& target_;
  const std::uint32_t slot_;
  std::byte* const weights_;
};

}  // namespace embla::kernels::cuda
