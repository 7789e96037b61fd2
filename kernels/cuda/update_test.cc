// Updates on the device: grouping by slot, sums of duplicates and the fused step, against the
// reference's GroupIds, SumSegments and Step, bit by bit.
#include <numeric>

#include "kernels/cpu/testing/test_rows.h"
#include "kernels/cuda/combine.h"
#include "kernels/cuda/optimizer_step.h"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::kernels::cuda {
namespace {

class CudaUpdate : public testing::Test {
 protected:
  void SetUp() override {
    if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

// A batch's slots: `hot_pct` of the positions share slot 5, some have none.
std::vector<std::uint32_t> SkewedSlots(TestRandom& random, std::size_t count, std::uint32_t limit,
                                       unsigned hot_pct) {
  std::vector<std::uint32_t> slots(count);
  for (auto& slot : slots) {
    slot = static_cast<std::uint32_t>(random.Below(limit));
    if (random.Below(20) == 0) slot = kNoSlot;
    if (random.Below(100) < hot_pct) slot = std::min(5u, limit - 1);
  }
  return slots;
}

// Groups made by the reference, without kNoSlot.
struct WantedGroups {
  explicit WantedGroups(const std::vector<std::uint32_t>& slots) {
    const std::vector<std::int64_t> ids(slots.begin(), slots.end());
    reference::GroupIds(ids, grouping);
    unique.assign(grouping.ids.begin(), grouping.ids.end());
    if (!unique.empty() && unique.back() == kNoSlot) {
      unique.pop_back();
      grouping.ids.pop_back();
      grouping.offsets.pop_back();
      grouping.positions.resize(grouping.offsets.back());
    }
  }
  Grouping grouping;
  std::vector<std::uint32_t> unique;
};

// A batch grouped on the device, with all the memory it needs.
class DeviceGroups {
 public:
  DeviceGroups(const std::vector<std::uint32_t>& slots, std::uint32_t limit)
      : slots_(slots), workspace_(nullptr, Bytes(slots.size())) {
    EXPECT_EQ(GroupAsync(slots_.As<std::uint32_t>(), slots.size(), limit,
                         {workspace_.data(), Bytes(slots.size())}, &grouping_, nullptr),
              0);
  }
  const DeviceGrouping& grouping() const { return grouping_; }

 private:
  static std::size_t Bytes(std::size_t count) {
    std::size_t bytes = 0;
    EXPECT_EQ(GroupBytes(count, &bytes), 0);
    return bytes;
  }
  OnDevice slots_;
  OnDevice workspace_;
  DeviceGrouping grouping_;
};

template <typename T>
std::vector<T> FromDevice(const T* device, std::size_t count) {
  std::vector<T> host(count);
  if (count > 0) CopyToHost(host.data(), device, count * sizeof(T));
  return host;
}

constexpr std::size_t kCounts[] = {0, 1, 2, 31, 32, 33, 255, 256, 257, 300, 1000, 5000};

TEST_F(CudaUpdate, GroupsEqualTheReference) {
  TestRandom random(1);
  for (const std::size_t count : kCounts) {
    for (const std::uint32_t limit : {1u, 2u, 40u, 1u << 20, 0xfffffffeu}) {
      const auto slots = SkewedSlots(random, count, limit, 20);
      const WantedGroups want(slots);
      const DeviceGroups groups(slots, limit);
      const std::size_t kept = want.grouping.positions.size();
      ASSERT_EQ(FromDevice(groups.grouping().positions, kept), want.grouping.positions);
      const auto grouped = FromDevice(groups.grouping().slots, count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(grouped[i], i < kept ? slots[want.grouping.positions[i]] : limit);
      }
    }
  }
}

TEST_F(CudaUpdate, GroupAsyncRefusesTooLittleMemoryAndTooManyRows) {
  const OnDevice slots(nullptr, 400);
  const OnDevice memory(nullptr, 400);
  DeviceGrouping grouping;
  EXPECT_NE(
      GroupAsync(slots.As<std::uint32_t>(), 100, 10, {memory.data(), 400}, &grouping, nullptr), 0);
  EXPECT_NE(
      GroupAsync(slots.As<std::uint32_t>(), 1, kNoSlot, {memory.data(), 400}, &grouping, nullptr),
      0);
}

TEST_F(CudaUpdate, ExpandBagsNumbersTheBagsAndInvertsTheirLengths) {
  TestRandom random(2);
  std::vector<std::uint32_t> lengths = {0, 2, 0, 0, 4, 1000, 0};
  for (int i = 0; i < 300; ++i) lengths.push_back(static_cast<std::uint32_t>(random.Below(5)));
  std::vector<std::uint32_t> offsets(lengths.size() + 1);
  std::inclusive_scan(lengths.begin(), lengths.end(), offsets.begin() + 1);
  std::vector<std::uint32_t> want_bags(offsets.back());
  std::vector<float> want_inverse(offsets.back());
  ExpandBags(lengths, want_bags, want_inverse);
  const OnDevice device_offsets(offsets);
  const OnDevice bags(nullptr, want_bags.size() * 4);
  const OnDevice inverse(nullptr, want_bags.size() * 4);
  for (float* const factors : {static_cast<float*>(nullptr), inverse.As<float>()}) {
    ASSERT_EQ(ExpandBagsAsync(device_offsets.As<std::uint32_t>(), lengths.size(), want_bags.size(),
                              bags.As<std::uint32_t>(), factors, nullptr),
              0);
    EXPECT_EQ(FromDevice(bags.As<std::uint32_t>(), want_bags.size()), want_bags);
  }
  EXPECT_EQ(FromDevice(inverse.As<float>(), want_inverse.size()), want_inverse);
}

// Parameters of one update.
struct UpdateCase {
  StepParameters parameters;
  Element element = Element::kFloat32;
  Element wire = Element::kFloat32;
  std::uint32_t columns = 16;
  std::size_t positions = 1000;
  unsigned hot_pct = 10;
  bool bags = false;               // Gradients per bag, with factors and clipping.
  std::uint32_t misalignment = 0;  // Misalignment of the gradients.
};

std::ostream& operator<<(std::ostream& out, const UpdateCase& c) {
  return out << "rule " << static_cast<int>(c.parameters.rule) << " element "
             << static_cast<int>(c.element) << " wire " << static_cast<int>(c.wire) << " columns "
             << c.columns << " positions " << c.positions << " hot " << c.hot_pct << " bags "
             << c.bags << " misaligned by " << c.misalignment;
}

constexpr std::uint32_t kLimit = 60;

// A table and its state, on the host or, by As(), on the device.
struct Slice {
  Slice(TestRandom& random, const UpdateCase& c)
      : table(random, c.element, kLimit, c.columns),
        row_state(kLimit, 0.25f),
        element_state(kLimit * ElementStateArrays(c.parameters.rule) * c.columns, 0.5f) {}
  StepRows rows(std::uint32_t columns) {
    return {
        table.mutable_rows(), row_state.data(), element_state.data(), 7'000'000'000, 0, columns};
  }
  TestTable table;
  std::vector<float> row_state;
  std::vector<float> element_state;
};

bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
  return SameRow(reinterpret_cast<const std::byte*>(a.data()),
                 reinterpret_cast<const std::byte*>(b.data()), Element::kFloat32, a.size());
}

bool SameSlices(const Slice& got, const Slice& want) {
  const Rows shape = want.table.rows();
  for (std::size_t r = 0; r < kLimit; ++r) {
    const std::size_t at = r * shape.stride_bytes;
    if (!SameRow(got.table.bytes().data() + at, want.table.bytes().data() + at, shape.element,
                 shape.columns)) {
      return false;
    }
  }
  return SameFloats(got.row_state, want.row_state) &&
         SameFloats(got.element_state, want.element_state);
}

struct BatchGradients {
  BatchGradients(TestRandom& random, const UpdateCase& c)
      : row_count(c.bags ? 50 : c.positions),
        row_bytes(RowBytes(c.wire, c.columns)),
        rows(std::max<std::size_t>(row_count * row_bytes, 1), c.misalignment),
        row_of(c.positions),
        factors(random.Values(c.positions)) {
    for (std::size_t r = 0; r < row_count; ++r) {
      reference::EncodeRow(random.Values(c.columns), c.wire, rows.data() + r * row_bytes);
    }
    for (auto& row : row_of) row = static_cast<std::uint32_t>(random.Below(row_count));
  }
  std::size_t row_count;
  std::size_t row_bytes;
  ShiftedBytes rows;
  std::vector<std::uint32_t> row_of;
  std::vector<float> factors;
};

void StepReference(const UpdateCase& c, const std::vector<std::uint32_t>& slots,
                   const BatchGradients& batch, std::uint64_t step, Slice& slice) {
  const WantedGroups groups(slots);
  Gradients gradients{{batch.rows.data(), batch.row_bytes, c.wire}, c.columns, nullptr, nullptr, 0};
  if (c.bags) {
    gradients.row_of = batch.row_of.data();
    gradients.factors = batch.factors.data();
    gradients.clip = 1.5f;
  }
  std::vector<float> sums(groups.unique.size() * c.columns);
  reference::SumSegments(groups.grouping, gradients, 0, groups.unique.size(), sums, c.columns);
  reference::Step(c.parameters, slice.rows(c.columns),
                  {groups.unique, sums.data(), c.columns, nullptr, step});
}

// Calls queue(rows, gradients) over copies of a slice and of gradients on the device, and takes the
// slice back.
template <class Queue>
void StepOnDevice(const UpdateCase& c, const BatchGradients& batch, Slice& slice,
                  const Queue& queue) {
  const OnDevice gradient_rows(batch.rows.data(), batch.row_count * batch.row_bytes);
  const OnDevice row_of(batch.row_of);
  const OnDevice factors(batch.factors);
  const OnDevice weights(slice.table.bytes());
  const OnDevice row_state(slice.row_state);
  const OnDevice element_state(slice.element_state);
  StepRows rows = slice.rows(c.columns);
  rows.weights.base = weights.data();
  rows.row_state = row_state.As<float>();
  rows.element_state = element_state.As<float>();
  DeviceGradients gradients{{gradient_rows.data(), batch.row_bytes, c.wire}, c.columns};
  if (c.bags) {
    gradients.row_of = row_of.As<std::uint32_t>();
    gradients.factors = factors.As<float>();
    gradients.clip = 1.5f;
  }
  queue(rows, gradients);
  weights.CopyTo(slice.table.mutable_rows().base);
  row_state.CopyTo(slice.row_state.data());
  element_state.CopyTo(slice.element_state.data());
}

void StepDevice(const UpdateCase& c, const std::vector<std::uint32_t>& slots,
                const BatchGradients& batch, std::uint64_t step, Slice& slice) {
  const DeviceGroups groups(slots, kLimit);
  const std::size_t bytes = PartialSumsBytes(slots.size(), c.columns);
  const OnDevice partials(nullptr, bytes);
  StepOnDevice(c, batch, slice, [&](const StepRows& rows, const DeviceGradients& gradients) {
    ASSERT_EQ(UpdateAsync(c.parameters, rows, groups.grouping(), gradients, step,
                          {partials.data(), bytes}, nullptr),
              0);
  });
}

void ExpectUpdatedLikeReference(TestRandom& random, const UpdateCase& c) {
  Slice got(random, c);
  Slice want = got;
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const auto slots = SkewedSlots(random, c.positions, kLimit, c.hot_pct);
    const BatchGradients batch(random, c);
    StepReference(c, slots, batch, step, want);
    StepDevice(c, slots, batch, step, got);
  }
  EXPECT_TRUE(SameSlices(got, want)) << c;
}

TEST_F(CudaUpdate, EqualsTheReferenceForEveryRuleFormatAndForm) {
  TestRandom random(3);
  for (const OptimizerKind rule : kOptimizerKinds) {
    for (const Element element : kWeightElements) {
      for (const Element wire : kWireElements) {
        for (const bool bags : {false, true}) {
          UpdateCase c;
          c.parameters.rule = rule;
          c.parameters.l2 = bags ? 0.01f : 0.0f;
          c.parameters.decoupled = bags ? 0.0f : 0.02f;
          c.parameters.stochastic = bags;
          c.parameters.t_is_step = bags;
          c.element = element;
          c.wire = wire;
          c.bags = bags;
          ExpectUpdatedLikeReference(random, c);
        }
      }
    }
  }
}

TEST_F(CudaUpdate, EqualsTheReferenceForEveryDim) {
  TestRandom random(4);
  for (const OptimizerKind rule : kOptimizerKinds) {
    for (const std::uint32_t columns : {1u, 3u, 7u, 8u, 15u, 31u, 64u, 127u, 300u}) {
      UpdateCase c;
      c.parameters.rule = rule;
      c.parameters.l2 = 0.01f;
      c.element = columns % 2 == 0 ? Element::kFloat32 : Element::kBFloat16;
      c.columns = columns;
      c.positions = 400;
      c.misalignment = columns % 8;
      ExpectUpdatedLikeReference(random, c);
    }
  }
}

TEST_F(CudaUpdate, EqualsTheReferenceForEveryBatchSizeAndSkew) {
  TestRandom random(5);
  for (const std::size_t positions : kCounts) {
    for (const unsigned hot_pct : {0u, 50u, 100u}) {
      UpdateCase c;
      c.parameters.rule = OptimizerKind::kRowwiseAdagrad;
      c.columns = 5;
      c.positions = positions;
      c.hot_pct = hot_pct;
      ExpectUpdatedLikeReference(random, c);
    }
  }
}

// Runs of every length around the pieces, at every offset to the windows of sorted positions.
TEST_F(CudaUpdate, LongSegmentsAreSummedInPiecesWhereverTheyBegin) {
  TestRandom random(6);
  for (const std::size_t length : {255u, 256u, 257u, 511u, 512u, 513u, 1025u}) {
    for (const std::size_t before : {0u, 1u, 100u, 255u, 256u, 300u}) {
      std::vector<std::uint32_t> slots(before + 2 * length + 3, 9);
      std::fill_n(slots.begin(), before, 3u);
      std::fill_n(slots.begin() + before, length, 4u);
      UpdateCase c;
      c.columns = 2;
      c.positions = slots.size();
      Slice got(random, c);
      Slice want = got;
      const BatchGradients batch(random, c);
      StepReference(c, slots, batch, 1, want);
      StepDevice(c, slots, batch, 1, got);
      ASSERT_TRUE(SameSlices(got, want)) << length << " positions after " << before;
    }
  }
}

TEST_F(CudaUpdate, TwentyRunsOfAHotBatchAreOne) {
  UpdateCase c;
  c.parameters.rule = OptimizerKind::kAdam;
  c.element = Element::kFloat16;
  c.parameters.stochastic = true;
  c.positions = 3000;
  c.hot_pct = 50;
  TestRandom random(7);
  const auto slots = SkewedSlots(random, c.positions, kLimit, c.hot_pct);
  const BatchGradients batch(random, c);
  const Slice before(random, c);
  Slice want = before;
  StepDevice(c, slots, batch, 1, want);
  for (int run = 1; run < 20; ++run) {
    Slice got = before;
    StepDevice(c, slots, batch, 1, got);
    ASSERT_TRUE(SameSlices(got, want)) << "run " << run;
  }
}

TEST_F(CudaUpdate, OfABatchAsItCameEqualsTheReferenceAndCountsTheRowsTouched) {
  TestRandom random(8);
  const OnDevice touched(std::vector<std::uint64_t>{1'000'000});
  std::uint64_t want_touched = 1'000'000;
  for (const std::size_t positions : kCounts) {
    UpdateCase c;
    c.parameters.rule = OptimizerKind::kAdagrad;
    c.columns = 6;
    c.positions = positions;
    c.bags = positions % 2 == 0;
    const auto slots = SkewedSlots(random, positions, kLimit, 30);
    const BatchGradients batch(random, c);
    Slice got(random, c);
    Slice want = got;
    StepReference(c, slots, batch, 1, want);
    want_touched += WantedGroups(slots).unique.size();
    const OnDevice device_slots(slots);
    std::size_t bytes = 0;
    ASSERT_EQ(UpdateBatchBytes(positions, c.columns, &bytes), 0);
    const OnDevice workspace(nullptr, bytes);
    StepOnDevice(c, batch, got, [&](const StepRows& rows, const DeviceGradients& gradients) {
      const DeviceUpdateBatch update{
          device_slots.As<std::uint32_t>(), positions, kLimit, gradients, 1,
          touched.As<std::uint64_t>()};
      ASSERT_EQ(UpdateBatchAsync(c.parameters, rows, update, {workspace.data(), bytes}, nullptr),
                0);
    });
    ASSERT_TRUE(SameSlices(got, want)) << c;
    ASSERT_EQ(FromDevice(touched.As<std::uint64_t>(), 1)[0], want_touched) << c;
  }
}

TEST_F(CudaUpdate, RefusesWhatItCannotSum) {
  StepParameters rowwise;
  rowwise.rule = OptimizerKind::kRowwiseAdagrad;
  StepRows cut{{nullptr, 16, 4, Element::kFloat32}, nullptr, nullptr, 0, 0, 8};
  DeviceGradients gradients{{nullptr, 16, Element::kFloat32}, 4};
  DeviceGrouping grouping;
  grouping.count = 1000;
  EXPECT_NE(UpdateAsync(rowwise, cut, grouping, gradients, 1, {}, nullptr), 0)
      << "squares of cut rows";
  StepParameters sgd;
  EXPECT_NE(UpdateAsync(sgd, cut, grouping, gradients, 1, {}, nullptr), 0) << "no workspace";
  gradients.columns = 3;
  EXPECT_NE(UpdateAsync(sgd, cut, grouping, gradients, 1, {}, nullptr), 0) << "other columns";
  EXPECT_NE(StepAsync(rowwise, cut, {}, nullptr), 0) << "squares of cut rows";
}

}  // namespace
}  // namespace embla::kernels::cuda
