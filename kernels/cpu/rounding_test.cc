// Stochastic rounding: unbiased, reproducible, and keyed as promised.
#include <cmath>
#include <cstring>

#include "kernels/cpu/testing/test_rows.h"
#include "kernels/optimizer_step.h"

namespace embla::kernels {
namespace {

struct Key {
  std::uint64_t seed = 1;
  std::uint64_t step = 1;
  std::uint32_t table_id = 1;
  std::int64_t first_row = 0;
  std::uint32_t column_begin = 0;
};

// `rows` x `columns` copies of `value`, each rounded stochastically: w = 1*0 - lr*g with lr = -1.
std::vector<std::uint16_t> Round(KernelSet& kernels, float value, Element element,
                                 std::uint32_t rows, std::uint32_t columns, const Key& key) {
  StepParameters parameters;
  parameters.learning_rate = -1.0f;
  parameters.stochastic = true;
  parameters.seed = key.seed;
  parameters.table_id = key.table_id;
  std::vector<std::uint16_t> weights(rows * columns, 0);
  std::vector<std::uint32_t> slots(rows);
  for (std::uint32_t r = 0; r < rows; ++r) slots[r] = r;
  const std::vector<float> gradients(rows * columns, value);
  kernels.Step(parameters,
               {{weights.data(), columns * 2, columns, element},
                nullptr,
                nullptr,
                key.first_row,
                key.column_begin,
                columns},
               {slots, gradients.data(), columns, nullptr, key.step});
  return weights;
}

class StochasticRoundingConformance : public KernelSetTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, StochasticRoundingConformance, testing::ValuesIn(KernelSets()),
                         KernelSetName);

TEST_P(StochasticRoundingConformance, IsUnbiasedForNormalsSubnormalsAndBothSigns) {
  constexpr std::uint32_t kSide = 512;
  for (const Element element : {Element::kFloat16, Element::kBFloat16}) {
    for (const float value : {1.00031f, -0.7001f, 3.3e-6f, -2.1e-7f, 40000.3f, 1e-3f}) {
      const auto rounded = Round(kernels(), value, element, kSide, kSide, {});
      double sum = 0.0;
      double lowest = INFINITY;
      double highest = -INFINITY;
      for (std::size_t i = 0; i < rounded.size(); ++i) {
        const double v = reference::Decode(rounded.data(), element, i);
        sum += v;
        lowest = std::min(lowest, v);
        highest = std::max(highest, v);
      }
      // Only the two neighbours occur, and the mean is the value: 5 standard deviations, each at
      // most half a quantum / kSide.
      EXPECT_LE(lowest, value);
      EXPECT_GE(highest, value);
      const double quantum = highest - lowest;
      EXPECT_NEAR(sum / (kSide * kSide), value, 2.5 * quantum / kSide + 1e-12) << value;
      const float below = static_cast<float>(lowest);
      EXPECT_EQ(Round(kernels(), below, element, 1, 1, {}),
                Round(kernels(), below, element, 1, 1, {.seed = 9}));
    }
  }
}

TEST_P(StochasticRoundingConformance, RepresentableNumbersAndNonFiniteOnesAreKept) {
  for (const Element element : {Element::kFloat16, Element::kBFloat16}) {
    for (const float value : {0.0f, 1.0f, -2.0f, 0x1p-14f, INFINITY, -INFINITY}) {
      const auto rounded = Round(kernels(), value, element, 8, 33, {});
      for (std::size_t i = 0; i < rounded.size(); ++i) {
        ASSERT_EQ(reference::Decode(rounded.data(), element, i), value);
      }
    }
    const auto nans = Round(kernels(), NAN, element, 8, 33, {});
    for (std::size_t i = 0; i < nans.size(); ++i) {
      ASSERT_TRUE(std::isnan(reference::Decode(nans.data(), element, i)));
    }
  }
}

TEST_P(StochasticRoundingConformance, DependsOnSeedStepTableRowAndColumnOnly) {
  const auto base = Round(kernels(), 1.0003f, Element::kBFloat16, 16, 64, {});
  EXPECT_EQ(base, Round(kernels(), 1.0003f, Element::kBFloat16, 16, 64, {}));
  for (const Key& other : {Key{.seed = 2}, Key{.step = 2}, Key{.table_id = 2}, Key{.first_row = 1},
                           Key{.column_begin = 1}}) {
    EXPECT_NE(base, Round(kernels(), 1.0003f, Element::kBFloat16, 16, 64, other));
  }
  const auto moved = Round(kernels(), 1.0003f, Element::kBFloat16, 15, 64, {.first_row = 1});
  EXPECT_EQ(std::memcmp(moved.data(), base.data() + 64, moved.size() * 2), 0);
}

}  // namespace
}  // namespace embla::kernels
