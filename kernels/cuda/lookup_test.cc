// Lookups on the device beyond the CPU's signatures: means, scattered rows, rows by id, steps with
// a size known to the device only, bad arguments.
#include "kernels/cuda/lookup.h"

#include <numeric>

#include "kernels/cpu/testing/test_rows.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/initialize.h"
#include "kernels/cuda/optimizer_step.h"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::kernels::cuda {
namespace {

class CudaLookup : public testing::Test {
 protected:
  void SetUp() override {
    if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

constexpr std::uint32_t kTestRows = 37;

TEST_F(CudaLookup, MeansEqualSumsDividedByTheirLengths) {
  TestRandom random(1);
  for (const std::uint32_t columns : {3u, 16u, 130u}) {
    const TestTable table(random, Element::kFloat16, kTestRows, columns);
    std::vector<std::uint32_t> lengths(60);
    for (auto& length : lengths) length = static_cast<std::uint32_t>(random.Below(6));
    std::vector<std::uint32_t> offsets(lengths.size() + 1);
    std::inclusive_scan(lengths.begin(), lengths.end(), offsets.begin() + 1);
    const auto slots = random.Slots(offsets.back(), kTestRows);
    const Output shape{nullptr, columns * 4, Element::kFloat32};
    ShiftedBytes got(lengths.size() * shape.stride_bytes, 0);
    ShiftedBytes want(got.size(), 0);
    reference::Pool(table.rows(), {slots, lengths, nullptr},
                    {want.data(), shape.stride_bytes, shape.element});
    reference::DivideRows({want.data(), shape.stride_bytes, columns, shape.element}, lengths);
    const OnDevice device_table(table.bytes());
    const OnDevice device_slots(slots);
    const OnDevice device_offsets(offsets);
    const OnDevice out(got.data(), got.size());
    Rows rows = table.rows();
    rows.base = device_table.data();
    DeviceBags bags{device_slots.As<std::uint32_t>(), device_offsets.As<std::uint32_t>(), nullptr,
                    lengths.size(), /*mean=*/true};
    ASSERT_EQ(PoolAsync(rows, bags, {out.data(), shape.stride_bytes, shape.element}, nullptr), 0);
    out.CopyTo(got.data());
    EXPECT_TRUE(SameRows(got, want, shape, columns));
  }
}

TEST_F(CudaLookup, BagsOfRowsAtOddAddressesAreSummedLikeAlignedOnes) {
  TestRandom random(5);
  const std::vector<std::uint32_t> lengths = {2, 0, 1, 5};
  const std::vector<std::uint32_t> offsets = {0, 2, 2, 3, 8};
  for (const Element element : kWeightElements) {
    const TestTable table(random, element, kTestRows, 24);
    const auto slots = random.Slots(offsets.back(), kTestRows);
    Rows rows = table.rows();
    rows.base = table.bytes().data() + 5 * ElementBytes(element);
    rows.columns = 19;
    const Output shape{nullptr, rows.columns * 4, Element::kFloat32};
    ShiftedBytes got(lengths.size() * shape.stride_bytes, 0);
    ShiftedBytes want(got.size(), 0);
    reference::Pool(rows, {slots, lengths, nullptr},
                    {want.data(), shape.stride_bytes, shape.element});
    const OnDevice device_table(table.bytes());
    const OnDevice device_slots(slots);
    const OnDevice device_offsets(offsets);
    const OnDevice out(got.data(), got.size());
    rows.base = device_table.data() + 5 * ElementBytes(element);
    const DeviceBags bags{device_slots.As<std::uint32_t>(), device_offsets.As<std::uint32_t>(),
                          nullptr, lengths.size()};
    ASSERT_EQ(PoolAsync(rows, bags, {out.data(), shape.stride_bytes, shape.element}, nullptr), 0);
    out.CopyTo(got.data());
    EXPECT_TRUE(SameRows(got, want, shape, rows.columns));
  }
}

// Codes move four at a time where columns and addresses allow it, and else one by one.
TEST_F(CudaLookup, QuantizedRowsAreConvertedAtAnyAddress) {
  TestRandom random(6);
  constexpr std::size_t kRows = 21;
  for (const Element element : kWireElements) {
    for (const std::uint32_t columns : {7u, 16u}) {
      for (const std::size_t shift : {0u, 1u}) {
        const std::size_t stride = RowBytes(Element::kInt8Rowwise, columns);
        ShiftedBytes in(kRows * stride, shift);
        for (std::size_t r = 0; r < kRows; ++r) {
          reference::EncodeRow(random.Values(columns), Element::kInt8Rowwise,
                               in.data() + r * stride);
        }
        const Output shape{nullptr, RowBytes(element, columns), element};
        ShiftedBytes got(kRows * shape.stride_bytes, 0);
        ShiftedBytes want(got.size(), 0);
        reference::Convert({in.data(), stride, Element::kInt8Rowwise},
                           {want.data(), shape.stride_bytes, element}, kRows, columns);
        const OnDevice device_in(in.data(), in.size());
        const OnDevice out(got.data(), got.size());
        ASSERT_EQ(ConvertAsync({device_in.data(), stride, Element::kInt8Rowwise},
                               {out.data(), shape.stride_bytes, element}, kRows, columns, nullptr),
                  0);
        out.CopyTo(got.data());
        EXPECT_TRUE(SameRows(got, want, shape, columns)) << columns << " columns, shift " << shift;
      }
    }
  }
}

// So many that a group has several, first four side by side, then, from a longer one on, one by
// one.
TEST_F(CudaLookup, BagsOfAtMostOneRowAreSummedAlsoAmongLongerOnes) {
  TestRandom random(4);
  for (const std::uint32_t columns : {127u, 128u}) {
    const TestTable table(random, Element::kFloat32, kTestRows, columns);
    std::vector<std::uint32_t> lengths(70'000);
    for (auto& length : lengths) {
      length = static_cast<std::uint32_t>(random.Below(random.Below(50) == 0 ? 6 : 2));
    }
    std::vector<std::uint32_t> offsets(lengths.size() + 1);
    std::inclusive_scan(lengths.begin(), lengths.end(), offsets.begin() + 1);
    const auto slots = random.Slots(offsets.back(), kTestRows);
    const auto weights = random.Values(slots.size());
    const Output shape{nullptr, columns * 4, Element::kFloat32};
    ShiftedBytes got(lengths.size() * shape.stride_bytes, 0);
    ShiftedBytes want(got.size(), 0);
    reference::Pool(table.rows(), {slots, lengths, weights.data()},
                    {want.data(), shape.stride_bytes, shape.element});
    const OnDevice device_table(table.bytes());
    const OnDevice device_slots(slots);
    const OnDevice device_offsets(offsets);
    const OnDevice device_weights(weights);
    const OnDevice out(got.data(), got.size());
    Rows rows = table.rows();
    rows.base = device_table.data();
    const DeviceBags bags{device_slots.As<std::uint32_t>(), device_offsets.As<std::uint32_t>(),
                          device_weights.As<float>(), lengths.size()};
    ASSERT_EQ(PoolAsync(rows, bags, {out.data(), shape.stride_bytes, shape.element}, nullptr), 0);
    out.CopyTo(got.data());
    EXPECT_TRUE(SameRows(got, want, shape, columns));
  }
}

TEST_F(CudaLookup, RowsAtOddAddressesAreReadLikeAlignedOnes) {
  TestRandom random(2);
  for (const Element element : kWeightElements) {
    const TestTable table(random, element, kTestRows, 24);
    const OnDevice device_table(table.bytes());
    const std::vector<std::uint32_t> slots = random.Slots(40, kTestRows);
    const OnDevice device_slots(slots);
    for (const std::uint32_t begin : {0u, 4u, 5u, 8u}) {
      Rows rows = table.rows();
      rows.base = table.bytes().data() + begin * ElementBytes(element);
      rows.columns = 24 - begin;
      const Output shape{nullptr, rows.columns * 4, Element::kFloat32};
      ShiftedBytes got(slots.size() * shape.stride_bytes, 0);
      ShiftedBytes want(got.size(), 0);
      reference::Gather(rows, slots, {want.data(), shape.stride_bytes, shape.element});
      rows.base = device_table.data() + begin * ElementBytes(element);
      const OnDevice out(got.data(), got.size());
      ASSERT_EQ(GatherAsync(rows, device_slots.As<std::uint32_t>(), slots.size(),
                            {out.data(), shape.stride_bytes, shape.element}, nullptr),
                0);
      out.CopyTo(got.data());
      EXPECT_TRUE(SameRows(got, want, shape, rows.columns)) << "from column " << begin;
    }
  }
}

TEST_F(CudaLookup, ScatterPutsRowsBackBitByBit) {
  TestRandom random(3);
  for (const Element element : kWeightElements) {
    for (const std::uint32_t columns : {1u, 8u, 33u}) {
      const TestTable source(random, element, kTestRows, columns);
      const std::size_t bytes = RowBytes(element, columns);
      std::vector<std::uint32_t> slots(kTestRows);
      for (std::uint32_t i = 0; i < kTestRows; ++i) slots[i] = i * 5 % kTestRows;
      slots[4] = kNoSlot;
      TestTable target(random, element, kTestRows, columns);
      const TestTable before = target;
      const OnDevice device_source(source.bytes());
      const OnDevice device_target(target.bytes());
      const OnDevice device_slots(slots);
      MutableRows rows = target.mutable_rows();
      rows.base = device_target.data();
      ASSERT_EQ(ScatterAsync(rows, device_slots.As<std::uint32_t>(), slots.size(),
                             {device_source.data(), source.rows().stride_bytes, element}, nullptr),
                0);
      device_target.CopyTo(target.mutable_rows().base);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const std::size_t slot = i == 4 ? 4 * 5 % kTestRows : slots[i];
        const TestTable& want = i == 4 ? before : source;
        const std::size_t row = i == 4 ? slot : i;
        EXPECT_EQ(std::memcmp(target.bytes().data() + slot * rows.stride_bytes,
                              want.bytes().data() + row * rows.stride_bytes, bytes),
                  0);
      }
    }
  }
}

TEST_F(CudaLookup, RowsByIdBeginLikeTheTablesRows) {
  const InitParameters parameters{InitRule::kNormal, 0.5f, 2.0f, 11};
  const std::vector<std::int64_t> ids = {-5, 1'000'000'000'000, 7};
  const std::vector<std::uint32_t> slots = {2, kNoSlot, 0};
  std::vector<float> got(3 * 20, 9.0f);
  const OnDevice device_ids(ids);
  const OnDevice device_slots(slots);
  const OnDevice out(got);
  const InitRows rows{{out.data(), 80, 20, Element::kFloat32}, 0, 4};
  ASSERT_EQ(InitializeIdsAsync(parameters, rows, device_slots.As<std::uint32_t>(),
                               device_ids.As<std::int64_t>(), ids.size(), nullptr),
            0);
  out.CopyTo(got.data());
  std::vector<float> want(20);
  for (const auto& [slot, id] : {std::pair{2u, ids[0]}, {0u, ids[2]}}) {
    reference::Initialize(parameters, {{want.data(), 80, 20, Element::kFloat32}, id, 4}, 0, 1);
    EXPECT_EQ(std::memcmp(&got[slot * 20], want.data(), 80), 0) << "slot " << slot;
  }
  EXPECT_EQ(got[20], 9.0f) << "no row has kNoSlot";
  ASSERT_EQ(InitializeIdsAsync(parameters, rows, nullptr, device_ids.As<std::int64_t>(), ids.size(),
                               nullptr),
            0);
  out.CopyTo(got.data());
  reference::Initialize(parameters, {{want.data(), 80, 20, Element::kFloat32}, ids[1], 4}, 0, 1);
  EXPECT_EQ(std::memcmp(&got[20], want.data(), 80), 0);
}

TEST_F(CudaLookup, AStepTakesItsSizeFromTheDevice) {
  std::vector<float> weights = {1, 1, 1, 1};
  const std::vector<std::uint32_t> slots = {0, 1, 2, 3};
  const std::vector<float> gradients = {1, 1, 1, 1};
  const std::vector<std::uint32_t> count = {2};
  const OnDevice device_weights(weights);
  const OnDevice device_slots(slots);
  const OnDevice device_gradients(gradients);
  const OnDevice device_count(count);
  StepParameters parameters;
  parameters.learning_rate = 0.5f;
  DeviceStepBatch batch{device_slots.As<std::uint32_t>(), 4, device_gradients.As<float>(), 1};
  batch.device_count = device_count.As<std::uint32_t>();
  const StepRows rows{{device_weights.data(), 4, 1, Element::kFloat32}, nullptr, nullptr, 0, 0, 1};
  ASSERT_EQ(StepAsync(parameters, rows, batch, nullptr), 0);
  device_weights.CopyTo(weights.data());
  EXPECT_EQ(weights, (std::vector<float>{0.5f, 0.5f, 1.0f, 1.0f}));
}

TEST_F(CudaLookup, RefusesFormatsItDoesNotDo) {
  const std::uint32_t slot = 0;
  const Rows codes{nullptr, 0, 4, Element::kInt8Rowwise};
  EXPECT_NE(GatherAsync(codes, &slot, 1, {nullptr, 0, Element::kFloat32}, nullptr), 0);
  EXPECT_NE(PoolAsync({}, {}, {nullptr, 0, Element::kFloat16}, nullptr), 0);
  EXPECT_NE(ScatterAsync({}, &slot, 1, {nullptr, 0, Element::kFloat16}, nullptr), 0);
  EXPECT_NE(DivideRowsAsync({nullptr, 0, 4, Element::kFloat16}, &slot, 1, nullptr), 0);
}

}  // namespace
}  // namespace embla::kernels::cuda
