// One optimizer step per touched row. docs/optimizers.md has each optimizer's formula: g is the
// row's summed gradient, w its weight, all in fp32, each operation rounded, in the written order.
// The state of a row: core/optimizer/optimizer_kind.h.
//
// A slice of columns gives the same bits as the whole row: column_begin enters the random numbers,
// and an optimizer with a statistic over the row takes it (S) from the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/optimizer/optimizer_kind.h"
#include "kernels/row_kernels.h"

namespace embla::kernels {

struct StepParameters {
  OptimizerKind rule = OptimizerKind::kSgd;
  float learning_rate = 0.01f;
  float eps = 1e-8f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float l2 = 0.0f;         // Weight decay that joins the gradient.
  float decoupled = 0.0f;  // Weight decay beside the gradient.
  bool t_is_step = false;  // Adam's t: StepBatch::step (at least 1), or the row's own count.
  // Stochastic rounding of fp16 and bf16 weights, keyed by (seed, step, table_id, row, column).
  bool stochastic = false;
  std::uint64_t seed = 0;
  std::uint32_t table_id = 0;
};

constexpr std::uint32_t RowStateFloats(OptimizerKind rule) {
  return TraitsOf(rule).state.row_floats;
}
constexpr std::uint32_t ElementStateArrays(OptimizerKind rule) {
  return TraitsOf(rule).state.element_arrays;
}

// The memory of one slice. Slot s is row first_row + s of the table.
struct StepRows {
  MutableRows weights;
  float* row_state = nullptr;      // One per slot, where the rule has one.
  float* element_state = nullptr;  // Slot s: ElementStateArrays(rule) * columns floats, packed, at
                                   // element_state + s * that many.
  std::int64_t first_row = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t dim = 0;  // Columns of the whole row.
};

struct StepBatch {
  std::span<const std::uint32_t> slots;  // Unique, no kNoSlot.
  const float* gradients = nullptr;      // Row i at gradients + i * stride, for slots[i].
  std::size_t stride = 0;                // In floats.
  // kRowwiseAdagrad: S of each slot. Null when the slice has the whole row: computed here.
  const float* row_sum_squares = nullptr;
  std::uint64_t step = 0;
  // Not null: in place of `gradients`, the gradient of slots[i] is at gradient_rows[i], and g is +0
  // plus it, as a sum of one gradient would be: -0 becomes +0.
  const float* const* gradient_rows = nullptr;
};

// Requires: row_sum_squares, or weights.columns == dim, when the rule is kRowwiseAdagrad; with
// l2 != 0, weights.columns == dim and row_sum_squares is not read (S needs the weights).
void Step(const StepParameters& parameters, const StepRows& rows, const StepBatch& batch,
          const PrefetchTuning& tuning = {});

}  // namespace embla::kernels
