// One optimizer step per touched row. The formulas, g = the row's summed gradient, w = its weight,
// all in fp32, each operation rounded, in the written order:
//   every rule       keep = 1 - lr * decoupled
//   kSgd             w = keep*w - lr*(g + l2*w)
//   kRowwiseAdagrad  s += S/dim;  mu = lr/(sqrt(s) + eps);  w = (keep - mu*l2)*w - mu*g
//                    S = sum over the whole row of (g + l2*w)^2, by the 16-lane tree
//   kAdagrad         h = g + l2*w;  a += h*h;  w = keep*w - (lr*h)/(sqrt(a) + eps)
//   kAdam            h = g + l2*w;  m = beta1*m + (1-beta1)*h;  v = beta2*v + (1-beta2)*(h*h)
//                    w = w - lr*((m/(1-beta1^t))/(sqrt(v/(1-beta2^t)) + eps) + decoupled*w)
// beta^t is computed in double by repeated squaring and 1 - beta^t rounded to fp32 once.
// State per row: kRowwiseAdagrad s; kAdam its number of steps (saturates at 2^24).
// State per element: kAdagrad a; kAdam m, then v.
//
// A slice of columns gives the same bits as the whole row: column_begin enters the random numbers,
// and kRowwiseAdagrad takes S from the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/row_kernels.h"

namespace embla::kernels {

enum class StepRule : std::uint8_t { kSgd = 1, kRowwiseAdagrad = 2, kAdagrad = 3, kAdam = 4 };

struct StepParameters {
  StepRule rule = StepRule::kSgd;
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

constexpr std::uint32_t RowStateFloats(StepRule rule) {
  return rule == StepRule::kRowwiseAdagrad || rule == StepRule::kAdam ? 1 : 0;
}
constexpr std::uint32_t ElementStateArrays(StepRule rule) {
  return rule == StepRule::kAdagrad ? 1 : rule == StepRule::kAdam ? 2 : 0;
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
