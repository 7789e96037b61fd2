// The optimizer's rules, one element at a time; formulas and order: docs/optimizers.md.
// A rule is a struct with
//   kArrays             arrays of element state
//   kRowState           whether a row has a state of its own
//   kNeedsSquares       whether BeginRow wants the sum of squares over the row
//   BeginRow(state, mean_square)  scalars of the row in hand; steps the row's state
//   Apply(w, g, state)  the new weight; updates the state of the element, one value per array
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/optimizer_step.h"
#include "kernels/step_scalars.h"

namespace embla::kernels::cuda {

// Values that all rows of a batch share.
struct StepScalars {
  StepParameters parameters;
  float keep = 1.0f;  // 1 - lr * decoupled
  std::uint64_t batch_key = 0;
  std::uint64_t step = 1;
  // Adam's 1 - beta^t where t is the step.
  float correction1 = 1.0f;
  float correction2 = 1.0f;
};

struct SgdRule {
  static constexpr int kArrays = 0;
  static constexpr bool kRowState = false;
  static constexpr bool kNeedsSquares = false;
  const StepScalars& scalars;

  __device__ __forceinline__ void BeginRow(float&, float) {}
  __device__ __forceinline__ float Apply(float w, float g, float (&)[1]) const {
    const StepParameters& p = scalars.parameters;
    const float h = g + p.l2 * w;
    return scalars.keep * w - p.learning_rate * h;
  }
};

struct RowwiseAdagradRule {
  static constexpr int kArrays = 0;
  static constexpr bool kRowState = true;
  static constexpr bool kNeedsSquares = true;
  const StepScalars& scalars;
  float mu = 0.0f;
  float kept = 0.0f;

  // mean_square: the sum of squares over the row, divided by its columns.
  __device__ __forceinline__ void BeginRow(float& state, float mean_square) {
    state = state + mean_square;
    mu = scalars.parameters.learning_rate / (sqrtf(state) + scalars.parameters.eps);
    kept = scalars.keep - mu * scalars.parameters.l2;
  }
  __device__ __forceinline__ float Apply(float w, float g, float (&)[1]) const {
    return kept * w - mu * g;
  }
};

struct AdagradRule {
  static constexpr int kArrays = 1;
  static constexpr bool kRowState = false;
  static constexpr bool kNeedsSquares = false;
  const StepScalars& scalars;

  __device__ __forceinline__ void BeginRow(float&, float) {}
  __device__ __forceinline__ float Apply(float w, float g, float (&state)[1]) const {
    const StepParameters& p = scalars.parameters;
    const float h = g + p.l2 * w;
    state[0] = state[0] + h * h;
    const float change = (p.learning_rate * h) / (sqrtf(state[0]) + p.eps);
    return scalars.keep * w - change;
  }
};

struct AdamRule {
  static constexpr int kArrays = 2;
  static constexpr bool kRowState = true;
  static constexpr bool kNeedsSquares = false;
  const StepScalars& scalars;
  float correction1 = 1.0f;
  float correction2 = 1.0f;

  __device__ __forceinline__ void BeginRow(float& count, float) {
    const StepParameters& p = scalars.parameters;
    count = NextStepCount(count);
    correction1 = scalars.correction1;
    correction2 = scalars.correction2;
    if (p.t_is_step) return;
    const auto t = static_cast<std::uint64_t>(count);
    correction1 = BiasCorrectionOf(p.beta1, t);
    correction2 = BiasCorrectionOf(p.beta2, t);
  }
  __device__ __forceinline__ float Apply(float w, float g, float (&state)[2]) const {
    const StepParameters& p = scalars.parameters;
    const float h = g + p.l2 * w;
    state[0] = p.beta1 * state[0] + (1.0f - p.beta1) * h;
    state[1] = p.beta2 * state[1] + (1.0f - p.beta2) * (h * h);
    const float root = sqrtf(state[1] / correction2) + p.eps;
    const float direction = (state[0] / correction1) / root;
    return w - p.learning_rate * (direction + p.decoupled * w);
  }
};

// launch.Run<kElement, Rule>() of the optimizer's rule.
template <Element kElement, class LaunchOf>
int RunRule(OptimizerKind rule, const LaunchOf& launch) {
  switch (rule) {
    case OptimizerKind::kSgd:
      return launch.template Run<kElement, SgdRule>();
    case OptimizerKind::kRowwiseAdagrad:
      return launch.template Run<kElement, RowwiseAdagradRule>();
    case OptimizerKind::kAdagrad:
      return launch.template Run<kElement, AdagradRule>();
    case OptimizerKind::kAdam:
      return launch.template Run<kElement, AdamRule>();
  }
  return cudaErrorInvalidValue;
}

}  // namespace embla::kernels::cuda
