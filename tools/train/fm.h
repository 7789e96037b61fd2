// The model: a factorization machine over examples with one row per column.
//
//   score = prior + sum_c w[c] + sum_{c < d} <v[c], v[d]>
//         = prior + sum_c w[c] + 1/2 sum_j ((sum_c v[c][j])^2 - sum_c v[c][j]^2)
//
// w[c] (linear weight) and v[c] (`dim` factors) are the rows that column c selects. `prior` is a
// constant of the data: log-odds of the label, or its mean. With two columns, user and item, and
// squared loss this is matrix factorization with biases: mu + b_u + b_i + <p_u, q_i>.
//
// A mini-batch has every row once, however many examples select it: example e selects in column c
// the row slots[e * columns + c], whose weight is linear[slot] and whose factors begin at
// factors[slot * dim].
// Gradients are checked against finite differences in fm_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace embla::train {

//   kLogistic  log(1 + exp(-s)) for label 1, log(1 + exp(s)) for label 0
//   kSquared   (s - label)^2 / 2
enum class Loss { kLogistic, kSquared };

struct FmShape {
  std::size_t examples = 0;
  std::size_t columns = 0;
  std::size_t dim = 0;
};

// The rows of a mini-batch.
struct FmRows {
  FmShape shape;
  std::span<const std::uint32_t> slots;  // examples x columns; below linear.size().
  std::span<const float> linear;         // One per row.
  std::span<const float> factors;        // rows x dim
};

// factor_sums_out (examples x dim) holds sum_c v[c], which the gradients need.
void FmScores(const FmRows& rows, double prior, std::span<float> factor_sums_out,
              std::span<float> scores_out);

struct LossAndSlope {
  double loss = 0.0;
  double slope = 0.0;  // d loss / d score
};
LossAndSlope LossOf(Loss loss, double score, double label);

// Gradients of the sum of losses: d/dw[c] = slope, d/dv[c] = slope * (sum_d v[d] - v[c]), added up
// per row over the examples in their order.
void FmGradients(const FmRows& rows, std::span<const float> slopes,
                 std::span<const float> factor_sums, std::span<float> linear_out,
                 std::span<float> factors_out);

// The prior of labels with this mean: log-odds (kept away from infinity) or the mean itself.
double PriorOf(Loss loss, double mean_label);

}  // namespace embla::train
