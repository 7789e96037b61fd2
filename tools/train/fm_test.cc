#include "tools/train/fm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tools/train/random.h"

namespace embla::train {
namespace {

struct Model {
  FmShape shape;
  double prior = 0.3;
  std::vector<std::uint32_t> slots;
  std::vector<float> linear;
  std::vector<float> factors;
  std::vector<float> labels;
};

Model RandomModel(const FmShape& shape, Loss loss, std::uint64_t seed) {
  Random random(seed);
  Model model;
  model.shape = shape;
  // Fewer rows per column than examples, so that some share one.
  const std::size_t column_rows = shape.examples / 2 + 1;
  const std::size_t rows = shape.columns * column_rows;
  for (std::size_t i = 0; i < shape.examples * shape.columns; ++i) {
    model.slots.push_back(
        static_cast<std::uint32_t>(i % shape.columns * column_rows + random.Below(column_rows)));
  }
  for (std::size_t i = 0; i < rows; ++i) {
    model.linear.push_back(static_cast<float>(0.5 * random.Normal()));
    for (std::size_t j = 0; j < shape.dim; ++j) {
      model.factors.push_back(static_cast<float>(0.5 * random.Normal()));
    }
  }
  for (std::size_t i = 0; i < shape.examples; ++i) {
    const double u = random.Uniform();
    model.labels.push_back(loss == Loss::kLogistic ? (u < 0.5 ? 0.0f : 1.0f)
                                                   : static_cast<float>(5.0 * u));
  }
  return model;
}

// The definition: all pairs, in double precision.
double ScoreByPairs(const Model& model, std::size_t example) {
  const auto [examples, columns, dim] = model.shape;
  const std::uint32_t* slots = model.slots.data() + example * columns;
  double score = model.prior;
  for (std::size_t c = 0; c < columns; ++c) {
    score += model.linear[slots[c]];
    for (std::size_t d = c + 1; d < columns; ++d) {
      for (std::size_t j = 0; j < dim; ++j) {
        score += double{model.factors[slots[c] * dim + j]} * model.factors[slots[d] * dim + j];
      }
    }
  }
  return score;
}

double LossByPairs(const Model& model, Loss loss) {
  double sum = 0.0;
  for (std::size_t e = 0; e < model.shape.examples; ++e) {
    sum += LossOf(loss, ScoreByPairs(model, e), model.labels[e]).loss;
  }
  return sum;
}

struct Gradients {
  std::vector<float> scores;
  std::vector<float> linear;
  std::vector<float> factors;
};

Gradients Compute(const Model& model, Loss loss) {
  Gradients result;
  std::vector<float> sums(model.shape.examples * model.shape.dim);
  std::vector<float> slopes(model.shape.examples);
  result.scores.resize(model.shape.examples);
  result.linear.resize(model.linear.size());
  result.factors.resize(model.factors.size());
  const FmRows rows = {model.shape, model.slots, model.linear, model.factors};
  FmScores(rows, model.prior, sums, result.scores);
  for (std::size_t e = 0; e < slopes.size(); ++e) {
    slopes[e] = static_cast<float>(LossOf(loss, result.scores[e], model.labels[e]).slope);
  }
  FmGradients(rows, slopes, sums, result.linear, result.factors);
  return result;
}

void ExpectFiniteDifferences(Model model, Loss loss, std::vector<float> Model::*parameters,
                             const std::vector<float>& gradients) {
  constexpr float kStep = 1e-2f;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    float& value = (model.*parameters)[i];
    const float kept = value;
    value = kept + kStep;
    const double above = LossByPairs(model, loss);
    const double width_above = double{value} - kept;
    value = kept - kStep;
    const double below = LossByPairs(model, loss);
    const double width = width_above + (double{kept} - value);
    value = kept;
    EXPECT_NEAR(gradients[i], (above - below) / width, 2e-4) << "parameter " << i;
  }
}

class FmTest : public ::testing::TestWithParam<Loss> {};
INSTANTIATE_TEST_SUITE_P(Losses, FmTest, ::testing::Values(Loss::kLogistic, Loss::kSquared));

TEST_P(FmTest, ScoresEqualTheSumOverAllPairs) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const Model model = RandomModel({5, 1 + seed % 7, 1 + seed % 9}, GetParam(), seed);
    const Gradients result = Compute(model, GetParam());
    for (std::size_t e = 0; e < model.shape.examples; ++e) {
      EXPECT_NEAR(result.scores[e], ScoreByPairs(model, e), 1e-5);
    }
  }
}

TEST_P(FmTest, GradientsEqualFiniteDifferences) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    const Model model = RandomModel({3, 4, 4 * seed}, GetParam(), seed);
    const Gradients result = Compute(model, GetParam());
    ExpectFiniteDifferences(model, GetParam(), &Model::linear, result.linear);
    ExpectFiniteDifferences(model, GetParam(), &Model::factors, result.factors);
  }
}

TEST(LossOf, StaysFiniteForExtremeScores) {
  for (const double score : {-1e4, -50.0, 0.0, 50.0, 1e4}) {
    for (const double label : {0.0, 1.0}) {
      const LossAndSlope result = LossOf(Loss::kLogistic, score, label);
      EXPECT_TRUE(std::isfinite(result.loss));
      EXPECT_GE(result.loss, 0.0);
      EXPECT_LE(std::abs(result.slope), 1.0);
    }
  }
  EXPECT_DOUBLE_EQ(LossOf(Loss::kLogistic, 0.0, 1.0).loss, std::log(2.0));
}

TEST(PriorOf, InvertsTheMean) {
  EXPECT_DOUBLE_EQ(PriorOf(Loss::kSquared, 3.5), 3.5);
  EXPECT_NEAR(1.0 / (1.0 + std::exp(-PriorOf(Loss::kLogistic, 0.24))), 0.24, 1e-12);
  EXPECT_TRUE(std::isfinite(PriorOf(Loss::kLogistic, 0.0)));
  EXPECT_TRUE(std::isfinite(PriorOf(Loss::kLogistic, 1.0)));
}

}  // namespace
}  // namespace embla::train
