#include "tools/train/fm.h"

#include <algorithm>
#include <array>
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

// Columns that are computed side by side, in registers.
constexpr std::size_t kWidth = 8;

// Adds up columns [column, column + kColumns) of the slots' factors and returns what their products
// in pairs add to twice the score.
template <std::size_t kColumns>
double AddPairs(const FmRows& rows, std::span<const std::uint32_t> slots, std::size_t column,
                float* sums_out) {
  std::array<float, kColumns> sums = {};
  std::array<float, kColumns> squares = {};
  for (const std::uint32_t slot : slots) {
    const float* v = rows.factors.data() + std::size_t{slot} * rows.shape.dim + column;
    for (std::size_t j = 0; j < kColumns; ++j) {
      sums[j] += v[j];
      squares[j] += v[j] * v[j];
    }
  }
  double pairs = 0.0;
  for (std::size_t j = 0; j < kColumns; ++j) {
    sums_out[j] = sums[j];
    pairs += double{sums[j]} * sums[j] - squares[j];
  }
  return pairs;
}

// out += slope * (sums - v). All is read before anything is written: the compiler need not ask
// whether they overlap.
template <std::size_t kColumns>
void AddGradient(const float* sums, const float* v, float slope, float* out) {
  std::array<float, kColumns> gradient;
  for (std::size_t j = 0; j < kColumns; ++j) gradient[j] = out[j] + slope * (sums[j] - v[j]);
  std::ranges::copy(gradient, out);
}

}  // namespace

void FmScores(const FmRows& rows, double prior, std::span<float> factor_sums_out,
              std::span<float> scores_out) {
  CheckSizes(rows, factor_sums_out.size(), scores_out.size());
  const FmShape& shape = rows.shape;
  for (std::size_t e = 0; e < shape.examples; ++e) {
    float* sums = factor_sums_out.data() + e * shape.dim;
    const auto slots = rows.slots.subspan(e * shape.columns, shape.columns);
    double score = prior;
    for (const std::uint32_t slot : slots) score += rows.linear[slot];
    double pairs = 0.0;
    std::size_t j = 0;
    for (; j + kWidth <= shape.dim; j += kWidth)
      pairs += AddPairs<kWidth>(rows, slots, j, sums + j);
    for (; j < shape.dim; ++j) pairs += AddPairs<1>(rows, slots, j, sums + j);
    scores_out[e] = static_cast<float>(score + 0.5 * pairs);
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
      std::size_t j = 0;
      for (; j + kWidth <= shape.dim; j += kWidth) {
        AddGradient<kWidth>(sums + j, v + j, slope, out + j);
      }
      for (; j < shape.dim; ++j) AddGradient<1>(sums + j, v + j, slope, out + j);
    }
  }
}

double PriorOf(Loss loss, double mean_label) {
  if (loss == Loss::kSquared) return mean_label;
  const double mean = std::clamp(mean_label, kMeanMargin, 1.0 - kMeanMargin);
  return std::log(mean / (1.0 - mean));
}

}  // namespace embla::train
