// Means of copies on the device, against the host's: every format, sizes around the grid's, values
// that are equal in all copies, any copy as the own one.
#include "kernels/cuda/copy_mean.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/convert.h"
#include "kernels/copy_mean.h"
#include "kernels/cpu/testing/test_rows.h"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::kernels::cuda {
namespace {

class CudaCopyMean : public testing::Test {
 protected:
  void SetUp() override {
    if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

// `count` copies of some rows. A third of the values are the same in all of them, and so is the row
// that has NaN and infinities: their distance from others is no number.
std::vector<TestTable> MakeCopies(TestRandom& random, Element element, std::uint32_t rows,
                                  std::uint32_t columns, std::size_t count) {
  std::vector<TestTable> copies;
  for (std::size_t c = 0; c < count; ++c) copies.emplace_back(random, element, rows, columns);
  const std::size_t stride = copies[0].rows().stride_bytes, bytes = ElementBytes(element);
  for (std::size_t value = 0; value < std::size_t{rows} * columns; ++value) {
    if (value / columns != 1 && random.Below(3) != 0) continue;
    const std::size_t at = value / columns * stride + value % columns * bytes;
    for (TestTable& copy : copies) {
      std::memcpy(static_cast<std::byte*>(copy.mutable_rows().base) + at,
                  copies[0].bytes().data() + at, bytes);
    }
  }
  return copies;
}

// All rows of all copies as floats, copy after copy.
std::vector<float> Floats(const std::vector<TestTable>& copies, std::size_t rows) {
  const Rows shape = copies[0].rows();
  std::vector<float> all(copies.size() * rows * shape.columns);
  for (std::size_t c = 0; c < copies.size(); ++c) {
    Convert({copies[c].rows().base, shape.stride_bytes, shape.element},
            {all.data() + c * rows * shape.columns, shape.columns * sizeof(float)}, rows,
            shape.columns);
  }
  return all;
}

void ExpectHostsMeans(TestRandom& random, Element element, std::uint32_t rows,
                      std::uint32_t columns, std::uint32_t count, CopyRule rule) {
  const std::vector<TestTable> tables = MakeCopies(random, element, rows, columns, count);
  const Rows shape = tables[0].rows();
  const std::vector<float> in = Floats(tables, rows);
  std::vector<float> mean(rows * columns);
  const bool largest = rule == CopyRule::kLargest;
  const CopyRow row{largest ? 0 : columns, largest ? columns : 0, columns};
  const Divergence divergence = kernels::MeanOfCopies(in, count, row, mean);
  ShiftedBytes want(rows * shape.stride_bytes, 0);
  Convert({mean.data(), columns * sizeof(float)}, {want.data(), shape.stride_bytes, element}, rows,
          columns);

  std::vector<std::unique_ptr<OnDevice>> on_device;
  CopiesOfRows copies{
      .stride_bytes = shape.stride_bytes, .count = count, .columns = columns, .element = element};
  for (std::uint32_t c = 0; c < count; ++c) {
    on_device.push_back(std::make_unique<OnDevice>(tables[c].bytes()));
    copies.base[c] = on_device.back()->data();
  }
  const Output out_shape{nullptr, shape.stride_bytes, element};
  double max = 0.0, squares = 0.0;
  for (copies.own = 0; copies.own < count; ++copies.own) {
    ShiftedBytes got(want.size(), 0);
    const OnDevice out(got.data(), got.size());
    std::vector<CopyDistance> distances(kCopyDistances, CopyDistance{-1.0, -1.0});
    const OnDevice device_distances(distances);
    ASSERT_EQ(MeanOfCopiesAsync(copies, rows, rule, {out.data(), shape.stride_bytes, element},
                                device_distances.As<CopyDistance>(), nullptr),
              0);
    out.CopyTo(got.data());
    ASSERT_TRUE(SameRows(got, want, out_shape, columns)) << "own " << copies.own;
    device_distances.CopyTo(distances.data());
    for (const CopyDistance& distance : distances) {
      ASSERT_GE(distance.squares, 0.0);
      max = std::max(max, distance.max);
      squares += distance.squares;
    }
  }
  if (largest) return;
  EXPECT_EQ(max, divergence.max);
  EXPECT_NEAR(squares, divergence.squares, 1e-12 * divergence.squares);
}

TEST_F(CudaCopyMean, HasTheBitsOfTheHosts) {
  TestRandom random(11);
  for (const Element element : kWeightElements) {
    for (const std::uint32_t columns : {1u, 7u, 64u}) {
      for (const std::uint32_t count : {1u, 2u, 3u, 8u}) {
        for (const std::uint32_t rows : {1u, 41u}) {
          SCOPED_TRACE(testing::Message() << rows << " rows, " << columns << " columns, " << count
                                          << " copies, element " << static_cast<int>(element));
          ExpectHostsMeans(random, element, rows, columns, count, CopyRule::kMean);
        }
      }
    }
  }
}

TEST_F(CudaCopyMean, OfStepCountsIsTheLargest) {
  TestRandom random(12);
  ExpectHostsMeans(random, Element::kFloat32, 300, 1, 3, CopyRule::kLargest);
}

TEST_F(CudaCopyMean, OfMoreValuesThanAGridHasThreads) {
  TestRandom random(13);
  ExpectHostsMeans(random, Element::kFloat16, 3'000, 16, 2, CopyRule::kMean);
}

TEST_F(CudaCopyMean, OfNothingHasNoDistance) {
  const std::vector<CopyDistance> before(kCopyDistances, CopyDistance{-1.0, -1.0});
  const OnDevice distances(before);
  CopiesOfRows copies{.stride_bytes = 16, .count = 1, .columns = 4};
  copies.base[0] = distances.data();
  ASSERT_EQ(MeanOfCopiesAsync(copies, 0, CopyRule::kMean, {distances.data(), 16},
                              distances.As<CopyDistance>(), nullptr),
            0);
  std::vector<CopyDistance> after(kCopyDistances);
  distances.CopyTo(after.data());
  EXPECT_TRUE(std::ranges::all_of(
      after, [](const CopyDistance& d) { return d.max == 0.0 && d.squares == 0.0; }));
}

TEST_F(CudaCopyMean, RefusesWhatItCannotDo) {
  CopiesOfRows copies{.stride_bytes = 16, .count = 1, .columns = 4};
  const Output out{nullptr, 16, Element::kFloat32};
  const auto run = [&](std::size_t rows, CopyRule rule) {
    return MeanOfCopiesAsync(copies, rows, rule, out, nullptr, nullptr);
  };
  EXPECT_EQ(run(0, CopyRule::kMean), 0);
  EXPECT_NE(run(std::size_t{1} << 29, CopyRule::kMean), 0) << "too many values";
  copies.own = 1;
  EXPECT_NE(run(1, CopyRule::kMean), 0) << "no such copy";
  copies.own = 0;
  copies.element = Element::kFloat16;
  EXPECT_NE(run(1, CopyRule::kMean), 0) << "another format comes out";
  copies.element = Element::kFloat32;
  copies.count = kCopiesMax + 1;
  EXPECT_NE(run(1, CopyRule::kMean), 0) << "too many copies";
}

}  // namespace
}  // namespace embla::kernels::cuda
