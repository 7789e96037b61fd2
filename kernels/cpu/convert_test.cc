#include "kernels/convert.h"

#include "kernels/cpu/testing/test_rows.h"

namespace embla::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class ConvertConformance : public KernelSetTest {};
INSTANTIATE_TEST_SUITE_P(Kernels, ConvertConformance, testing::ValuesIn(KernelSets()),
                         KernelSetName);

TEST_P(ConvertConformance, EveryPairOfFormatsEqualsTheReferenceForEveryDim) {
  TestRandom random(1);
  for (const std::uint32_t columns : kTestDims) {
    for (const Element from : kWireElements) {
      for (const Element to : kWireElements) {
        if (from == to) continue;
        const std::size_t in_stride = RowBytes(from, columns) + random.Below(3);
        const std::size_t stride = RowBytes(to, columns) + random.Below(3);
        ShiftedBytes in(6 * in_stride, random.Below(8));
        for (std::size_t r = 0; r < 6; ++r) {
          auto values = random.Values(columns);
          if (r == 3) values[columns / 2] = kNaN;
          reference::EncodeRow(values, from, in.data() + r * in_stride);
        }
        ShiftedBytes got(6 * stride, random.Below(8));
        ShiftedBytes want(6 * stride, 0);
        const Input input{in.data(), in_stride, from};
        kernels().Convert(input, {got.data(), stride, to}, 6, columns);
        reference::Convert(input, {want.data(), stride, to}, 6, columns);
        EXPECT_TRUE(SameRows(got, want, {nullptr, stride, to}, columns))
            << static_cast<int>(from) << " to " << static_cast<int>(to) << " columns " << columns;
      }
    }
  }
}

TEST_P(ConvertConformance, EveryHalfWidensExactlyAndNarrowsBack) {
  for (const Element half : {Element::kFloat16, Element::kBFloat16}) {
    std::vector<std::uint16_t> bits(65536);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(bits.size());
    std::vector<std::uint16_t> back(bits.size());
    kernels().Convert({bits.data(), 0, half}, {wide.data(), 0, Element::kFloat32}, 1, 65536);
    kernels().Convert({wide.data(), 0, Element::kFloat32}, {back.data(), 0, half}, 1, 65536);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float want = reference::Decode(bits.data(), half, i);
      ASSERT_TRUE(wide[i] == want || (std::isnan(wide[i]) && std::isnan(want))) << i;
      ASSERT_TRUE(back[i] == bits[i] || std::isnan(want)) << i;
    }
  }
}

TEST_P(ConvertConformance, NarrowingRoundsAllBitPatternsLikeTheReference) {
  std::vector<float> values;
  TestRandom random(2);
  for (std::uint32_t high = 0; high < 65536; high += 7) {
    for (const std::uint32_t low :
         {0x0000u, 0x0fffu, 0x1000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = high << 16 | low;
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
    }
  }
  const auto columns = static_cast<std::uint32_t>(values.size());
  for (const Element half : {Element::kFloat16, Element::kBFloat16}) {
    ShiftedBytes got(columns * 2, 0);
    ShiftedBytes want(columns * 2, 0);
    kernels().Convert({values.data(), 0, Element::kFloat32}, {got.data(), 0, half}, 1, columns);
    reference::EncodeRow(values, half, want.data());
    EXPECT_TRUE(SameRows(got, want, {nullptr, columns * 2, half}, columns));
  }
}

TEST_P(ConvertConformance, Int8ErrorIsAtMostHalfAStep) {
  TestRandom random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const auto values = random.Values(64);
    ShiftedBytes coded(RowBytes(Element::kInt8Rowwise, 64), 3);
    std::vector<float> back(64);
    kernels().Convert({values.data(), 256, Element::kFloat32},
                      {coded.data(), coded.size(), Element::kInt8Rowwise}, 1, 64);
    kernels().Convert({coded.data(), coded.size(), Element::kInt8Rowwise},
                      {back.data(), 256, Element::kFloat32}, 1, 64);
    const float scale = reference::Decode(coded.data(), Element::kFloat32, 0);
    for (std::size_t c = 0; c < 64; ++c) EXPECT_NEAR(back[c], values[c], 0.501f * scale);
  }
}

TEST_P(ConvertConformance, Int8RowsOfOneValueOrWithoutFiniteRangeAreDefined) {
  const float constant[] = {-2.5f, -2.5f, -2.5f};
  const float wide[] = {3e38f, -3e38f, 0.0f};
  std::byte coded[11];
  float back[3];
  kernels().Convert({constant, 12, Element::kFloat32}, {coded, 11, Element::kInt8Rowwise}, 1, 3);
  kernels().Convert({coded, 11, Element::kInt8Rowwise}, {back, 12, Element::kFloat32}, 1, 3);
  for (const float v : back) EXPECT_EQ(v, -2.5f);
  kernels().Convert({wide, 12, Element::kFloat32}, {coded, 11, Element::kInt8Rowwise}, 1, 3);
  kernels().Convert({coded, 11, Element::kInt8Rowwise}, {back, 12, Element::kFloat32}, 1, 3);
  for (const float v : back) EXPECT_TRUE(std::isnan(v));
}

TEST_P(ConvertConformance, HasNonFiniteFindsOneBadElementAnywhere) {
  if (!kernels().is_on_host()) return;
  for (const Element element : kWireElements) {
    for (const std::uint32_t columns : {1u, 7u, 16u, 65u, 127u}) {
      for (std::uint32_t at = 0; at < columns; ++at) {
        std::vector<float> values(columns, 65504.0f);
        const std::size_t stride = RowBytes(element, columns) + (at % 2);
        ShiftedBytes rows(2 * stride, 1);
        reference::EncodeRow(values, element, rows.data());
        reference::EncodeRow(values, element, rows.data() + stride);
        const Input input{rows.data(), stride, element};
        const bool with_new_stride = at < 2;
        if (with_new_stride) {
          ASSERT_FALSE(kernels().HasNonFinite(input, 2, columns));
        }
        for (const float bad : {kNaN, kInfinity, -kInfinity}) {
          values[at] = bad;
          reference::EncodeRow(values, element, rows.data() + stride);
          ASSERT_TRUE(kernels().HasNonFinite(input, 2, columns));
        }
        if (with_new_stride) {
          ASSERT_FALSE(kernels().HasNonFinite(input, 1, columns));
        }
      }
    }
  }
}

TEST_P(ConvertConformance, NoRowsAndNoColumnsAreFine) {
  kernels().Convert({nullptr, 0, Element::kFloat32}, {nullptr, 0, Element::kInt8Rowwise}, 0, 16);
  if (kernels().is_on_host()) {
    EXPECT_FALSE(kernels().HasNonFinite({nullptr, 64, Element::kFloat32}, 0, 16));
  }
  std::byte header[8];
  kernels().Convert({nullptr, 0, Element::kFloat32}, {header, 8, Element::kInt8Rowwise}, 1, 0);
  EXPECT_EQ(reference::Decode(header, Element::kFloat32, 0), 0.0f);
  EXPECT_EQ(reference::Decode(header, Element::kFloat32, 1), 0.0f);
}

}  // namespace
}  // namespace embla::kernels
