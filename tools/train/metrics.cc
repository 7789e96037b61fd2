#include "tools/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/check.h"

namespace embla::train {

std::optional<double> AreaUnderCurve(std::span<const float> scores, std::span<const float> labels) {
  EMBLA_CHECK(scores.size() == labels.size());
  if (std::ranges::any_of(scores, [](float score) { return std::isnan(score); })) {
    return std::nullopt;
  }
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return scores[i]; });
  double positives = 0.0;
  double negatives = 0.0;
  double wins = 0.0;  // Pairs in which the positive scores higher, ties as halves.
  for (std::size_t begin = 0; begin < order.size();) {
    double tied_positives = 0.0;
    double tied_negatives = 0.0;
    std::size_t end = begin;
    for (; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end) {
      (labels[order[end]] > 0.5f ? tied_positives : tied_negatives) += 1.0;
    }
    wins += tied_positives * (negatives + 0.5 * tied_negatives);
    positives += tied_positives;
    negatives += tied_negatives;
    begin = end;
  }
  if (positives == 0.0 || negatives == 0.0) return std::nullopt;
  return wins / (positives * negatives);
}

std::optional<double> LogLoss(std::span<const float> scores, std::span<const float> labels) {
  EMBLA_CHECK(scores.size() == labels.size());
  if (scores.empty()) return std::nullopt;
  double sum = 0.0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    sum += LossOf(Loss::kLogistic, scores[i], labels[i]).loss;
  }
  return sum / static_cast<double>(scores.size());
}

std::optional<double> RootMeanSquaredError(std::span<const float> scores,
                                           std::span<const float> labels) {
  EMBLA_CHECK(scores.size() == labels.size());
  if (scores.empty()) return std::nullopt;
  double sum = 0.0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double error = double{scores[i]} - labels[i];
    sum += error * error;
  }
  return std::sqrt(sum / static_cast<double>(scores.size()));
}

Quality QualityOf(Loss loss, std::span<const float> scores, std::span<const float> labels) {
  Quality quality;
  if (loss == Loss::kSquared) {
    quality.rmse = RootMeanSquaredError(scores, labels);
  } else {
    quality.auc = AreaUnderCurve(scores, labels);
    quality.logloss = LogLoss(scores, labels);
  }
  return quality;
}

}  // namespace embla::train
