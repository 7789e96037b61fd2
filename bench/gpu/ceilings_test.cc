// The ceilings do what their bytes say: on the device, or emulated.
#include "bench/gpu/ceilings.h"

#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::bench {
namespace {

using kernels::cuda::OnDevice;

class GpuCeilingsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kernels::cuda::DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

std::vector<std::uint32_t> Numbers(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<std::uint32_t>(i * 2654435761u);
  return numbers;
}

TEST_F(GpuCeilingsTest, CopiesEveryUnitAndNoMore) {
  for (const std::size_t bytes : {16u, 48u, 16'000u, 100'000u}) {
    const std::vector<std::uint32_t> from = Numbers(bytes / 4 + 4);
    std::vector<std::uint32_t> to(from.size());
    const OnDevice device_from(from);
    const OnDevice device_to(to);
    ASSERT_EQ(CopyAsync(device_from.data(), device_to.data(), bytes, nullptr), 0);
    device_to.CopyTo(to.data());
    EXPECT_EQ(std::memcmp(to.data(), from.data(), bytes), 0);
    EXPECT_EQ(to.back(), 0u);
  }
}

TEST_F(GpuCeilingsTest, ReadsAndIncrementsWholeRows) {
  constexpr std::uint32_t kRows = 300;
  for (const std::size_t row_bytes : {16u, 48u, 64u, 512u, 1040u}) {
    const std::size_t words = row_bytes / 4;
    const std::vector<std::uint32_t> table = Numbers(kRows * words);
    std::vector<std::uint32_t> slots;
    for (std::uint32_t s = 0; s < kRows; s += 7) slots.push_back(kRows - 1 - s);
    std::uint32_t want = 0;
    std::vector<std::uint32_t> incremented = table;
    for (const std::uint32_t slot : slots) {
      for (std::size_t w = 0; w < words; ++w) {
        want ^= table[slot * words + w];
        ++incremented[slot * words + w];
      }
    }
    const OnDevice device_table(table);
    const OnDevice device_slots(slots);
    std::vector<std::uint32_t> sums(kXorOutputs);
    const OnDevice device_sums(sums);
    const DeviceRowArray rows{device_table.data(), row_bytes};
    ASSERT_EQ(XorRowsAsync(rows, device_slots.As<std::uint32_t>(), slots.size(),
                           device_sums.As<std::uint32_t>(), nullptr),
              0);
    device_sums.CopyTo(sums.data());
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0u, std::bit_xor<>()), want) << row_bytes;
    ASSERT_EQ(IncrementRowsAsync(rows, device_slots.As<std::uint32_t>(), slots.size(), nullptr), 0);
    std::vector<std::uint32_t> got(table.size());
    kernels::cuda::CopyToHost(got.data(), device_table.data(), got.size() * 4);
    EXPECT_EQ(got, incremented) << row_bytes;
  }
}

}  // namespace
}  // namespace embla::bench
