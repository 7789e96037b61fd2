#include "kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/combine.h"
#include "kernels/cpu/testing/test_rows.h"
#include "kernels/step_scalars.h"

namespace embla::kernels {
namespace {

// A slice's memory for one rule.
struct TestSlice {
  TestSlice(TestRandom& random, OptimizerKind rule, Element element, std::uint32_t slots,
            std::uint32_t columns)
      : weights(random, element, slots, columns),
        row_state(slots, 0.0f),
        element_state(slots * ElementStateArrays(rule) * columns) {
    for (float& v : element_state) v = random.Unit();
  }
  StepRows rows(std::uint32_t dim) {
    return {weights.mutable_rows(), row_state.data(), element_state.data(), 5'000'000'000, 0, dim};
  }
  bool operator==(const TestSlice& other) const {
    const Rows shape = weights.rows();
    for (std::size_t r = 0; r < row_state.size(); ++r) {
      const std::size_t at = r * shape.stride_bytes;
      if (!SameRow(weights.bytes().data() + at, other.weights.bytes().data() + at, shape.element,
                   shape.columns)) {
        return false;
      }
    }
    return Same(row_state, other.row_state) && Same(element_state, other.element_state);
  }
  static bool Same(const std::vector<float>& a, const std::vector<float>& b) {
    return SameRow(reinterpret_cast<const std::byte*>(a.data()),
                   reinterpret_cast<const std::byte*>(b.data()), Element::kFloat32, a.size());
  }

  TestTable weights;
  std::vector<float> row_state;
  std::vector<float> element_state;
};

enum class Decay { kNone, kL2, kDecoupled };

StepParameters Parameters(OptimizerKind rule, Decay decay, bool stochastic) {
  StepParameters p;
  p.rule = rule;
  p.learning_rate = 0.1f;
  p.l2 = decay == Decay::kL2 ? 0.01f : 0.0f;
  p.decoupled = decay == Decay::kDecoupled ? 0.01f : 0.0f;
  p.stochastic = stochastic;
  p.seed = 77;
  p.table_id = 3;
  return p;
}

class StepConformance : public KernelSetTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, StepConformance, testing::ValuesIn(KernelSets()), KernelSetName);

void ExpectLikeReference(KernelSet& kernels, TestRandom& random, const StepParameters& parameters,
                         Element element, std::uint32_t columns) {
  TestSlice got(random, parameters.rule, element, 20, columns);
  TestSlice want = got;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t s = 0; s < 20; ++s) {
      if (random.Below(3) != 0) slots.push_back(s);
    }
    const std::size_t stride = columns + random.Below(3);
    const auto gradients = random.Values(slots.size() * stride);
    const StepBatch batch{slots, gradients.data(), stride, nullptr, step};
    kernels.Step(parameters, got.rows(columns), batch);
    reference::Step(parameters, want.rows(columns), batch);
  }
  EXPECT_TRUE(got == want) << "rule " << static_cast<int>(parameters.rule) << " element "
                           << static_cast<int>(element) << " columns " << columns;
}

TEST_P(StepConformance, EqualsTheReferenceForEveryRuleDimFormatAndDecay) {
  TestRandom random(1);
  for (const OptimizerKind rule : kOptimizerKinds) {
    for (const Decay decay : {Decay::kNone, Decay::kL2, Decay::kDecoupled}) {
      for (const Element element : kWeightElements) {
        for (const std::uint32_t columns : {1u, 3u, 7u, 8u, 15u, 16u, 31u, 64u, 127u}) {
          ExpectLikeReference(kernels(), random, Parameters(rule, decay, false), element, columns);
          ExpectLikeReference(kernels(), random, Parameters(rule, decay, true), element, columns);
        }
      }
    }
    ExpectLikeReference(kernels(), random, Parameters(rule, Decay::kL2, true), Element::kFloat16,
                        1024);
    ExpectLikeReference(kernels(), random, Parameters(rule, Decay::kNone, false), Element::kFloat32,
                        2048);
  }
}

// -0 and +0 are different gradients where the weight is -0.
TEST_P(StepConformance, GradientRowsStepLikeSumsOfOneGradient) {
  constexpr std::uint32_t kSlots = 40;
  for (const OptimizerKind rule : kOptimizerKinds) {
    for (const Decay decay : {Decay::kNone, Decay::kL2, Decay::kDecoupled}) {
      for (const std::uint32_t columns : {1u, 7u, 16u, 31u, 64u}) {
        TestRandom random(columns);
        TestSlice in_place(random, rule, Element::kFloat32, kSlots, columns);
        auto* const first = static_cast<std::byte*>(in_place.weights.mutable_rows().base);
        const std::vector<float> zeros(columns, -0.0f);
        std::memcpy(first, zeros.data(), columns * sizeof(float));
        TestSlice summed = in_place;
        TestSlice want = in_place;
        std::vector<std::int64_t> ids(kSlots);
        std::iota(ids.rbegin(), ids.rend(), std::int64_t{0});
        auto gradients = random.Values(kSlots * columns);
        for (std::size_t i = 0; i < gradients.size(); i += 3) gradients[i] = -0.0f;
        std::fill_n(gradients.end() - columns, columns, -0.0f);  // Gradient of id 0.
        Grouping grouping;
        GroupIds(ids, grouping);
        std::vector<float> sums(gradients.size());
        const Gradients given{.rows = {gradients.data(), columns * sizeof(float)},
                              .columns = columns};
        SumSegments(grouping, given, 0, kSlots, sums, columns);
        std::vector<std::uint32_t> slots(kSlots);
        std::iota(slots.begin(), slots.end(), 0u);
        std::vector<const float*> rows;
        for (const std::uint32_t position : grouping.positions) {
          rows.push_back(&gradients[position * columns]);
        }
        const StepParameters parameters = Parameters(rule, decay, false);
        kernels().Step(parameters, summed.rows(columns), {slots, sums.data(), columns});
        const StepBatch scattered{.slots = slots, .gradient_rows = rows.data()};
        kernels().Step(parameters, in_place.rows(columns), scattered);
        reference::Step(parameters, want.rows(columns), scattered);
        EXPECT_TRUE(in_place == summed) << static_cast<int>(rule) << " columns " << columns;
        EXPECT_TRUE(in_place == want) << static_cast<int>(rule) << " columns " << columns;
      }
    }
  }
}

// Steps columns [begin, end) of 40-column rows on their own; returns their fp32 weights.
std::vector<float> StepColumns(KernelSet& kernels, const StepParameters& parameters,
                               Element element, std::uint32_t begin, std::uint32_t end) {
  constexpr std::uint32_t kDim = 40;
  constexpr std::uint32_t kSlots = 6;
  TestRandom random(2);
  const auto initial = random.Values(kSlots * kDim);
  const std::uint32_t columns = end - begin;
  ShiftedBytes weights(kSlots * columns * 4, 0);
  std::vector<float> row_state(kSlots);
  std::vector<float> element_state(kSlots * columns * ElementStateArrays(parameters.rule));
  const std::size_t stride = columns * ElementBytes(element);
  for (std::size_t s = 0; s < kSlots; ++s) {
    reference::EncodeRow({&initial[s * kDim + begin], columns}, element,
                         weights.data() + s * stride);
  }
  const StepRows rows{{weights.data(), stride, columns, element},
                      row_state.data(),
                      element_state.data(),
                      100,
                      begin,
                      kDim};
  for (std::uint64_t step = 1; step <= 5; ++step) {
    const std::uint32_t slots[] = {0, 2, 3, 5};
    const auto gradients = random.Values(4 * kDim);
    float sum_squares[4];
    reference::RowSumSquares({gradients.data(), kDim * 4, kDim, Element::kFloat32}, sum_squares);
    kernels.Step(parameters, rows, {slots, gradients.data() + begin, kDim, sum_squares, step});
  }
  std::vector<float> result;
  for (std::size_t s = 0; s < kSlots; ++s) {
    for (std::size_t c = 0; c < columns; ++c) {
      result.push_back(reference::Decode(weights.data() + s * stride, element, c));
    }
  }
  return result;
}

TEST_P(StepConformance, AnyColumnCutGivesTheSameWeights) {
  for (const OptimizerKind rule : kOptimizerKinds) {
    for (const Element element : kWeightElements) {
      StepParameters parameters = Parameters(rule, Decay::kDecoupled, true);
      const auto whole = StepColumns(kernels(), parameters, element, 0, 40);
      for (const auto& [begin, end] : {std::pair{0u, 4u}, {4u, 24u}, {24u, 40u}}) {
        const auto part = StepColumns(kernels(), parameters, element, begin, end);
        for (std::size_t s = 0; s < 6; ++s) {
          for (std::size_t c = begin; c < end; ++c) {
            ASSERT_EQ(part[s * (end - begin) + c - begin], whole[s * 40 + c])
                << "rule " << static_cast<int>(rule) << " column " << c;
          }
        }
      }
    }
  }
}

TEST_P(StepConformance, UntouchedRowsAndEmptyBatchesChangeNothing) {
  TestRandom random(3);
  for (const OptimizerKind rule : kOptimizerKinds) {
    TestSlice slice(random, rule, Element::kFloat32, 5, 9);
    const TestSlice before = slice;
    const auto parameters = Parameters(rule, Decay::kDecoupled, false);
    kernels().Step(parameters, slice.rows(9), {{}, nullptr, 9, nullptr, 1});
    EXPECT_TRUE(slice == before);
    const std::uint32_t slots[] = {4};
    const auto gradients = random.Values(9);
    kernels().Step(parameters, slice.rows(9), {slots, gradients.data(), 9, nullptr, 1});
    EXPECT_EQ(std::memcmp(slice.weights.bytes().data(), before.weights.bytes().data(), 4 * 48), 0);
  }
}

TEST(BiasCorrection, IsThatOfTheWholePowerForAnyStep) {
  const auto whole = [](float beta, std::uint64_t t) {
    double power = 1.0;
    for (double base = beta; t != 0; t >>= 1, base *= base) {
      if ((t & 1) != 0) power *= base;
    }
    return static_cast<float>(1.0 - power);
  };
  for (const float beta : {0.0f, 0.1f, 0.5f, 0.9f, 0.99f, 0.999f, 0.99999f, 0x1.fffffep-1f, 1.0f}) {
    for (std::uint64_t t = 0; t < 5000; ++t) {
      ASSERT_EQ(BiasCorrectionOf(beta, t), whole(beta, t)) << beta << " " << t;
    }
    for (std::uint64_t t = 5000; t < std::uint64_t{1} << 40; t = t * 9 / 8 + 1) {
      ASSERT_EQ(BiasCorrectionOf(beta, t), whole(beta, t)) << beta << " " << t;
    }
  }
  EXPECT_EQ(BiasCorrectionOf(0.9f, 1), static_cast<float>(1.0 - double{0.9f}));
  EXPECT_NEAR(BiasCorrectionOf(0.999f, 1000), 1.0 - std::pow(double{0.999f}, 1000), 1e-7);
}

TEST(StepCount, SaturatesWhereFloatStopsCounting) {
  EXPECT_EQ(NextStepCount(0.0f), 1.0f);
  EXPECT_EQ(NextStepCount(16777215.0f), 16777216.0f);
  EXPECT_EQ(NextStepCount(16777216.0f), 16777216.0f);
}

}  // namespace
}  // namespace embla::kernels
