#include "server/optimizer/optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

void SetHyperParameters(const OptimizerSpec& spec, bool stochastic,
                        kernels::StepParameters& parameters) {
  parameters.rule = spec.kind;
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
  return TraitsOf(spec_.kind).state.Floats(columns);
}

void Optimizer::FillInitialState(std::span<float> state) const {
  std::fill(state.begin(), state.end(), initial_state());
}

float Optimizer::initial_state() const {
  return TraitsOf(spec_.kind).starts_at_accumulator ? spec_.initial_accumulator : 0.0f;
}

bool Optimizer::NeedsRowSumSquares(std::uint32_t columns) const {
  return TraitsOf(spec_.kind).needs_row_statistic && columns != dim_;
}

}  // namespace embla
