#include <numeric>

#include "kernels/cpu/testing/test_rows.h"
#include "kernels/lookup.h"

namespace embla::kernels {
namespace {

constexpr std::uint32_t kPooledRows = 37;

class PoolConformance : public KernelSetTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, PoolConformance, testing::ValuesIn(KernelSets()), KernelSetName);

// Bags of 0 to 9 ids, and one of 700.
std::vector<std::uint32_t> Lengths(TestRandom& random) {
  std::vector<std::uint32_t> lengths(20);
  for (std::uint32_t& length : lengths) length = static_cast<std::uint32_t>(random.Below(10));
  lengths.push_back(700);
  return lengths;
}

void ExpectPoolsLikeReference(KernelSet& kernels, TestRandom& random, Element element,
                              std::uint32_t columns, bool weighted) {
  const TestTable table(random, element, kPooledRows, columns);
  const auto lengths = Lengths(random);
  const auto slots =
      random.Slots(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), kPooledRows);
  const auto weights = random.Values(slots.size());
  const Bags bags{slots, lengths, weighted ? weights.data() : nullptr};
  const std::size_t stride = columns * 4 + random.Below(9);
  ShiftedBytes got(lengths.size() * stride, random.Below(8));
  ShiftedBytes want(lengths.size() * stride, 0);
  kernels.Pool(table.rows(), bags, {got.data(), stride, Element::kFloat32});
  reference::Pool(table.rows(), bags, {want.data(), stride, Element::kFloat32});
  EXPECT_TRUE(SameRows(got, want, {nullptr, stride, Element::kFloat32}, columns))
      << "element " << static_cast<int>(element) << " columns " << columns;
}

TEST_P(PoolConformance, EqualsTheReferenceForEveryDimAndFormat) {
  TestRandom random(1);
  for (const std::uint32_t columns : kTestDims) {
    for (const Element element : kWeightElements) {
      ExpectPoolsLikeReference(kernels(), random, element, columns, /*weighted=*/false);
      ExpectPoolsLikeReference(kernels(), random, element, columns, /*weighted=*/true);
    }
  }
}

TEST_P(PoolConformance, EmptyBagsAreZerosAndNoBagsWriteNothing) {
  TestRandom random(2);
  const TestTable table(random, Element::kFloat32, kPooledRows, 3);
  const std::uint32_t lengths[] = {0, 0};
  float out[] = {7, 7, 7, 7, 7, 7};
  kernels().Pool(table.rows(), {{}, lengths, nullptr}, {out, 12, Element::kFloat32});
  for (const float v : out) EXPECT_EQ(v, 0.0f);
  kernels().Pool(table.rows(), {}, {nullptr, 12, Element::kFloat32});
}

TEST_P(PoolConformance, NoSlotAddsNothingEvenWithANanWeight) {
  const float row[] = {1.0f, 2.0f};
  const std::uint32_t slots[] = {0, kNoSlot, 0};
  const std::uint32_t lengths[] = {3};
  const float weights[] = {1.0f, std::numeric_limits<float>::quiet_NaN(), 0.5f};
  float out[2];
  kernels().Pool({row, 8, 2, Element::kFloat32}, {slots, lengths, weights},
                 {out, 8, Element::kFloat32});
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], 3.0f);
}

TEST_P(PoolConformance, DivideRowsMakesMeans) {
  TestRandom random(3);
  for (const std::uint32_t columns : kTestDims) {
    const std::uint32_t lengths[] = {1, 0, 3, 7, 1000};
    TestTable got(random, Element::kFloat32, 5, columns);
    ShiftedBytes want(got.bytes().size(), 0);
    std::memcpy(want.data(), got.bytes().data(), want.size());
    MutableRows expected = got.mutable_rows();
    expected.base = want.data();
    kernels().DivideRows(got.mutable_rows(), lengths);
    reference::DivideRows(expected, lengths);
    for (std::size_t r = 0; r < 5; ++r) {
      const std::size_t at = r * expected.stride_bytes;
      EXPECT_TRUE(SameRow(got.bytes().data() + at, want.data() + at, Element::kFloat32, columns));
    }
  }
}

}  // namespace
}  // namespace embla::kernels
