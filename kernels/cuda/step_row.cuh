// One optimizer step of one row by one group of lanes, whatever its gradient comes from.
//
// A gradient is a function object (column, values) that gives the row's summed gradient from a
// column on, zeros past the row's end. A rule that needs the row's sum of squares goes over the
// gradient twice, unless one turn of the group covers the row: then it stays in registers.
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
    const unsigned columns = target_.rows.weights.columns;
    const unsigned turns = (columns + group_.lanes * kPer - 1) / (group_.lanes * kPer);
    const bool measures = Rule::kNeedsSquares && given_squares == nullptr;
    Rule rule{scalars_};
    TreeOfSquares<kPer> squares;
    float g[kPer];
#pragma unroll 1
    for (unsigned turn = measures ? 0 : turns; turn < 2 * turns; ++turn) {
      if (turn == turns) BeginRow(rule, squares, given_squares);
      const unsigned column = (turn % turns * group_.lanes + group_.lane) * kPer;
      const bool in_hand = measures && turns == 1 && turn == 1;
      if (!in_hand) gradient(column, g);
      if (turn < turns) {
        Measure(squares, column, g);
      } else if (column < columns) {
        Apply(rule, column, g);
      }
    }
  }

 private:
  __device__ __forceinline__ unsigned Columns() const { return target_.rows.weights.columns; }

  __device__ __forceinline__ Unit<kElement, kPer> Weights(unsigned column) const {
    if (target_.words) {
      return LoadUnit<kElement, kPer, true, false>(weights_, column, Columns());
    }
    return LoadUnit<kElement, kPer, false, false>(weights_, column, Columns());
  }

  __device__ __forceinline__ void Measure(TreeOfSquares<kPer>& squares, unsigned column,
                                          const float (&g)[kPer]) const {
    const float l2 = scalars_.parameters.l2;
    float h[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) h[j] = g[j];
    if (l2 != 0.0f && column < Columns()) {
      const auto weights = Weights(column);
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        h[j] = column + j < Columns() ? g[j] + l2 * weights.Value(j) : 0.0f;
      }
    }
    squares.Add(group_, h);
  }

  __device__ __forceinline__ void BeginRow(Rule& rule, const TreeOfSquares<kPer>& squares,
                                           const float* given_squares) const {
    float mean_square = 0.0f;
    if constexpr (Rule::kNeedsSquares) {
      const float sum = given_squares != nullptr ? *given_squares : squares.Total(group_);
      mean_square = sum / static_cast<float>(target_.rows.dim);
    }
    float* const state = target_.rows.row_state;
    rule.BeginRow(group_, state == nullptr ? nullptr : state + slot_, mean_square);
  }

  __device__ __forceinline__ void Apply(const Rule& rule, unsigned column, const float (&g)[kPer]) {
    constexpr int kArrays = Rule::kArrays;
    constexpr int kValues = kArrays == 0 ? 1 : kArrays;
    const unsigned count = Columns() - column;
    float* state = nullptr;
    if constexpr (kArrays > 0) {
      state = target_.rows.element_state + (slot_ * std::size_t{kArrays}) * Columns() + column;
    }
    float arrays[kValues][kPer];
#pragma unroll
    for (int a = 0; a < kArrays; ++a) {
      LoadFloats(state + std::size_t{Columns()} * a, count, arrays[a]);
    }
    const auto old = Weights(column);
    float stepped[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      float element[kValues];
#pragma unroll
      for (int a = 0; a < kValues; ++a) element[a] = kArrays == 0 ? 0.0f : arrays[a][j];
      stepped[j] = rule.Apply(old.Value(j), g[j], element);
#pragma unroll
      for (int a = 0; a < kArrays; ++a) arrays[a][j] = element[a];
    }
#pragma unroll
    for (int a = 0; a < kArrays; ++a) {
      StoreFloats(state + std::size_t{Columns()} * a, count, arrays[a]);
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
