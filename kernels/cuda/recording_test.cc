// A lookup and an update that are recorded once (as a CUDA graph, on a GPU) and replayed with other
// contents give the bits of direct launches; and small batches are few launches.
#include "kernels/cuda/testing/recording.h"

#include <numeric>

#include "kernels/cpu/testing/test_rows.h"
#include "kernels/cuda/combine.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/optimizer_step.h"
#include "kernels/cuda/testing/device_memory.h"

namespace embla::kernels::cuda {
namespace {

class CudaRecording : public testing::Test {
 protected:
  void SetUp() override {
    if (DeviceCount() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

constexpr std::uint32_t kRowCount = 60;
constexpr std::uint32_t kColumns = 24;

std::vector<std::byte> BytesOf(const OnDevice& memory, std::size_t bytes) {
  std::vector<std::byte> host(bytes);
  CopyToHost(host.data(), memory.data(), bytes);
  return host;
}

template <typename T>
void Put(const OnDevice& memory, const std::vector<T>& values) {
  CopyToDevice(memory.data(), values.data(), values.size() * sizeof(T));
}

// Bags pooled, and single rows in the wire's format.
class Lookup {
 public:
  static constexpr std::size_t kBags = 20;
  static constexpr std::size_t kSlots = 200;
  static constexpr std::size_t kPooledBytes = kBags * kColumns * sizeof(float);
  static constexpr std::size_t kGatheredBytes = kSlots * kColumns * 2;

  explicit Lookup(const TestTable& table)
      : table_(table.bytes()),
        rows_{table_.data(), table.rows().stride_bytes, kColumns, table.rows().element},
        slots_(nullptr, kSlots * 4),
        offsets_(nullptr, (kBags + 1) * 4),
        pooled_(nullptr, kPooledBytes),
        gathered_(nullptr, kGatheredBytes) {}

  // Draws slots and the lengths of bags, within the room for them.
  void Fill(TestRandom& random) {
    Put(slots_, random.Slots(kSlots, kRowCount));
    std::vector<std::uint32_t> offsets(kBags + 1);
    for (std::size_t b = 1; b <= kBags; ++b) {
      offsets[b] = offsets[b - 1] + static_cast<std::uint32_t>(random.Below(kSlots / kBags + 1));
    }
    Put(offsets_, offsets);
  }

  void Queue(StreamHandle stream) {
    const auto* const slots = slots_.As<std::uint32_t>();
    EXPECT_EQ(PoolAsync(rows_, {slots, offsets_.As<std::uint32_t>(), nullptr, kBags},
                        {pooled_.data(), kColumns * 4, Element::kFloat32}, stream),
              0);
    EXPECT_EQ(GatherAsync(rows_, slots, kSlots, {gathered_.data(), kColumns * 2, Element::kFloat16},
                          stream),
              0);
  }

  // Returns the results, and clears them on the device.
  std::vector<std::byte> Take() {
    std::vector<std::byte> all = BytesOf(pooled_, kPooledBytes);
    const std::vector<std::byte> gathered = BytesOf(gathered_, kGatheredBytes);
    all.insert(all.end(), gathered.begin(), gathered.end());
    Put(pooled_, std::vector<std::byte>(kPooledBytes));
    Put(gathered_, std::vector<std::byte>(kGatheredBytes));
    return all;
  }

 private:
  OnDevice table_;
  Rows rows_;
  OnDevice slots_;
  OnDevice offsets_;
  OnDevice pooled_;
  OnDevice gathered_;
};

TEST_F(CudaRecording, AReplayedLookupReadsTheIdsOfItsTime) {
  TestRandom random(1);
  Lookup lookup(TestTable(random, Element::kBFloat16, kRowCount, kColumns));
  Recording recording([&](StreamHandle stream) { lookup.Queue(stream); });
  for (int round = 0; round < 4; ++round) {
    lookup.Fill(random);
    lookup.Queue(nullptr);
    const std::vector<std::byte> want = lookup.Take();
    recording.Replay();
    EXPECT_EQ(lookup.Take(), want) << "replay " << round;
  }
  EXPECT_EQ(recording.launches(), 2u);
}

// A table with Adam's state under updates of one size, from slots to stepped rows.
class Update {
 public:
  Update(const TestTable& table, std::size_t positions)
      : positions_(positions),
        table_bytes_(table.bytes().size()),
        table_(table.bytes()),
        row_state_(std::vector<float>(kRowCount)),
        element_state_(std::vector<float>(kStateFloats)),
        slots_(nullptr, positions * 4),
        gradients_(nullptr, positions * kColumns * 4),
        partials_(nullptr, PartialSumsBytes(positions, kColumns)) {
    EXPECT_EQ(GroupBytes(positions, &group_bytes_), 0);
    group_ = std::make_unique<OnDevice>(nullptr, group_bytes_);
    rows_.weights = {table_.data(), table.rows().stride_bytes, kColumns, table.rows().element};
    rows_.row_state = row_state_.As<float>();
    rows_.element_state = element_state_.As<float>();
    rows_.dim = kColumns;
    parameters_.rule = OptimizerKind::kAdam;
    parameters_.stochastic = true;
  }

  void Fill(const std::vector<std::uint32_t>& slots, const std::vector<float>& gradients) {
    Put(slots_, slots);
    Put(gradients_, gradients);
  }

  void Queue(std::uint64_t step, StreamHandle stream) {
    DeviceGrouping grouping;
    EXPECT_EQ(GroupAsync(slots_.As<std::uint32_t>(), positions_, kRowCount,
                         {group_->data(), group_bytes_}, &grouping, stream),
              0);
    EXPECT_EQ(UpdateAsync(parameters_, rows_, grouping,
                          {{gradients_.data(), kColumns * 4, Element::kFloat32}, kColumns}, step,
                          {partials_.data(), PartialSumsBytes(positions_, kColumns)}, stream),
              0);
  }

  std::vector<std::byte> Contents() const {
    std::vector<std::byte> all = BytesOf(table_, table_bytes_);
    for (const auto& state : {BytesOf(row_state_, kRowCount * sizeof(float)),
                              BytesOf(element_state_, kStateFloats * sizeof(float))}) {
      all.insert(all.end(), state.begin(), state.end());
    }
    return all;
  }

 private:
  static constexpr std::size_t kStateFloats = 2 * kRowCount * kColumns;

  std::size_t positions_;
  std::size_t table_bytes_;
  std::size_t group_bytes_ = 0;
  OnDevice table_;
  OnDevice row_state_;
  OnDevice element_state_;
  OnDevice slots_;
  OnDevice gradients_;
  OnDevice partials_;
  std::unique_ptr<OnDevice> group_;
  StepRows rows_;
  StepParameters parameters_;
};

// Half of them one slot, so that long segments are cut into pieces.
std::vector<std::uint32_t> SkewedSlots(TestRandom& random, std::size_t count) {
  std::vector<std::uint32_t> slots = random.Slots(count, kRowCount);
  for (std::size_t i = 0; i < count; i += 2) slots[i] = 5;
  return slots;
}

TEST_F(CudaRecording, AReplayedUpdateHasTheBitsOfDirectLaunches) {
  TestRandom random(2);
  const TestTable table(random, Element::kBFloat16, kRowCount, kColumns);
  for (const std::size_t positions : {1u, 200u, 1000u}) {
    Update direct(table, positions);
    Update replayed(table, positions);
    Recording recording([&](StreamHandle stream) { replayed.Queue(1, stream); });
    EXPECT_EQ(replayed.Contents(), direct.Contents()) << "recording does nothing";
    for (std::uint64_t step = 1; step < 6; ++step) {
      // Twice at each step: with what was recorded, then with other contents.
      if (step > 1) {
        recording.RecordAgain([&](StreamHandle stream) { replayed.Queue(step, stream); });
      }
      for (int round = 0; round < 2; ++round) {
        const auto slots = SkewedSlots(random, positions);
        const auto gradients = random.Values(positions * kColumns);
        direct.Fill(slots, gradients);
        replayed.Fill(slots, gradients);
        direct.Queue(step, nullptr);
        recording.Replay();
        ASSERT_EQ(replayed.Contents(), direct.Contents())
            << positions << " positions, step " << step << ", round " << round;
      }
    }
  }
}

// Keys, sort, partial sums of long segments, and the step.
TEST_F(CudaRecording, ASmallUpdateIsFourLaunches) {
  TestRandom random(3);
  const TestTable table(random, Element::kFloat32, kRowCount, kColumns);
  for (const auto& [positions, launches] : {std::pair{200u, 3u}, {257u, 4u}, {4096u, 4u}}) {
    Update update(table, positions);
    const Recording recording([&](StreamHandle stream) { update.Queue(1, stream); });
    EXPECT_LE(recording.launches(), launches) << positions << " positions";
  }
}

}  // namespace
}  // namespace embla::kernels::cuda
