#include "tools/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "tools/train/generator.h"
#include "tools/train/random.h"

namespace embla::train {
namespace {

using ::embla::testing::IsOk;

double AucByPairs(const std::vector<float>& scores, const std::vector<float>& labels) {
  double wins = 0.0;
  double pairs = 0.0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] != 1.0f || labels[j] != 0.0f) continue;
      pairs += 1.0;
      wins += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
    }
  }
  return wins / pairs;
}

TEST(AreaUnderCurve, EqualsTheShareOfPairsWithTiesAsHalves) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<float> scores;
    std::vector<float> labels = {0.0f, 1.0f};
    while (labels.size() < 100) labels.push_back(random.Below(3) == 0 ? 1.0f : 0.0f);
    while (scores.size() < 100) scores.push_back(static_cast<float>(random.Below(1 + seed)));
    EXPECT_NEAR(AreaUnderCurve(scores, labels).value(), AucByPairs(scores, labels), 1e-12);
  }
}

TEST(AreaUnderCurve, HasNoValueWithoutBothLabelsOrWithNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(AreaUnderCurve({}, {}).has_value());
  EXPECT_FALSE(AreaUnderCurve(std::vector{1.0f, 2.0f}, std::vector{1.0f, 1.0f}).has_value());
  EXPECT_FALSE(AreaUnderCurve(std::vector{1.0f, nan}, std::vector{1.0f, 0.0f}).has_value());
}

TEST(LogLoss, IsTheMeanOfTheLosses) {
  const std::vector<float> scores = {0.0f, 0.0f};
  const std::vector<float> labels = {1.0f, 0.0f};
  EXPECT_NEAR(LogLoss(scores, labels).value(), std::log(2.0), 1e-12);
  EXPECT_FALSE(LogLoss({}, {}).has_value());
}

TEST(RootMeanSquaredError, IsTheRootOfTheMeanSquare) {
  const std::vector<float> scores = {1.0f, 2.0f};
  const std::vector<float> labels = {4.0f, 6.0f};
  EXPECT_NEAR(RootMeanSquaredError(scores, labels).value(), std::sqrt(12.5), 1e-12);
  EXPECT_FALSE(RootMeanSquaredError({}, {}).has_value());
}

TEST(GeneratorRead, GivesTheSameExamplesInPiecesAndAfterARestart) {
  GeneratorOptions options;
  options.examples = 100;
  Generator generator(options);
  Examples whole;
  Examples pieces;
  ASSERT_THAT(generator.Read(1000, whole), IsOk());
  ASSERT_THAT(generator.Restart(), IsOk());
  for (int i = 0; i < 40; ++i) ASSERT_THAT(generator.Read(3, pieces), IsOk());
  EXPECT_EQ(whole.size(), 100u);
  EXPECT_EQ(pieces.rows, whole.rows);
  EXPECT_EQ(pieces.labels, whole.labels);
  EXPECT_EQ(pieces.planted_scores, whole.planted_scores);
}

TEST(GeneratorRead, ContinuesOneTruthInAnotherRange) {
  GeneratorOptions options;
  options.examples = 20;
  Examples both;
  ASSERT_THAT(Generator(options).Read(20, both), IsOk());
  options.examples = options.first_example = 10;
  Examples second;
  ASSERT_THAT(Generator(options).Read(20, second), IsOk());
  EXPECT_EQ(second.rows, std::vector(both.rows.begin() + 80, both.rows.end()));
  EXPECT_EQ(second.labels, std::vector(both.labels.begin() + 10, both.labels.end()));
}

TEST(GeneratorRead, PlantedScoresRankTheirOwnLabelsWell) {
  GeneratorOptions options;
  options.examples = 20000;
  Examples examples;
  ASSERT_THAT(Generator(options).Read(options.examples, examples), IsOk());
  const Quality quality = QualityOf(Loss::kLogistic, examples.planted_scores, examples.labels);
  EXPECT_GT(quality.auc.value(), 0.8);
  EXPECT_LT(quality.auc.value(), 0.95);
  options.loss = Loss::kSquared;
  examples.Clear();
  ASSERT_THAT(Generator(options).Read(options.examples, examples), IsOk());
  const Quality ratings = QualityOf(Loss::kSquared, examples.planted_scores, examples.labels);
  EXPECT_NEAR(ratings.rmse.value(), 0.5, 0.01);
}

}  // namespace
}  // namespace embla::train
