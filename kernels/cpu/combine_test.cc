#include "kernels/combine.h"

#include <algorithm>

#include "kernels/cpu/testing/test_rows.h"

namespace embla::kernels {
namespace {

void ExpectGroupedLikeReference(const std::vector<std::int64_t>& ids, Grouping& got) {
  Grouping want;
  GroupIds(ids, got);
  reference::GroupIds(ids, want);
  ASSERT_EQ(got.ids, want.ids);
  ASSERT_EQ(got.offsets, want.offsets);
  ASSERT_EQ(got.positions, want.positions);
}

TEST(GroupIds, EqualsAStableSortForEverySizeAndRange) {
  TestRandom random(1);
  Grouping grouping;  // Reused: stale memory must not show.
  for (const std::size_t n : {0u, 1u, 2u, 24u, 25u, 100u, 512u, 513u, 5000u, 40000u}) {
    for (const int bits : {0, 1, 7, 8, 9, 10, 11, 12, 22, 31, 32, 33, 45, 63}) {
      std::vector<std::int64_t> ids(n);
      const std::int64_t base = static_cast<std::int64_t>(random.Below(1000)) - 500;
      for (auto& id : ids) {
        id = base + static_cast<std::int64_t>(random.Below(std::uint64_t{1} << bits));
      }
      ExpectGroupedLikeReference(ids, grouping);
    }
  }
}

TEST(GroupIds, TakesTheWholeRangeOfIds) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHighest = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> ids = {5, kHighest, kLowest, -1, 0, kHighest, 5};
  Grouping grouping;
  ExpectGroupedLikeReference(ids, grouping);
  for (int copies = 0; copies < 7; ++copies) ids.insert(ids.end(), ids.begin(), ids.end());
  ExpectGroupedLikeReference(ids, grouping);
}

TEST(GroupIds, AscendingIdsKeepTheirOrder) {
  Grouping grouping;
  ExpectGroupedLikeReference({1, 1, 2, 9, 9, 9}, grouping);
  EXPECT_EQ(grouping.offsets, (std::vector<std::uint32_t>{0, 2, 3, 6}));
}

TEST(ExpandBags, NumbersTheBagsAndInvertsTheirLengths) {
  const std::uint32_t lengths[] = {2, 0, 4};
  std::uint32_t bag_of[6];
  float inverse[6];
  ExpandBags(lengths, bag_of, inverse);
  EXPECT_EQ((std::vector<std::uint32_t>(bag_of, bag_of + 6)),
            (std::vector<std::uint32_t>{0, 0, 2, 2, 2, 2}));
  EXPECT_EQ((std::vector<float>(inverse, inverse + 6)),
            (std::vector<float>{0.5f, 0.5f, 0.25f, 0.25f, 0.25f, 0.25f}));
  ExpandBags(lengths, bag_of, {});
  ExpandBags({}, {}, {});
}

class SumSegmentsConformance : public KernelSetTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, SumSegmentsConformance, testing::ValuesIn(KernelSets()),
                         KernelSetName);

// 900 positions, a third of them the same id: segments of one, two and more than one piece.
Grouping SkewedGrouping(TestRandom& random) {
  std::vector<std::int64_t> ids(900);
  for (auto& id : ids) {
    id = random.Below(3) == 0 ? 7 : static_cast<std::int64_t>(random.Below(1000));
  }
  Grouping grouping;
  GroupIds(ids, grouping);
  return grouping;
}

void ExpectLikeReference(KernelSet& kernels, TestRandom& random, Element wire,
                         std::uint32_t columns, bool bags) {
  const Grouping grouping = SkewedGrouping(random);
  const std::size_t row_bytes = RowBytes(wire, columns) + random.Below(3);
  ShiftedBytes rows(900 * row_bytes, random.Below(8));
  for (std::size_t r = 0; r < 900; ++r) {
    auto values = random.Values(columns);
    if (r == 11) values[columns - 1] = std::numeric_limits<float>::quiet_NaN();
    reference::EncodeRow(values, wire, rows.data() + r * row_bytes);
  }
  std::vector<std::uint32_t> row_of(900);
  for (auto& row : row_of) row = static_cast<std::uint32_t>(random.Below(900));
  const auto factors = random.Values(900);
  Gradients gradients{{rows.data(), row_bytes, wire}, columns, nullptr, nullptr, 0.0f};
  if (bags) {
    gradients.row_of = row_of.data();
    gradients.factors = factors.data();
    gradients.clip = 1.25f;
  }
  const std::size_t first = 2;
  const std::size_t last = grouping.ids.size() - 1;
  const std::size_t stride = columns + 3;
  ShiftedBytes got((last - first) * stride * 4, 0);
  ShiftedBytes want((last - first) * stride * 4, 0);
  const auto floats = [](ShiftedBytes& bytes) {
    return std::span<float>(reinterpret_cast<float*>(bytes.data()), bytes.size() / 4);
  };
  kernels.SumSegments(grouping, gradients, first, last, floats(got), stride);
  reference::SumSegments(grouping, gradients, first, last, floats(want), stride);
  EXPECT_TRUE(SameRows(got, want, {nullptr, stride * 4, Element::kFloat32}, columns))
      << "wire " << static_cast<int>(wire) << " columns " << columns << " bags " << bags;
}

TEST_P(SumSegmentsConformance, EqualsTheReferenceForEveryDimFormatAndForm) {
  TestRandom random(2);
  for (const std::uint32_t columns : {1u, 3u, 7u, 8u, 15u, 16u, 31u, 64u, 127u}) {
    for (const Element wire : kWireElements) {
      ExpectLikeReference(kernels(), random, wire, columns, /*bags=*/false);
      ExpectLikeReference(kernels(), random, wire, columns, /*bags=*/true);
    }
  }
  ExpectLikeReference(kernels(), random, Element::kFloat32, 1024, /*bags=*/true);
  ExpectLikeReference(kernels(), random, Element::kInt8Rowwise, 2048, /*bags=*/false);
}

TEST_P(SumSegmentsConformance, CombiningTwiceChangesNothing) {
  TestRandom random(3);
  const Grouping grouping = SkewedGrouping(random);
  const auto rows = random.Values(900 * 8);
  const Gradients gradients{{rows.data(), 32, Element::kFloat32}, 8, nullptr, nullptr, 0.0f};
  const std::size_t unique = grouping.ids.size();
  std::vector<float> once(unique * 8);
  kernels().SumSegments(grouping, gradients, 0, unique, once, 8);
  Grouping again;
  GroupIds(grouping.ids, again);
  const Gradients sums{{once.data(), 32, Element::kFloat32}, 8, nullptr, nullptr, 0.0f};
  std::vector<float> twice(unique * 8);
  kernels().SumSegments(again, sums, 0, unique, twice, 8);
  EXPECT_EQ(std::memcmp(once.data(), twice.data(), once.size() * 4), 0);
}

TEST_P(SumSegmentsConformance, PiecesOf256AreTheOrderOfAddition) {
  // 1 + 512 * 2^-24 in sequence stays 1, since each addend is half an ulp and ties go to even;
  // the second piece on its own does not lose its addends.
  std::vector<std::int64_t> ids(513, 4);
  std::vector<float> rows(513, 0x1p-24f);
  rows[0] = 1.0f;
  Grouping grouping;
  GroupIds(ids, grouping);
  float sum = 0.0f;
  kernels().SumSegments(grouping, {{rows.data(), 4, Element::kFloat32}, 1, nullptr, nullptr, 0.0f},
                        0, 1, {&sum, 1}, 1);
  EXPECT_EQ(sum, 1.0f + 256 * 0x1p-24f);
}

class RowSumSquaresConformance : public KernelSetTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, RowSumSquaresConformance, testing::ValuesIn(KernelSets()),
                         KernelSetName);

TEST_P(RowSumSquaresConformance, EqualsTheReferenceForEveryDim) {
  if (!kernels().is_on_host()) return;
  TestRandom random(4);
  for (const std::uint32_t columns : kTestDims) {
    const TestTable table(random, Element::kFloat32, 9, columns);
    std::vector<float> got(9);
    std::vector<float> want(9);
    kernels().RowSumSquares(table.rows(), got);
    reference::RowSumSquares(table.rows(), want);
    for (std::size_t r = 0; r < 9; ++r) {
      EXPECT_TRUE(got[r] == want[r] || (std::isnan(got[r]) && std::isnan(want[r])))
          << "columns " << columns << " row " << r << ": " << got[r] << " and " << want[r];
    }
  }
}

}  // namespace
}  // namespace embla::kernels
