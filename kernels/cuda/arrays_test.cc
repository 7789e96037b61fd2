// Arrays of floats on the device, against plain loops on the host: sizes around the grid's, any
// number of inputs, sums into one of them.
#include "kernels/cuda/arrays.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cpu/testing/test_rows.h"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::kernels::cuda {
namespace {

class CudaArrays : public testing::Test {
 protected:
  void SetUp() override {
    if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

constexpr std::size_t kFloatCounts[] = {1, 3, 4, 5, 63, 257, 1000, 4099};
constexpr float kUntouched = -7.0f;

// Floats on the device, `shift` floats behind a multiple of 64 bytes, with a float on both sides
// that no verb may touch.
class GuardedFloats {
 public:
  GuardedFloats(const std::vector<float>& values, std::size_t shift)
      : shift_(shift), count_(values.size()), memory_(Guarded(values, shift)) {}

  float* data() const { return memory_.As<float>() + 1 + shift_; }
  std::vector<float> Values() const {
    const std::vector<float> all = All();
    return {all.begin() + 1 + static_cast<std::ptrdiff_t>(shift_), all.end() - 1};
  }
  bool guards_are_whole() const {
    const std::vector<float> all = All();
    return all[shift_] == kUntouched && all.back() == kUntouched;
  }

 private:
  static std::vector<float> Guarded(const std::vector<float>& values, std::size_t shift) {
    std::vector<float> all(1 + shift, kUntouched);
    all.insert(all.end(), values.begin(), values.end());
    all.push_back(kUntouched);
    return all;
  }
  std::vector<float> All() const {
    std::vector<float> all(count_ + shift_ + 2);
    CopyToHost(all.data(), memory_.data(), all.size() * sizeof(float));
    return all;
  }

  std::size_t shift_;
  std::size_t count_;
  OnDevice memory_;
};

std::vector<float> SumInOrder(const std::vector<std::vector<float>>& inputs) {
  std::vector<float> sum = inputs[0];
  for (std::size_t r = 1; r < inputs.size(); ++r) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + inputs[r][i];
  }
  return sum;
}

bool SameArrays(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         SameRow(reinterpret_cast<const std::byte*>(a.data()),
                 reinterpret_cast<const std::byte*>(b.data()), Element::kFloat32, a.size());
}

TEST_F(CudaArrays, FillWritesEveryFloatAndNoOther) {
  for (const std::size_t count : kFloatCounts) {
    for (const std::size_t shift : {0u, 1u, 2u, 3u}) {
      const GuardedFloats array(std::vector<float>(count, 1.0f), shift);
      ASSERT_EQ(FillAsync(array.data(), count, -0.0f, nullptr), 0);
      ASSERT_TRUE(SameArrays(array.Values(), std::vector<float>(count, -0.0f)))
          << count << " floats, shifted by " << shift;
      ASSERT_TRUE(array.guards_are_whole()) << count << " floats, shifted by " << shift;
    }
  }
  EXPECT_EQ(FillAsync(nullptr, 0, 1.0f, nullptr), 0);
}

TEST_F(CudaArrays, SumInOrderHasTheBitsOfAdditionsFromTheLeft) {
  TestRandom random(1);
  for (const std::size_t count : kFloatCounts) {
    for (const std::size_t input_count : {std::size_t{1}, std::size_t{2}, std::size_t{5},
                                          count < 64 ? kSumInputsMax : std::size_t{9}}) {
      // All inputs are aligned alike, or none is like another one.
      for (const std::size_t apart : {0u, 1u}) {
        std::vector<std::vector<float>> inputs;
        std::vector<std::unique_ptr<GuardedFloats>> on_device;
        std::vector<const float*> pointers;
        for (std::size_t r = 0; r < input_count; ++r) {
          inputs.push_back(random.Values(count));
          on_device.push_back(std::make_unique<GuardedFloats>(inputs.back(), 3 + apart * r));
          pointers.push_back(on_device.back()->data());
        }
        const std::vector<float> want = SumInOrder(inputs);
        const GuardedFloats out(std::vector<float>(count), 3);
        SCOPED_TRACE(testing::Message()
                     << count << " floats, " << input_count << " inputs, " << apart << " apart");
        ASSERT_EQ(SumInOrderAsync(pointers.data(), input_count, count, out.data(), nullptr), 0);
        ASSERT_TRUE(SameArrays(out.Values(), want));
        ASSERT_TRUE(out.guards_are_whole());
        // Into the last input.
        const GuardedFloats& last = *on_device.back();
        ASSERT_EQ(SumInOrderAsync(pointers.data(), input_count, count, last.data(), nullptr), 0);
        ASSERT_TRUE(SameArrays(last.Values(), want));
        ASSERT_TRUE(last.guards_are_whole());
      }
    }
  }
}

TEST_F(CudaArrays, SumInOrderRefusesNoInputsAndTooMany) {
  const std::vector<const float*> none(kSumInputsMax + 1, nullptr);
  EXPECT_NE(SumInOrderAsync(none.data(), 0, 1, nullptr, nullptr), 0);
  EXPECT_NE(SumInOrderAsync(none.data(), none.size(), 1, nullptr, nullptr), 0);
  EXPECT_EQ(SumInOrderAsync(none.data(), 1, 0, nullptr, nullptr), 0);
}

}  // namespace
}  // namespace embla::kernels::cuda
