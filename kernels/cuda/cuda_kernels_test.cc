#include <cuda_runtime.h>

#include <numeric>

#include "kernels/cpu/testing/target_test.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/optimizer_step.h"

namespace embla::kernels::cuda {
namespace {

// Device memory with a copy of `bytes`.
class OnDevice {
 public:
  explicit OnDevice(std::span<const std::byte> bytes) : size_(bytes.size()) {
    EXPECT_EQ(cudaMalloc(&data_, size_ + 1), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), size_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  template <typename T>
  explicit OnDevice(const std::vector<T>& values)
      : OnDevice(std::as_bytes(std::span<const T>(values))) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  template <typename T = void>
  T* As() const {
    return static_cast<T*>(data_);
  }
  // Waits for the device.
  void CopyTo(std::byte* host) const {
    EXPECT_EQ(cudaMemcpy(host, data_, size_, cudaMemcpyDeviceToHost), cudaSuccess);
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

constexpr std::uint32_t kTestRows = 37;

TEST_F(CudaKernels, GatherEqualsTheReference) {
  TestRandom random(1);
  for (const std::uint32_t columns : kTestDims) {
    for (const Element element : kWeightElements) {
      for (const Element wire : kWeightElements) {
        const TestTable table(random, element, kTestRows, columns);
        const auto slots = random.Slots(53, kTestRows);
        const std::size_t stride = RowBytes(wire, columns);
        ShiftedBytes got(slots.size() * stride, 0);
        ShiftedBytes want(slots.size() * stride, 0);
        const OnDevice device_table(table.bytes());
        const OnDevice device_slots(slots);
        const OnDevice device_out(std::span<const std::byte>(got.data(), got.size()));
        Rows rows = table.rows();
        rows.base = device_table.As();
        ASSERT_EQ(GatherAsync(rows, device_slots.As<std::uint32_t>(), slots.size(),
                              {device_out.As(), stride, wire}, nullptr),
                  0);
        device_out.CopyTo(got.data());
        reference::Gather(table.rows(), slots, {want.data(), stride, wire});
        EXPECT_TRUE(SameRows(got, want, {nullptr, stride, wire}, columns)) << columns;
      }
    }
  }
}

TEST_F(CudaKernels, PoolEqualsTheReference) {
  TestRandom random(2);
  for (const std::uint32_t columns : kTestDims) {
    for (const Element element : kWeightElements) {
      const TestTable table(random, element, kTestRows, columns);
      std::vector<std::uint32_t> lengths(20);
      for (auto& length : lengths) length = static_cast<std::uint32_t>(random.Below(10));
      lengths.push_back(700);
      std::vector<std::uint32_t> offsets(lengths.size() + 1);
      std::inclusive_scan(lengths.begin(), lengths.end(), offsets.begin() + 1);
      const auto slots = random.Slots(offsets.back(), kTestRows);
      const auto weights = random.Values(slots.size());
      ShiftedBytes got(lengths.size() * columns * 4, 0);
      ShiftedBytes want(lengths.size() * columns * 4, 0);
      const OnDevice device_table(table.bytes());
      const OnDevice device_slots(slots);
      const OnDevice device_offsets(offsets);
      const OnDevice device_weights(weights);
      const OnDevice device_out(std::span<const std::byte>(got.data(), got.size()));
      Rows rows = table.rows();
      rows.base = device_table.As();
      const DeviceBags bags{device_slots.As<std::uint32_t>(), device_offsets.As<std::uint32_t>(),
                            device_weights.As<float>(), lengths.size()};
      ASSERT_EQ(PoolAsync(rows, bags, {device_out.As(), columns * 4, Element::kFloat32}, nullptr),
                0);
      device_out.CopyTo(got.data());
      reference::Pool(table.rows(), {slots, lengths, weights.data()},
                      {want.data(), columns * 4, Element::kFloat32});
      EXPECT_TRUE(SameRows(got, want, {nullptr, columns * 4, Element::kFloat32}, columns))
          << columns;
    }
  }
}

void ExpectStepsLikeReference(TestRandom& random, const StepParameters& parameters, Element element,
                              std::uint32_t columns) {
  TestTable want(random, element, kTestRows, columns);
  std::vector<float> want_state(kTestRows, 0.5f);
  const OnDevice got(want.bytes());
  const OnDevice got_state(want_state);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const std::vector<std::uint32_t> slots = {0, 1, 5, 20, 36};
    const auto gradients = random.Values(slots.size() * columns);
    const OnDevice device_slots(slots);
    const OnDevice device_gradients(gradients);
    StepRows rows{want.mutable_rows(), want_state.data(), nullptr, 1'000'000'000'000, 4, columns};
    reference::Step(parameters, rows, {slots, gradients.data(), columns, nullptr, step});
    rows.weights.base = got.As();
    rows.row_state = got_state.As<float>();
    ASSERT_EQ(StepAsync(parameters, rows,
                        {device_slots.As<std::uint32_t>(), slots.size(),
                         device_gradients.As<float>(), columns, nullptr, step},
                        nullptr),
              0);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ShiftedBytes weights(want.bytes().size(), 0);
  got.CopyTo(weights.data());
  for (std::size_t r = 0; r < kTestRows; ++r) {
    const std::size_t at = r * want.rows().stride_bytes;
    ASSERT_TRUE(SameRow(weights.data() + at, want.bytes().data() + at, element, columns))
        << "row " << r << " columns " << columns;
  }
  std::vector<float> state(kTestRows);
  got_state.CopyTo(reinterpret_cast<std::byte*>(state.data()));
  EXPECT_TRUE(SameRow(reinterpret_cast<const std::byte*>(state.data()),
                      reinterpret_cast<const std::byte*>(want_state.data()), Element::kFloat32,
                      kTestRows));
}

TEST_F(CudaKernels, StepsEqualTheReference) {
  TestRandom random(3);
  for (const StepRule rule : {StepRule::kSgd, StepRule::kRowwiseAdagrad}) {
    for (const bool stochastic : {false, true}) {
      for (const std::uint32_t columns : kTestDims) {
        for (const Element element : kWeightElements) {
          StepParameters parameters;
          parameters.rule = rule;
          parameters.l2 = stochastic ? 0.01f : 0.0f;
          parameters.decoupled = stochastic ? 0.0f : 0.01f;
          parameters.stochastic = stochastic;
          parameters.seed = 5;
          ExpectStepsLikeReference(random, parameters, element, columns);
        }
      }
    }
  }
}

TEST_F(CudaKernels, RefuseWhatTheyDoNotDo) {
  StepParameters adam;
  adam.rule = StepRule::kAdam;
  EXPECT_EQ(StepAsync(adam, {}, {}, nullptr), cudaErrorInvalidValue);
  const std::uint32_t slot = 0;
  EXPECT_EQ(GatherAsync({}, &slot, 1, {nullptr, 0, Element::kInt8Rowwise}, nullptr),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace embla::kernels::cuda
