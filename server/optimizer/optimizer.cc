#include "server/optimizer/optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

kernels::StepRule RuleOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return kernels::StepRule::kSgd;
    case OptimizerKind::kRowwiseAdagrad:
      return kernels::StepRule::kRowwiseAdagrad;
    case OptimizerKind::kAdagrad:
      return kernels::StepRule::kAdagrad;
    case OptimizerKind::kAdam:
      return kernels::StepRule::kAdam;
  }
  EMBLA_CHECK(false);
}

void SetHyperParameters(const OptimizerSpec& spec, bool stochastic,
                        kernels::StepParameters& parameters) {
  parameters.rule = RuleOf(spec.kind);
  parameters.learning_rate = spec.learning_rate;
  parameters.eps = spec.eps;
  parameters.beta1 = spec.beta1;
  parameters.beta2 = spec.beta2;
  parameters.l2 = spec.weight_decay_mode == WeightDecayMode::kL2 ? spec.weight_decay : 0.0f;
  parameters.decoupled =
      spec.weight_decay_mode == WeightDecayMode::kDecoupled ? spec.weight_decay : 0.0f;
  parameters.stochastic = stochastic;
  parameters.t_is_step = spec.bias_correction == BiasCorrection::kStep;
}

}  // namespace

Optimizer::Optimizer(const TableSpec& spec)
    : spec_(spec.optimizer), dim_(spec.dim), dtype_(spec.dtype) {
  SetHyperParameters(spec_, IsStochastic(spec.rounding), parameters_);
  parameters_.seed = spec.seed;
  parameters_.table_id = ToInt(spec.id);
}

bool Optimizer::IsStochastic(Rounding rounding) const {
  return rounding == Rounding::kStochastic && dtype_ != DType::kFloat32;
}

absl::Status Optimizer::Set(const OptimizerSpec& spec, Rounding rounding) {
  if (spec.kind != spec_.kind) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer kind ", static_cast<int>(spec.kind), " differs from the table's, ",
        static_cast<int>(spec_.kind), ", which is fixed: its rows have that optimizer's state"));
  }
  EMBLA_RETURN_IF_ERROR(spec.Validate());
  spec_ = spec;
  SetHyperParameters(spec_, IsStochastic(rounding), parameters_);
  return absl::OkStatus();
}

std::size_t Optimizer::StateFloats(std::uint32_t columns) const {
  return kernels::RowStateFloats(parameters_.rule) +
         std::size_t{kernels::ElementStateArrays(parameters_.rule)} * columns;
}

void Optimizer::FillInitialState(std::span<float> state) const {
  const std::size_t scalars = kernels::RowStateFloats(parameters_.rule);
  std::fill(state.begin(), state.begin() + scalars, initial_row_state());
  std::fill(state.begin() + scalars, state.end(), initial_element_state());
}

float Optimizer::initial_row_state() const {
  return parameters_.rule == kernels::StepRule::kRowwiseAdagrad ? spec_.initial_accumulator : 0.0f;
}

float Optimizer::initial_element_state() const {
  return parameters_.rule == kernels::StepRule::kAdagrad ? spec_.initial_accumulator : 0.0f;
}

bool Optimizer::NeedsRowSumSquares(std::uint32_t columns) const {
  return parameters_.rule == kernels::StepRule::kRowwiseAdagrad && columns != dim_;
}

}  // namespace embla
