// How good predictions are.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "tools/train/fm.h"

namespace embla::train {

// Probability that a random example with label 1 scores higher than one with label 0; ties count
// half. nullopt: one of the two labels does not occur, or a score is NaN.
std::optional<double> AreaUnderCurve(std::span<const float> scores, std::span<const float> labels);

// Mean logistic loss. nullopt: no examples.
std::optional<double> LogLoss(std::span<const float> scores, std::span<const float> labels);

// Root of the mean squared error. nullopt: no examples.
std::optional<double> RootMeanSquaredError(std::span<const float> scores,
                                           std::span<const float> labels);

// Quality of a finished run's predictions. Absent: it does not apply to the loss, or there were no
// examples.
struct Quality {
  std::optional<double> auc;
  std::optional<double> logloss;
  std::optional<double> rmse;
};
Quality QualityOf(Loss loss, std::span<const float> scores, std::span<const float> labels);

}  // namespace embla::train
