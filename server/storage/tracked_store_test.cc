#include "server/storage/tracked_store.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/storage/device_row_store.h"
#include "server/storage/host_row_store.h"
#include "server/storage/row_store_conformance.h"
#include "server/storage/tiered_row_store.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using Fault = gpu::SimulatedFault;

constexpr DirtyReader kReader = DirtyReader::kSnapshots;

enum class Kind { kHost, kDevice, kTiered };

struct Memory {
  Memory() {
    auto made = DeviceLanes::Create(device, nullptr, 1024);
    EXPECT_THAT(made, IsOk());
    lanes = *std::move(made);
  }
  std::unique_ptr<RowStore> Make(Kind kind, const TableSpec& spec, const Slice& slice) {
    if (kind == Kind::kHost) return Made(HostRowStore::Create(spec, slice, host, pool));
    if (kind == Kind::kDevice) return Made(DeviceRowStore::Create(spec, slice, gpu, *lanes));
    const auto policy = RowCache::Policy::kLru;
    return Made(TieredRowStore::Create(spec, slice, {host, gpu, pool, *lanes, 30, policy}));
  }
  template <typename Store>
  static std::unique_ptr<RowStore> Made(absl::StatusOr<std::unique_ptr<Store>> store) {
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }

  gpu::SimulatedDevice device;
  MemoryBudget host{std::size_t{1} << 30};
  MemoryBudget gpu{std::size_t{1} << 30};
  ThreadPool pool{1};
  std::unique_ptr<DeviceLanes> lanes;
};

template <Kind kKind>
struct TrackedFactory : Memory {
  std::unique_ptr<RowStore> Make(const TableSpec& spec, const Slice& slice) {
    auto store = std::make_unique<TrackedStore>(Memory::Make(kKind, spec, slice));
    store->dirty_rows()->Watch(kReader);
    return store;
  }
};

using Factories = ::testing::Types<TrackedFactory<Kind::kHost>, TrackedFactory<Kind::kDevice>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tracked, RowStoreConformance, Factories);

std::string Text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The names that `pattern` has in its group, wherever it matches `text`.
std::set<std::string> Names(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    names.insert((*at)[1]);
  }
  return names;
}

// The compiler does not ask for the virtual functions that RowStore itself defines.
TEST(TrackedStore, OverridesEveryVirtualFunction) {
  const auto virtuals = Names(Text("server/storage/row_store.h"), R"(virtual [^;{}~]*?(\w+)\()");
  const auto overrides = Names(Text("server/storage/tracked_store.h"),
                               R"((\w+)\([^(){};]*\)\s+(?:const\s+)?override)");
  EXPECT_TRUE(virtuals.contains("SumsGradients"));
  EXPECT_EQ(overrides, virtuals);
}

TEST(TrackedStore, AnswersAsItsStoreDoesAndCountsItsBits) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  Memory memory;
  for (const Kind kind : {Kind::kHost, Kind::kDevice}) {
    const auto plain = memory.Make(kind, spec, WholeTable(spec));
    EXPECT_EQ(plain->dirty_rows(), nullptr);
    TrackedStore tracked(memory.Make(kind, spec, WholeTable(spec)));
    EXPECT_EQ(tracked.SumsGradients(1500), plain->SumsGradients(1500));
    EXPECT_EQ(tracked.piece_bytes(), plain->piece_bytes());
    EXPECT_EQ(tracked.memory_bytes(), plain->memory_bytes());
    tracked.dirty_rows()->Watch(kReader);
    EXPECT_EQ(tracked.memory_bytes(), plain->memory_bytes() + 15 * 8);
  }
}

TEST(TrackedStoreErrors, RowsOfAStepThatFailsAreDirty) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  Memory memory;
  TrackedStore store(memory.Make(Kind::kDevice, spec, WholeTable(spec)));
  std::vector<std::uint32_t> dirty;
  store.dirty_rows()->Take(kReader, 0, 900, dirty);
  dirty.clear();
  const std::vector<std::uint32_t> slots = {3, 70};
  const std::vector<float> gradients(2 * 24, 1.0f);
  memory.device.Inject({Fault::At::kQueue, Fault::Kind::kRefused, 0});
  ASSERT_THAT(store.Step({.slots = slots, .gradients = gradients, .stride = 24, .step = 1}),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  store.dirty_rows()->Take(kReader, 0, 900, dirty);
  EXPECT_THAT(dirty, ElementsAre(3, 70));
}

TEST(TrackedStore, RowsThatBecomeTheMeanOfCopiesAreDirtyAndThoseOfOthersAreNot) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kAdam, DType::kFloat16);
  Memory memory;
  TrackedStore own(memory.Make(Kind::kDevice, spec, WholeTable(spec)));
  TrackedStore other(memory.Make(Kind::kDevice, spec, WholeTable(spec)));
  std::vector<std::uint32_t> dirty;
  for (TrackedStore* const store : {&own, &other}) {
    store->dirty_rows()->Take(kReader, 0, 900, dirty);
  }
  const std::vector<kernels::StepRows> copies = {*own.ShowRows(3), *other.ShowRows(3)};
  const RowCopies rows{.copies = copies, .own = 0, .first = 40, .count = 3};
  EXPECT_EQ(own.FindMeans(rows)->values, 3u * spec.dim);
  EXPECT_EQ(own.dirty_rows()->CountDirty(kReader), 0u);
  ASSERT_THAT(own.TakeMeans(rows), IsOk());
  dirty.clear();
  own.dirty_rows()->Take(kReader, 0, 900, dirty);
  EXPECT_THAT(dirty, ElementsAre(40, 41, 42));
  EXPECT_EQ(other.dirty_rows()->CountDirty(kReader), 0u);
}

// Random changes of a store, with the slots that each may touch.
class RandomChanges {
 public:
  RandomChanges(RowStore& store, const TableSpec& spec, std::uint32_t seed)
      : store_(store), spec_(spec), random_(seed) {}

  // Makes one change, and returns the slots that it may touch.
  std::set<std::uint32_t> Next() {
    switch (random_() % 5) {
      case 0:
        return Step();
      case 1:
        return store_.SumsGradients(1500) ? Update() : Step();
      case 2:
        return Write();
      case 3:
        return ResetRun();
      default:
        return ResetTo();
    }
  }

 private:
  std::vector<std::uint32_t> Some() {
    std::set<std::uint32_t> slots;
    for (std::size_t i = random_() % 40; i > 0; --i) slots.insert(random_() % store_.slots());
    return {slots.begin(), slots.end()};
  }
  std::set<std::uint32_t> Step() {
    const std::vector<std::uint32_t> slots = Some();
    std::normal_distribution<float> normal;
    std::vector<float> gradients(slots.size() * spec_.dim);
    for (float& g : gradients) g = normal(random_);
    std::vector<float> sums(slots.size());
    kernels::RowSumSquares(
        {gradients.data(), spec_.dim * sizeof(float), spec_.dim, kernels::Element::kFloat32}, sums);
    EXPECT_THAT(store_.Step({slots, gradients, spec_.dim, sums, ++step_}), IsOk());
    return {slots.begin(), slots.end()};
  }
  std::set<std::uint32_t> Update() {
    const RandomGradients batch(spec_, kernels::Element::kFloat32, /*in_bags=*/false, 1500,
                                random_());
    std::vector<std::uint32_t> slots = batch.slots;
    // Few of the slots, so that others stay clean.
    for (auto& slot : slots) slot = slot % 8 == 0 ? slot : kernels::kNoSlot;
    EXPECT_THAT(store_.ReserveUpdate(slots.size(), batch.gradients, batch.gradient_rows), IsOk());
    EXPECT_THAT(store_.Update({.slots = slots,
                               .gradients = batch.gradients,
                               .gradient_rows = batch.gradient_rows,
                               .step = ++step_}),
                IsOk());
    std::set<std::uint32_t> touched(slots.begin(), slots.end());
    touched.erase(kernels::kNoSlot);
    return touched;
  }
  std::set<std::uint32_t> Write() {
    std::vector<std::uint32_t> slots = Some();
    std::shuffle(slots.begin(), slots.end(), random_);
    const std::uint32_t begin = random_() % spec_.dim;
    const ColumnRange columns{begin,
                              begin + 1 + static_cast<std::uint32_t>(random_() % (24 - begin))};
    StoredRows rows = Read(store_, slots, columns);
    for (std::byte& b : rows.weights) b ^= std::byte{1};
    EXPECT_THAT(store_.WriteRows(slots, columns, {rows.weights, rows.state}), IsOk());
    return {slots.begin(), slots.end()};
  }
  std::set<std::uint32_t> ResetRun() {
    const std::uint32_t first = random_() % store_.slots();
    const auto count =
        std::min(static_cast<std::uint32_t>(random_() % 100), store_.slots() - first);
    EXPECT_THAT(store_.ResetRows(first, count), IsOk());
    std::set<std::uint32_t> slots;
    for (std::uint32_t i = 0; i < count; ++i) slots.insert(first + i);
    return slots;
  }
  std::set<std::uint32_t> ResetTo() {
    const std::vector<std::uint32_t> slots = Some();
    std::vector<RowId> ids(slots.size());
    for (RowId& id : ids) id = RowId{static_cast<std::int64_t>(random_())};
    EXPECT_THAT(store_.ResetRowsTo(slots, ids), IsOk());
    return {slots.begin(), slots.end()};
  }

  RowStore& store_;
  const TableSpec& spec_;
  std::mt19937 random_;
  std::uint64_t step_ = 0;
};

// Slots whose bytes differ.
std::vector<std::uint32_t> Changed(const StoredRows& before, const StoredRows& after,
                                   std::uint32_t slots) {
  const auto differ = [slots](const auto& a, const auto& b, std::uint32_t slot) {
    const std::size_t size = a.size() / slots;
    return size > 0 && std::memcmp(&a[slot * size], &b[slot * size], size * sizeof(a.front())) != 0;
  };
  std::vector<std::uint32_t> changed;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    if (differ(before.weights, after.weights, slot) || differ(before.state, after.state, slot)) {
      changed.push_back(slot);
    }
  }
  return changed;
}

// Makes some changes between two takes: rows that have changed are taken, and none that no change
// may touch.
void Compare(Kind kind, std::uint32_t seed) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed << " kind " << static_cast<int>(kind));
  std::mt19937 random(seed);
  const auto optimizer = std::begin(kOptimizerKinds)[random() % std::size(kOptimizerKinds)];
  const TableSpec spec =
      ConformanceSpec(optimizer, random() % 2 == 0 ? DType::kFloat32 : DType::kBFloat16);
  Memory memory;
  TrackedStore store(memory.Make(kind, spec, WholeTable(spec)));
  RandomChanges changes(store, spec, random());
  std::vector<std::uint32_t> dirty;
  store.dirty_rows()->Take(kReader, 0, store.slots(), dirty);
  ASSERT_EQ(dirty.size(), store.slots());
  StoredRows before = ReadAll(store);
  for (int take = 0; take < 20; ++take) {
    std::set<std::uint32_t> touched;
    for (std::size_t i = random() % 3; i > 0; --i) touched.merge(changes.Next());
    const StoredRows after = ReadAll(store);
    dirty.clear();
    store.dirty_rows()->Take(kReader, 0, store.slots(), dirty);
    const auto changed = Changed(before, after, store.slots());
    ASSERT_TRUE(std::ranges::includes(dirty, changed));
    ASSERT_TRUE(std::ranges::includes(touched, dirty));
    before = after;
  }
}

TEST(TrackedStore, RowsThatChangedAreDirtyAndOthersAreNot) {
  for (const std::uint32_t seed : testing::TestSeeds(20)) {
    for (const Kind kind : {Kind::kHost, Kind::kDevice, Kind::kTiered}) {
      Compare(kind, seed);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace embla
