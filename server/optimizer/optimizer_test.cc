#include "server/optimizer/optimizer.h"

#include <cmath>
#include <random>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/combine.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

constexpr WeightDecayMode kModes[] = {WeightDecayMode::kNone, WeightDecayMode::kL2,
                                      WeightDecayMode::kDecoupled};

TableSpec Spec(OptimizerKind kind, std::uint32_t dim) {
  TableSpec spec;
  spec.id = TableId{1};
  spec.name = "t";
  spec.rows = 100;
  spec.dim = dim;
  spec.optimizer.kind = kind;
  spec.SetDefaults();
  return spec;
}

// One fp32 row with its state.
class OneRow {
 public:
  OneRow(const Optimizer& optimizer, std::vector<float> weights)
      : weights_(std::move(weights)), state_(optimizer.StateFloats(dim())) {
    optimizer.FillInitialState(state_);
  }
  void Step(const Optimizer& optimizer, const std::vector<float>& gradient, std::uint64_t step) {
    const std::uint32_t slot = 0;
    const auto scalars = kernels::RowStateFloats(optimizer.step_parameters().rule);
    kernels::Step(optimizer.step_parameters(),
                  {{weights_.data(), 4 * weights_.size(), dim(), kernels::Element::kFloat32},
                   state_.data(),
                   state_.data() + scalars,
                   0,
                   0,
                   dim()},
                  {{&slot, 1}, gradient.data(), gradient.size(), nullptr, step});
  }
  std::uint32_t dim() const { return static_cast<std::uint32_t>(weights_.size()); }
  const std::vector<float>& weights() const { return weights_; }

 private:
  std::vector<float> weights_;
  std::vector<float> state_;
};

// The textbook formulas in double, written without a look at the kernels.
class DoubleReference {
 public:
  DoubleReference(const OptimizerSpec& spec, const std::vector<float>& weights)
      : spec_(spec),
        w(weights.begin(), weights.end()),
        m_(w.size(), 0.0),
        a_(w.size(), spec.initial_accumulator),
        v_(w.size(), 0.0),
        row_(spec.initial_accumulator) {}

  void Step(const std::vector<float>& gradient) {
    ++t_;
    const double lr = spec_.learning_rate;
    const double decay = spec_.weight_decay;
    std::vector<double> g(gradient.begin(), gradient.end());
    if (spec_.weight_decay_mode == WeightDecayMode::kL2) {
      for (std::size_t c = 0; c < w.size(); ++c) g[c] += decay * w[c];
    }
    if (spec_.weight_decay_mode == WeightDecayMode::kDecoupled) {
      for (double& x : w) x *= 1.0 - lr * decay;
    }
    double mean_square = 0.0;
    for (const double x : g) mean_square += x * x / static_cast<double>(g.size());
    row_ += mean_square;
    for (std::size_t c = 0; c < w.size(); ++c) w[c] -= lr * Direction(c, g[c]);
  }

 private:
  double Direction(std::size_t c, double g) {
    switch (spec_.kind) {
      case OptimizerKind::kSgd:
        return g;
      case OptimizerKind::kRowwiseAdagrad:
        return g / (std::sqrt(row_) + spec_.eps);
      case OptimizerKind::kAdagrad:
        a_[c] += g * g;
        return g / (std::sqrt(a_[c]) + spec_.eps);
      case OptimizerKind::kAdam: {
        const double b1 = spec_.beta1;
        const double b2 = spec_.beta2;
        m_[c] = b1 * m_[c] + (1 - b1) * g;
        v_[c] = b2 * v_[c] + (1 - b2) * g * g;
        const double mhat = m_[c] / (1 - std::pow(b1, t_));
        const double vhat = v_[c] / (1 - std::pow(b2, t_));
        return mhat / (std::sqrt(vhat) + spec_.eps);
      }
    }
    return 0.0;
  }

  const OptimizerSpec spec_;

 public:
  std::vector<double> w;

 private:
  std::vector<double> m_;
  std::vector<double> a_;
  std::vector<double> v_;
  double row_;
  int t_ = 0;
};

void ExpectCloseToDoubleReference(const TableSpec& spec, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> weights(spec.dim);
  for (float& w : weights) w = normal(random);
  const Optimizer optimizer(spec);
  OneRow row(optimizer, weights);
  DoubleReference reference(spec.optimizer, weights);
  for (std::uint64_t step = 1; step <= 100; ++step) {
    std::vector<float> gradient(spec.dim);
    for (float& g : gradient) g = normal(random);
    row.Step(optimizer, gradient, step);
    reference.Step(gradient);
  }
  double scale = 0.0;  // Weights near 0 are the difference of larger ones.
  for (const double w : reference.w) scale = std::max(scale, std::fabs(w));
  for (std::size_t c = 0; c < spec.dim; ++c) {
    ASSERT_NEAR(row.weights()[c], reference.w[c], 1e-5 * scale)
        << "kind " << static_cast<int>(spec.optimizer.kind) << " mode "
        << static_cast<int>(spec.optimizer.weight_decay_mode) << " column " << c;
  }
}

TEST(OptimizerStep, StaysWithin1e5OfDoublePrecisionOver100Steps) {
  std::mt19937_64 random(20240607);
  for (const OptimizerKind kind : kOptimizerKinds) {
    for (const WeightDecayMode mode : kModes) {
      for (const std::uint32_t dim : {1u, 8u, 37u, 128u}) {
        TableSpec spec = Spec(kind, dim);
        spec.optimizer.learning_rate = 0.05f;
        spec.optimizer.weight_decay = 0.02f;
        spec.optimizer.weight_decay_mode = mode;
        spec.optimizer.initial_accumulator = 0.1f;
        ExpectCloseToDoubleReference(spec, random);
      }
    }
  }
}

TEST(OptimizerStep, AdamWithTheUpdatesStepEqualsAdamWithTheRowsOwnCount) {
  TableSpec spec = Spec(OptimizerKind::kAdam, 4);
  const Optimizer by_row(spec);
  spec.optimizer.bias_correction = BiasCorrection::kStep;
  const Optimizer by_step(spec);
  OneRow a(by_row, {1, 2, 3, 4});
  OneRow b(by_step, {1, 2, 3, 4});
  OneRow late(by_step, {1, 2, 3, 4});
  for (std::uint64_t step = 1; step <= 5; ++step) {
    a.Step(by_row, {1, -1, 0.5f, 2}, step + 70);
    b.Step(by_step, {1, -1, 0.5f, 2}, step);
    late.Step(by_step, {1, -1, 0.5f, 2}, step + 70);
  }
  EXPECT_EQ(a.weights(), b.weights());
  EXPECT_NE(a.weights(), late.weights());
}

// Published vectors of other parameter servers, where their convention is ours.
TEST(OptimizerVectors, MonolithSgd) {
  TableSpec spec = Spec(OptimizerKind::kSgd, 1);
  spec.optimizer.learning_rate = 0.1f;
  const Optimizer optimizer(spec);
  OneRow row(optimizer, {0.0f});
  row.Step(optimizer, {1.0f}, 1);
  EXPECT_FLOAT_EQ(row.weights()[0], -0.1f);
}

TEST(OptimizerVectors, MonolithAdagradWithAndWithoutWeightDecay) {
  TableSpec spec = Spec(OptimizerKind::kAdagrad, 2);
  spec.optimizer.learning_rate = 0.1f;
  spec.optimizer.eps = 0.0f;
  spec.optimizer.initial_accumulator = 1.0f;
  spec.optimizer.weight_decay = 0.1f;
  spec.optimizer.weight_decay_mode = WeightDecayMode::kL2;
  const Optimizer optimizer(spec);
  OneRow row(optimizer, {0.0f, 0.0f});
  row.Step(optimizer, {1.0f, 2.0f}, 1);
  EXPECT_NEAR(row.weights()[0], -0.07071067, 1e-7);
  EXPECT_NEAR(row.weights()[1], -0.08944272, 1e-7);
  row.Step(optimizer, {1.0f, 2.0f}, 2);
  EXPECT_NEAR(row.weights()[0], -0.128173, 1e-6);
  EXPECT_NEAR(row.weights()[1], -0.155943, 1e-6);
}

TEST(OptimizerVectors, ElasticDlSparseSgdSumsDuplicates) {
  const std::int64_t ids[] = {1, 3, 3};
  const float gradients[] = {-1.0f, -1.0f, -1.0f};
  kernels::Grouping grouping;
  kernels::GroupIds(ids, grouping);
  float sums[2];
  kernels::SumSegments(grouping,
                       {{gradients, 4, kernels::Element::kFloat32}, 1, nullptr, nullptr, 0.0f}, 0,
                       2, sums, 1);
  TableSpec spec = Spec(OptimizerKind::kSgd, 1);
  spec.optimizer.learning_rate = 0.1f;
  const Optimizer optimizer(spec);
  OneRow row1(optimizer, {0.0f});
  OneRow row3(optimizer, {0.0f});
  row1.Step(optimizer, {sums[0]}, 1);
  row3.Step(optimizer, {sums[1]}, 1);
  EXPECT_FLOAT_EQ(row1.weights()[0], 0.1f);
  EXPECT_FLOAT_EQ(row3.weights()[0], 0.2f);
}

TEST(OptimizerState, HasTheShapeThatThePlanCountsWith) {
  for (const OptimizerKind kind : kOptimizerKinds) {
    const TableSpec spec = Spec(kind, 48);
    const Optimizer optimizer(spec);
    const StateShape shape = StateShapeOf(spec.optimizer);
    EXPECT_EQ(optimizer.StateFloats(48), shape.row_floats + 48 * shape.element_arrays);
    EXPECT_EQ(optimizer.StateFloats(48) * 4, static_cast<std::size_t>(spec.StateBytesPerRow()));
    EXPECT_EQ(optimizer.NeedsRowSumSquares(16), NeedsRowStatistic(spec.optimizer));
    EXPECT_FALSE(optimizer.NeedsRowSumSquares(48));
  }
}

TEST(OptimizerSet, ChangesHyperParametersButNotTheKind) {
  Optimizer optimizer(Spec(OptimizerKind::kAdagrad, 4));
  OptimizerSpec spec = optimizer.spec();
  spec.learning_rate = 0.5f;
  ASSERT_THAT(optimizer.Set(spec, Rounding::kNearest), IsOk());
  EXPECT_EQ(optimizer.step_parameters().learning_rate, 0.5f);
  spec.kind = OptimizerKind::kSgd;
  EXPECT_EQ(optimizer.Set(spec, Rounding::kNearest).code(), absl::StatusCode::kInvalidArgument);
  spec.kind = OptimizerKind::kAdagrad;
  spec.learning_rate = -1.0f;
  EXPECT_EQ(optimizer.Set(spec, Rounding::kNearest).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(optimizer.step_parameters().learning_rate, 0.5f);
}

}  // namespace
}  // namespace embla
