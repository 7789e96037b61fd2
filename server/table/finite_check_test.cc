#include "server/table/finite_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/base/testing/seeds.h"
#include "kernels/convert.h"
#include "server/table/element.h"

namespace embla {
namespace {

using ::embla::testing::TestSeed;

// `count` finite numbers.
std::vector<std::byte> Numbers(DType dtype, std::size_t count, std::mt19937_64& random) {
  std::vector<float> floats(count);
  for (float& value : floats) value = static_cast<float>(random() % 2001) - 1000.0f;
  std::vector<std::byte> bytes(count * ElementBytes(dtype));
  kernels::Convert({floats.data(), count * sizeof(float), kernels::Element::kFloat32},
                   {bytes.data(), bytes.size(), ElementOf(dtype)}, 1,
                   static_cast<std::uint32_t>(count));
  return bytes;
}

// Puts a NaN or an infinity at number `at`.
void Spoil(DType dtype, std::size_t at, std::mt19937_64& random, std::vector<std::byte>& bytes) {
  const float values[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};
  const std::size_t size = ElementBytes(dtype);
  kernels::Convert({&values[random() % 3], sizeof(float), kernels::Element::kFloat32},
                   {bytes.data() + at * size, size, ElementOf(dtype)}, 1, 1);
}

// Has the bytes come in random pieces, which end within numbers too. What has not come yet is NaN.
bool AreFinite(const std::vector<std::byte>& sent, DType dtype, std::mt19937_64& random) {
  std::vector<std::byte> place(sent.size(), std::byte{0xff});
  ArrivingNumbers numbers(place.data(), place.size(), dtype);
  for (std::size_t filled = 0; filled < sent.size();) {
    EXPECT_FALSE(numbers.are_finite());
    const std::size_t count = std::min<std::size_t>(1 + random() % 700, sent.size() - filled);
    std::memcpy(place.data() + filled, sent.data() + filled, count);
    filled += count;
    numbers.Filled(filled);
  }
  return numbers.are_finite();
}

TEST(ArrivingNumbersTest, FindOneBadNumberAnywhere) {
  std::mt19937_64 random(TestSeed());
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (int round = 0; round < 200; ++round) {
      const std::size_t count = random() % 2000;
      std::vector<std::byte> numbers = Numbers(dtype, count, random);
      EXPECT_TRUE(AreFinite(numbers, dtype, random));
      if (count == 0) continue;
      Spoil(dtype, random() % count, random, numbers);
      EXPECT_FALSE(AreFinite(numbers, dtype, random));
    }
  }
}

TEST(ArrivingNumbersTest, SayNothingAboutRowsOfInt8) {
  std::mt19937_64 random(TestSeed());
  EXPECT_FALSE(AreFinite(std::vector<std::byte>(72), DType::kInt8Rowwise, random));
}

}  // namespace
}  // namespace embla
