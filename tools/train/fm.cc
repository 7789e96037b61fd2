#include "tools/train/fm.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace embla::train {
namespace {

// Log-odds of labels that are all equal: about one in a thousand is the other one.
constexpr double kMeanMargin = 1e-3;

void CheckSizes(const FmRows& rows, std::size_t sums, std::size_t scores) {
  const FmShape& shape = rows.shape;
  EMBLA_CHECK(rows.slots.size() == shape.examples * shape.columns);
  EMBLA_CHECK(rows.factors.size() == rows.linear.size() * shape.dim);
  EMBLA_CHECK(sums == shape.examples * shape.dim);
  EMBLA_CHECK(scores == shape.examples);
}

}  // namespace

void FmScores(const FmRows& rows, double prior, std::span<float> factor_sums_out,
              std::span<float> scores_out) {
  CheckSizes(rows, factor_sums_out.size(), scores_out.size());
  const FmShape& shape = rows.shape;
  std::ranges::fill(factor_sums_out, 0.0f);
  for (std::size_t e = 0; e < shape.examples; ++e) {
    float* sums = factor_sums_out.data() + e * shape.dim;
    double score = prior;
    double squares = 0.0;
    for (const std::uint32_t slot : rows.slots.subspan(e * shape.columns, shape.columns)) {
      const float* v = rows.factors.data() + std::size_t{slot} * shape.dim;
      score += rows.linear[slot];
      float row_squares = 0.0f;
      for (std::size_t j = 0; j < shape.dim; ++j) {
        sums[j] += v[j];
        row_squares += v[j] * v[j];
      }
      squares += row_squares;
    }
    double squared_sums = 0.0;
    for (std::size_t j = 0; j < shape.dim; ++j) squared_sums += double{sums[j]} * sums[j];
    scores_out[e] = static_cast<float>(score + 0.5 * (squared_sums - squares));
  }
}

LossAndSlope LossOf(Loss loss, double score, double label) {
  if (loss == Loss::kSquared) {
    const double error = score - label;
    return {0.5 * error * error, error};
  }
  // log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)) never overflows.
  const double x = label > 0.5 ? -score : score;
  const double probability = 1.0 / (1.0 + std::exp(-score));
  return {std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))), probability - label};
}

void FmGradients(const FmRows& rows, std::span<const float> slopes,
                 std::span<const float> factor_sums, std::span<float> linear_out,
                 std::span<float> factors_out) {
  CheckSizes(rows, factor_sums.size(), slopes.size());
  EMBLA_CHECK(linear_out.size() == rows.linear.size());
  EMBLA_CHECK(factors_out.size() == rows.factors.size());
  const FmShape& shape = rows.shape;
  std::ranges::fill(linear_out, 0.0f);
  std::ranges::fill(factors_out, 0.0f);
  for (std::size_t e = 0; e < shape.examples; ++e) {
    const float slope = slopes[e];
    const float* sums = factor_sums.data() + e * shape.dim;
    for (const std::uint32_t slot : rows.slots.subspan(e * shape.columns, shape.columns)) {
      const float* v = rows.factors.data() + std::size_t{slot} * shape.dim;
      float* out = factors_out.data() + std::size_t{slot} * shape.dim;
      linear_out[slot] += slope;
      for (std::size_t j = 0; j < shape.dim; ++j) out[j] += slope * (sums[j] - v[j]);
    }
  }
}

double PriorOf(Loss loss, double mean_label) {
  if (loss == Loss::kSquared) return mean_label;
  const double mean = std::clamp(mean_label, kMeanMargin, 1.0 - kMeanMargin);
  return std::log(mean / (1.0 - mean));
}

}  // namespace embla::train
