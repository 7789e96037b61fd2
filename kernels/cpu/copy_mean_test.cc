#include "kernels/copy_mean.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::kernels {
namespace {

using testing::ElementsAre;

TEST(MeanOfCopies, AddsCopiesInOrderAndTakesTheLargestCount) {
  // Two weights, a step count, one value of state.
  const CopyRow row{.weights = 2, .counters = 1, .floats = 4};
  const std::vector<float> in = {1, 2, 3, 4, /*second copy*/ 3, 2, 7, 5};
  std::vector<float> mean(4);
  const Divergence divergence = MeanOfCopies(in, 2, row, mean);
  EXPECT_THAT(mean, ElementsAre(2, 2, 7, 4.5f));
  EXPECT_EQ(divergence.values, 4u);
  EXPECT_EQ(divergence.max, 1.0);
  EXPECT_EQ(divergence.squares, 2.0);
  EXPECT_EQ(divergence.rms(), std::sqrt(0.5));
}

TEST(MeanOfCopies, KeepsTheBitsOfEqualValuesForAnyNumberOfCopies) {
  std::mt19937 random(17);
  std::vector<float> values = {0.0f,
                               -0.0f,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  while (values.size() < 2000) values.push_back(std::bit_cast<float>(std::uint32_t(random())));
  for (const std::size_t copies : {1, 2, 3, 5, 6, 7, 64}) {
    std::vector<float> in;
    for (std::size_t c = 0; c < copies; ++c) in.insert(in.end(), values.begin(), values.end());
    // The first value differs, so that the row is not merely copied.
    in[0] = 8.0f;
    std::vector<float> mean(values.size());
    const CopyRow row{.weights = values.size(), .counters = 0, .floats = values.size()};
    const Divergence divergence = MeanOfCopies(in, copies, row, mean);
    EXPECT_EQ(std::memcmp(mean.data() + 1, values.data() + 1, (values.size() - 1) * 4), 0)
        << copies;
    EXPECT_EQ(divergence.max > 0.0, copies > 1);
  }
}

TEST(MeanOfCopies, IsWithinRoundingOfTheExactMean) {
  std::mt19937 random(18);
  std::normal_distribution<float> normal;
  for (const std::size_t copies : {2, 3, 4, 7}) {
    const CopyRow row{.weights = 8, .counters = 0, .floats = 8};
    std::vector<float> in(copies * 80);
    for (float& value : in) value = normal(random);
    std::vector<float> mean(80);
    Divergence divergence = MeanOfCopies(in, copies, row, mean);
    double squares = 0.0;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      double sum = 0.0, magnitude = 0.0;
      for (std::size_t c = 0; c < copies; ++c) {
        sum += in[c * mean.size() + i];
        magnitude += std::abs(in[c * mean.size() + i]);
      }
      EXPECT_NEAR(mean[i], sum / copies, magnitude * 0x1p-23);
      for (std::size_t c = 0; c < copies; ++c) {
        squares += std::pow(in[c * mean.size() + i] - sum / copies, 2);
      }
    }
    EXPECT_NEAR(divergence.squares, squares, squares * 1e-6);
    EXPECT_EQ(divergence.values, copies * 80);
    Divergence twice = divergence;
    twice.Add(divergence);
    EXPECT_DOUBLE_EQ(twice.rms(), divergence.rms());
  }
}

}  // namespace
}  // namespace embla::kernels
