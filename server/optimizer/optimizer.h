// Maps a table's OptimizerSpec to its rows: the state they carry and the kernel that steps them.
// The formulas are in docs/optimizers.md; this is how a spec enters them:
//
//   weight_decay_mode   kL2: l2 = weight_decay      kDecoupled: decoupled = weight_decay
//   learning_rate, eps, beta1, beta2                as they are
//   bias_correction     kStep: t is the update's step      kRow: the row's own step count
//   rounding            kStochastic acts on fp16 and bf16 tables, keyed by (seed, step, table, row,
//                       column)
//   gradient_clip       is applied before (kernels::Gradients::clip), not by Step
//
// State of one row, flat fp32, as in snapshots and migrations: the row's scalars, then each
// element array for the columns of the slice. How much of it a kind has, and where it starts:
// core/optimizer/optimizer_kind.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "core/plan/table_spec.h"
#include "kernels/optimizer_step.h"

namespace embla {

// A value; cheap to copy.
class Optimizer {
 public:
  // Requires: spec.Validate().ok().
  explicit Optimizer(const TableSpec& spec);

  // New hyper-parameters for the steps to come; state stays. InvalidArgument when the kind differs
  // or spec.Validate() fails.
  absl::Status Set(const OptimizerSpec& spec, Rounding rounding);

  const OptimizerSpec& spec() const { return spec_; }
  const kernels::StepParameters& step_parameters() const { return parameters_; }
  // The same for a step with a learning rate of its own.
  kernels::StepParameters step_parameters(std::optional<float> learning_rate) const {
    kernels::StepParameters parameters = parameters_;
    parameters.learning_rate = learning_rate.value_or(parameters.learning_rate);
    return parameters;
  }

  // Floats of state per row of a slice of `columns` columns.
  std::size_t StateFloats(std::uint32_t columns) const;
  // The state of a row that no step has touched. Requires: state.size() == StateFloats(columns).
  void FillInitialState(std::span<float> state) const;
  // Initial value of each float of the state.
  float initial_state() const;

  // Whether the steps of a slice of `columns` columns need sums of squares over whole rows.
  bool NeedsRowSumSquares(std::uint32_t columns) const;

 private:
  bool IsStochastic(Rounding rounding) const;

  OptimizerSpec spec_;
  std::uint32_t dim_;
  DType dtype_;
  kernels::StepParameters parameters_;
};

}  // namespace embla
