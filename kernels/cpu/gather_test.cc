#include "kernels/cpu/testing/test_rows.h"
#include "kernels/lookup.h"

namespace embla::kernels {
namespace {

constexpr std::uint32_t kTestRows = 37;

class GatherConformance : public KernelSetTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, GatherConformance, testing::ValuesIn(KernelSets()),
                         KernelSetName);

void ExpectLikeReference(KernelSet& kernels, TestRandom& random, Element element, Element wire,
                         std::uint32_t columns) {
  const TestTable table(random, element, kTestRows, columns);
  const auto slots = random.Slots(53, kTestRows);
  const std::size_t stride = RowBytes(wire, columns) + random.Below(4);
  ShiftedBytes got(slots.size() * stride, random.Below(8));
  ShiftedBytes want(slots.size() * stride, 0);
  kernels.Gather(table.rows(), slots, {got.data(), stride, wire});
  reference::Gather(table.rows(), slots, {want.data(), stride, wire});
  EXPECT_TRUE(SameRows(got, want, {nullptr, stride, wire}, columns))
      << "element " << static_cast<int>(element) << " wire " << static_cast<int>(wire)
      << " columns " << columns;
}

TEST_P(GatherConformance, EqualsTheReferenceForEveryDimAndFormat) {
  TestRandom random(1);
  for (const std::uint32_t columns : kTestDims) {
    for (const Element element : kWeightElements) {
      for (const Element wire : kWireElements) {
        ExpectLikeReference(kernels(), random, element, wire, columns);
      }
    }
  }
}

TEST_P(GatherConformance, PrefetchDistanceDoesNotChangeTheResult) {
  TestRandom random(2);
  const TestTable table(random, Element::kFloat32, kTestRows, 16);
  const auto slots = random.Slots(100, kTestRows);
  ShiftedBytes want(slots.size() * 64, 0);
  reference::Gather(table.rows(), slots, {want.data(), 64, Element::kFloat32});
  for (const std::uint32_t distance : {0u, 1u, 99u, 100u, 1000u}) {
    ShiftedBytes got(slots.size() * 64, 0);
    kernels().Gather(table.rows(), slots, {got.data(), 64, Element::kFloat32}, {distance});
    EXPECT_TRUE(SameRows(got, want, {nullptr, 64, Element::kFloat32}, 16)) << distance;
  }
}

TEST_P(GatherConformance, NoSlotsWriteNothing) {
  TestRandom random(3);
  const TestTable table(random, Element::kFloat32, kTestRows, 16);
  kernels().Gather(table.rows(), {}, {nullptr, 64, Element::kFloat32});
}

TEST_P(GatherConformance, AColumnRangeIsAShiftedBase) {
  TestRandom random(4);
  const TestTable table(random, Element::kBFloat16, kTestRows, 64);
  Rows part = table.rows();
  part.base = table.bytes().data() + 12 * ElementBytes(Element::kBFloat16);
  part.columns = 20;
  const std::uint32_t slot = 5;
  float got[20];
  kernels().Gather(part, {&slot, 1}, {got, sizeof(got), Element::kFloat32});
  for (std::size_t c = 0; c < 20; ++c) {
    const auto* const row = table.bytes().data() + slot * table.rows().stride_bytes;
    EXPECT_EQ(got[c], reference::Decode(row, Element::kBFloat16, 12 + c));
  }
}

}  // namespace
}  // namespace embla::kernels
