// The contract of every RowStore. Instantiate with a factory type:
//   struct Factory { std::unique_ptr<RowStore> Make(const TableSpec& spec, const Slice& slice); };
// One that is of no use on this machine says why: std::string WhyMissing(); its tests are skipped.
// One whose stores are on a GPU has their DeviceLanes as `lanes`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/plan/plan.h"
#include "core/plan/table_spec.h"
#include "gtest/gtest.h"
#include "kernels/combine.h"
#include "kernels/convert.h"
#include "kernels/row_kernels.h"
#include "server/gpu/memory.h"
#include "server/storage/row_store.h"

namespace embla {

inline TableSpec ConformanceSpec(OptimizerKind kind, DType dtype) {
  TableSpec spec;
  spec.id = TableId{3};
  spec.name = "conformance";
  spec.rows = 900;
  spec.dim = 24;
  spec.dtype = dtype;
  spec.seed = 11;
  spec.rounding = Rounding::kStochastic;
  spec.optimizer.kind = kind;
  spec.optimizer.learning_rate = 0.1f;
  spec.optimizer.initial_accumulator = 0.25f;
  spec.SetDefaults();
  return spec;
}

inline Slice WholeTable(const TableSpec& spec) { return {0, spec.rows, 0, spec.dim, {}}; }

struct StoredRows {
  std::vector<std::byte> weights;
  std::vector<float> state;
  bool operator==(const StoredRows&) const = default;
};

inline StoredRows Read(const RowStore& store, std::span<const std::uint32_t> slots,
                       ColumnRange columns) {
  StoredRows rows;
  rows.weights.resize(slots.size() * RowBytes(store.dtype(), columns.size()));
  rows.state.resize(slots.size() * store.StateFloats(columns.size()));
  EXPECT_THAT(store.ReadRows(slots, columns, {rows.weights, rows.state}), testing::IsOk());
  return rows;
}

inline StoredRows ReadAll(const RowStore& store) {
  std::vector<std::uint32_t> slots(store.slots());
  std::iota(slots.begin(), slots.end(), 0u);
  return Read(store, slots, store.columns());
}

// A few steps on random rows of the table, cut to what `store` holds.
inline void Train(RowStore& store, const TableSpec& spec, std::int64_t row_begin,
                  std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    std::vector<std::uint32_t> slots;
    std::vector<float> gradients;
    for (std::int64_t row = 0; row < spec.rows; ++row) {
      if (random() % 3 != 0) continue;
      std::vector<float> gradient(spec.dim);
      for (float& g : gradient) g = normal(random);
      if (row < row_begin || row >= row_begin + store.slots()) continue;
      slots.push_back(static_cast<std::uint32_t>(row - row_begin));
      gradients.insert(gradients.end(), gradient.begin(), gradient.end());
    }
    std::vector<float> sums(slots.size());
    kernels::RowSumSquares(
        {gradients.data(), spec.dim * sizeof(float), spec.dim, kernels::Element::kFloat32}, sums);
    const auto of_slice =
        std::span<const float>(gradients).subspan(gradients.empty() ? 0 : store.columns().begin);
    ASSERT_THAT(store.Step({slots, of_slice, spec.dim, sums, step}), testing::IsOk());
  }
}

template <typename Factory>
class RowStoreConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    if constexpr (requires(Factory factory) { factory.WhyMissing(); }) {
      if (!factory_.WhyMissing().empty()) GTEST_SKIP() << factory_.WhyMissing();
    }
  }
  std::unique_ptr<RowStore> Make(const TableSpec& spec) {
    return factory_.Make(spec, WholeTable(spec));
  }
  std::unique_ptr<RowStore> Make(const TableSpec& spec, const Slice& slice) {
    return factory_.Make(spec, slice);
  }
  // Memory that copies to and from the store's GPU reach. Null: it has none.
  std::shared_ptr<std::byte> Pin(std::size_t bytes) {
    if constexpr (requires(Factory factory) { factory.lanes; }) {
      auto pinned = factory_.lanes->device().AllocatePinned(bytes);
      EXPECT_THAT(pinned, testing::IsOk());
      const auto memory = std::make_shared<gpu::PinnedMemory>(*std::move(pinned));
      return {memory, memory->data()};
    }
    return nullptr;
  }
  // How many positions a batch may have that a store sums: many, fewer where it does not take many,
  // or 0.
  std::size_t PositionsSummed(const TableSpec& spec) {
    const auto store = Make(spec);
    for (const std::size_t positions : {1600, 800}) {
      if (store->SumsGradients(positions)) return positions;
    }
    return 0;
  }
  // Calls test(spec) for every optimizer and format.
  template <typename Test>
  void ForEverySpec(const Test& test) {
    for (const auto kind : kOptimizerKinds) {
      for (const auto dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        SCOPED_TRACE(::testing::Message() << "optimizer " << static_cast<int>(kind) << " dtype "
                                          << static_cast<int>(dtype));
        test(ConformanceSpec(kind, dtype));
      }
    }
  }

 private:
  Factory factory_;
};
TYPED_TEST_SUITE_P(RowStoreConformance);

TYPED_TEST_P(RowStoreConformance, ReportsItsShape) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kAdam, DType::kBFloat16);
  const auto store = this->Make(spec, {100, 350, 8, 20, {}});
  EXPECT_EQ(store->slots(), 250u);
  EXPECT_EQ(store->columns(), (ColumnRange{8, 20}));
  EXPECT_EQ(store->dtype(), DType::kBFloat16);
  EXPECT_EQ(store->StateFloats(12), 1u + 2 * 12);
  EXPECT_GE(store->memory_bytes(), 250u * (12 * 2 + 25 * 4));
}

TYPED_TEST_P(RowStoreConformance, AnyCutHasTheRowsOfTheWholeAtCreationAndAfterTraining) {
  this->ForEverySpec([&](const TableSpec& spec) {
    const auto whole = this->Make(spec);
    std::vector<std::pair<Slice, std::unique_ptr<RowStore>>> parts;
    for (const Slice& slice : {Slice{0, 500, 0, 8, {}}, Slice{500, 900, 0, 8, {}},
                               Slice{0, 40, 8, 24, {}}, Slice{40, 900, 8, 24, {}}}) {
      parts.emplace_back(slice, this->Make(spec, slice));
    }
    for (const bool trained : {false, true}) {
      if (trained) {
        Train(*whole, spec, 0, 5);
        for (auto& [slice, store] : parts) Train(*store, spec, slice.row_begin, 5);
      }
      for (const auto& [slice, store] : parts) {
        std::vector<std::uint32_t> slots(store->slots());
        std::iota(slots.begin(), slots.end(), static_cast<std::uint32_t>(slice.row_begin));
        ASSERT_EQ(ReadAll(*store), Read(*whole, slots, store->columns())) << "trained " << trained;
      }
    }
  });
}

TYPED_TEST_P(RowStoreConformance, GatherGivesTheStoredWeightsInEveryWireFormat) {
  this->ForEverySpec([&](const TableSpec& spec) {
    const auto store = this->Make(spec);
    const std::uint32_t slots[] = {7, 899, kernels::kNoSlot, 7, 0};
    const ColumnRange columns{4, 17};
    const std::uint32_t stored_slots[] = {7, 899, 7, 0};
    const StoredRows stored = Read(*store, stored_slots, columns);
    for (const auto wire : {kernels::Element::kFloat32, kernels::Element::kFloat16,
                            kernels::Element::kBFloat16, kernels::Element::kInt8Rowwise}) {
      const std::size_t bytes = kernels::RowBytes(wire, columns.size());
      std::vector<std::byte> got(5 * bytes, std::byte{0xee});
      std::vector<std::byte> want(5 * bytes, std::byte{0});
      ASSERT_THAT(store->Gather(slots, columns, {got.data(), bytes, wire}), testing::IsOk());
      const kernels::Rows source{stored.weights.data(), RowBytes(spec.dtype, columns.size()),
                                 columns.size(), static_cast<kernels::Element>(spec.dtype)};
      const std::uint32_t order[] = {0, 1, kernels::kNoSlot, 2, 3};
      kernels::Gather(source, order, {want.data(), bytes, wire});
      EXPECT_EQ(got, want);
    }
  });
}

TYPED_TEST_P(RowStoreConformance, PoolSumsBagsOfAnyLength) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  const auto store = this->Make(spec);
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> lengths(300);
  for (auto& length : lengths) length = random() % 40;
  lengths[7] = 3000;
  std::vector<std::uint32_t> slots(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
  for (auto& slot : slots) slot = random() % 900;
  std::vector<float> weights(slots.size());
  for (auto& weight : weights) weight = static_cast<float>(random() % 7);
  const StoredRows stored = ReadAll(*store);
  for (const float* w : {static_cast<const float*>(nullptr), std::as_const(weights).data()}) {
    std::vector<float> got(lengths.size() * 24);
    std::vector<float> want(lengths.size() * 24);
    const kernels::Bags bags{slots, lengths, w};
    ASSERT_THAT(store->Pool(bags, {0, 24}, {got.data(), 96, kernels::Element::kFloat32}),
                testing::IsOk());
    kernels::Pool({stored.weights.data(), 96, 24, kernels::Element::kFloat32}, bags,
                  {want.data(), 96, kernels::Element::kFloat32});
    EXPECT_EQ(got, want);
  }
}

// Means over bags of which other slices have some rows, too; rows that lie apart, or in memory that
// copies reach.
TYPED_TEST_P(RowStoreConformance, PoolsToEveryWireFormatAsItsSumsAreConverted) {
  using kernels::Element;
  const TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kBFloat16);
  const auto store = this->Make(spec);
  if (!store->PoolsToWire(800)) return;
  std::mt19937_64 random(2);
  std::vector<std::uint32_t> lengths(800), divisors;
  for (auto& length : lengths) length = random() % 8;
  lengths[9] = 1500;
  for (const auto length : lengths) divisors.push_back(length + random() % 3);
  std::vector<std::uint32_t> slots(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
  for (auto& slot : slots) slot = random() % 900;
  const kernels::Bags bags{slots, lengths, nullptr};
  const std::size_t count = lengths.size();
  for (const ColumnRange columns : {ColumnRange{0, 24}, ColumnRange{5, 12}}) {
    const std::size_t sum_bytes = columns.size() * sizeof(float);
    for (const bool divides : {false, true}) {
      std::vector<float> sums(count * columns.size());
      ASSERT_THAT(store->Pool(bags, columns, {sums.data(), sum_bytes, Element::kFloat32}),
                  testing::IsOk());
      if (divides) kernels::DivideRows({sums.data(), sum_bytes, columns.size()}, divisors);
      for (const Element wire :
           {Element::kFloat32, Element::kFloat16, Element::kBFloat16, Element::kInt8Rowwise}) {
        for (const std::size_t apart : {0, 4}) {
          const std::size_t stride = kernels::RowBytes(wire, columns.size()) + apart;
          std::vector<std::byte> want(count * stride), got(count * stride);
          kernels::Convert({sums.data(), sum_bytes}, {want.data(), stride, wire}, count,
                           columns.size());
          const auto by = divides ? divisors : std::vector<std::uint32_t>();
          ASSERT_THAT(store->PoolToWire(bags, by, columns, {got.data(), stride, wire}),
                      testing::IsOk());
          EXPECT_EQ(got, want) << "wire " << static_cast<int>(wire);
          const auto pinned = this->Pin(count * stride);
          ASSERT_NE(pinned, nullptr);
          std::memset(pinned.get(), 0, count * stride);
          ASSERT_THAT(store->PoolToWire(bags, by, columns, {pinned.get(), stride, wire}),
                      testing::IsOk());
          EXPECT_EQ(std::memcmp(pinned.get(), want.data(), want.size()), 0);
        }
      }
    }
  }
}

TYPED_TEST_P(RowStoreConformance, EmptyBatchesDoNothing) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kAdagrad, DType::kFloat32);
  const auto store = this->Make(spec);
  const StoredRows before = ReadAll(*store);
  EXPECT_THAT(store->Gather({}, {0, 24}, {nullptr, 96, kernels::Element::kFloat32}),
              testing::IsOk());
  EXPECT_THAT(store->Pool({}, {0, 24}, {nullptr, 96, kernels::Element::kFloat32}), testing::IsOk());
  EXPECT_THAT(store->Step({{}, {}, 24, {}, 1}), testing::IsOk());
  EXPECT_THAT(store->WriteRows({}, {0, 24}, {}), testing::IsOk());
  EXPECT_THAT(store->ResetRows(900, 0), testing::IsOk());
  EXPECT_EQ(ReadAll(*store), before);
}

TYPED_TEST_P(RowStoreConformance, WrittenRowsAreTheReadOnesAndTrainOnAlike) {
  this->ForEverySpec([&](const TableSpec& spec) {
    const auto source = this->Make(spec);
    Train(*source, spec, 0, 6);
    const auto target = this->Make(spec);
    std::vector<std::uint32_t> slots(source->slots());
    std::iota(slots.begin(), slots.end(), 0u);
    for (const ColumnRange columns : {ColumnRange{0, 4}, ColumnRange{4, 24}}) {
      const StoredRows rows = Read(*source, slots, columns);
      ASSERT_THAT(target->WriteRows(slots, columns, {rows.weights, rows.state}), testing::IsOk());
    }
    ASSERT_EQ(ReadAll(*target), ReadAll(*source));
    Train(*source, spec, 0, 7);
    Train(*target, spec, 0, 7);
    EXPECT_EQ(ReadAll(*target), ReadAll(*source));
  });
}

TYPED_TEST_P(RowStoreConformance, ResetRowsAreAsAtCreation) {
  this->ForEverySpec([&](const TableSpec& spec) {
    const auto fresh = this->Make(spec);
    const auto store = this->Make(spec);
    Train(*store, spec, 0, 8);
    ASSERT_NE(ReadAll(*store), ReadAll(*fresh));
    ASSERT_THAT(store->ResetRows(0, 300), testing::IsOk());
    ASSERT_THAT(store->ResetRows(300, 600), testing::IsOk());
    EXPECT_EQ(ReadAll(*store), ReadAll(*fresh));
  });
}

TYPED_TEST_P(RowStoreConformance, RowsResetToIdsAreTheirInitialRows) {
  this->ForEverySpec([&](const TableSpec& spec) {
    const auto fresh = this->Make(spec);
    const auto store = this->Make(spec);
    Train(*store, spec, 0, 8);
    const std::vector<std::uint32_t> slots = {7, 3, 899};
    const std::vector<RowId> ids = {RowId{0}, RowId{899}, RowId{3}};
    ASSERT_THAT(store->ResetRowsTo(slots, ids), testing::IsOk());
    EXPECT_EQ(Read(*store, slots, {0, 24}),
              Read(*fresh, std::vector<std::uint32_t>{0, 899, 3}, {0, 24}));
  });
}

TYPED_TEST_P(RowStoreConformance, InitialRowsOfAnyIdAreThoseThatItIsResetTo) {
  this->ForEverySpec([&](const TableSpec& spec) {
    const auto store = this->Make(spec);
    const std::vector<std::uint32_t> slots = {0, 1, 2, 3};
    const std::vector<RowId> ids = {RowId{-1}, RowId{INT64_MIN}, RowId{INT64_MAX}, RowId{5}};
    ASSERT_THAT(store->ResetRowsTo(slots, ids), testing::IsOk());
    const ColumnRange columns{4, 23};
    std::vector<float> stored(slots.size() * columns.size());
    std::vector<float> initial(stored.size());
    const std::size_t stride = columns.size() * sizeof(float);
    ASSERT_THAT(store->Gather(slots, columns, {stored.data(), stride, kernels::Element::kFloat32}),
                testing::IsOk());
    ASSERT_THAT(
        store->GatherInitial(ids, columns, {initial.data(), stride, kernels::Element::kFloat32}),
        testing::IsOk());
    EXPECT_EQ(initial, stored);
  });
}

TYPED_TEST_P(RowStoreConformance, StepsWithRowsWhereTheyLieAsWithTheirSums) {
  for (const OptimizerKind kind : kOptimizerKinds) {
    const TableSpec spec = ConformanceSpec(kind, DType::kFloat32);
    const auto in_place = this->Make(spec);
    const auto summed = this->Make(spec);
    std::vector<std::uint32_t> slots;
    for (std::uint32_t slot = 0; slot < in_place->slots(); slot += 2) slots.push_back(slot);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> gradients(slots.size() * spec.dim);
    for (float& g : gradients) g = random() % 8 == 0 ? -0.0f : normal(random);
    std::vector<const float*> rows;  // The last gradient is that of the first slot.
    for (std::size_t i = slots.size(); i-- > 0;) rows.push_back(&gradients[i * spec.dim]);
    std::vector<float> sums;
    for (const float* const row : rows) {
      for (std::uint32_t c = 0; c < spec.dim; ++c) sums.push_back(0.0f + row[c]);
    }
    ASSERT_THAT(summed->Step({.slots = slots, .gradients = sums, .stride = spec.dim, .step = 1}),
                testing::IsOk());
    ASSERT_THAT(in_place->Step({.slots = slots, .step = 1, .gradient_rows = rows}),
                testing::IsOk());
    EXPECT_EQ(ReadAll(*in_place), ReadAll(*summed));
  }
}

// Gradients of random positions, `positions_max` or somewhat fewer: rows without one, one with
// many, some that belong to no row.
struct RandomGradients {
  RandomGradients(const TableSpec& spec, kernels::Element wire, bool in_bags,
                  std::size_t positions_max, std::uint32_t seed)
      : random(seed), gradient_rows(in_bags ? positions_max / 5 : positions_max) {
    std::normal_distribution<float> normal;
    std::vector<float> values(gradient_rows * spec.dim);
    for (float& v : values) v = normal(random);
    const std::size_t row_bytes = kernels::RowBytes(wire, spec.dim);
    rows.resize(gradient_rows * row_bytes);
    kernels::Convert({values.data(), spec.dim * sizeof(float), kernels::Element::kFloat32},
                     {rows.data(), row_bytes, wire}, gradient_rows, spec.dim);
    // Without bags a part of the gradients is another slice's.
    for (std::uint32_t row = 0; row < gradient_rows; ++row) {
      const std::uint32_t positions = in_bags ? random() % 9 : random() % 8 == 0 ? 0 : 1;
      bag_lengths.push_back(positions);
      bag_factors.push_back(positions == 0 ? 0.0f : 1.0f / static_cast<float>(positions));
      for (std::size_t p = 0; p < positions; ++p) {
        row_of.push_back(row);
        slots.push_back(random() % 9 == 0   ? kernels::kNoSlot
                        : random() % 2 == 0 ? 77
                                            : static_cast<std::uint32_t>(random() % 900));
        if (in_bags) factors.push_back(bag_factors.back());
      }
    }
    gradients.rows = {rows.data(), row_bytes, wire};
    gradients.columns = spec.dim;
    gradients.row_of = row_of.data();
    gradients.factors = in_bags ? factors.data() : nullptr;
    gradients.clip = in_bags ? 0.5f : 0.0f;
  }

  // Has the gradients lie in `memory` instead, so far apart, which is not owned.
  void LieIn(std::byte* memory, std::size_t stride) {
    const std::size_t row_bytes = gradients.rows.stride_bytes;
    for (std::size_t row = 0; row < gradient_rows; ++row) {
      std::memcpy(memory + row * stride, rows.data() + row * row_bytes, row_bytes);
    }
    gradients.rows.base = memory;
    gradients.rows.stride_bytes = stride;
  }

  // One optimizer step with the sums of kernels/combine.h; how many rows.
  std::size_t Step(RowStore& store) const {
    std::vector<std::int64_t> ids;
    std::vector<std::uint32_t> own_row_of;
    std::vector<float> own_factors;
    for (std::size_t p = 0; p < slots.size(); ++p) {
      if (slots[p] == kernels::kNoSlot) continue;
      ids.push_back(slots[p]);
      own_row_of.push_back(row_of[p]);
      own_factors.push_back(factors.empty() ? 1.0f : factors[p]);
    }
    kernels::Grouping grouping;
    kernels::GroupIds(ids, grouping);
    kernels::Gradients own = gradients;
    own.row_of = own_row_of.data();
    own.factors = own_factors.data();
    const std::uint32_t columns = gradients.columns;
    std::vector<float> sums(grouping.ids.size() * columns);
    kernels::SumSegments(grouping, own, 0, grouping.ids.size(), sums, columns);
    const std::vector<std::uint32_t> touched(grouping.ids.begin(), grouping.ids.end());
    EXPECT_THAT(store.Step({.slots = touched, .gradients = sums, .stride = columns, .step = 3}),
                testing::IsOk());
    return touched.size();
  }

  std::mt19937 random;
  std::size_t gradient_rows;
  std::vector<std::byte> rows;
  std::vector<std::uint32_t> slots;
  std::vector<std::uint32_t> row_of;
  std::vector<float> factors;
  std::vector<std::uint32_t> bag_lengths;
  std::vector<float> bag_factors;
  kernels::Gradients gradients;
};

// Steps one store with the gradients of a batch and another with their sums.
inline void ExpectUpdatesAsSteps(RowStore& updated, RowStore& stepped, const RandomGradients& batch,
                                 bool expands_bags = false) {
  GradientBatch sent = {.slots = batch.slots,
                        .gradients = batch.gradients,
                        .gradient_rows = batch.gradient_rows,
                        .step = 3};
  if (expands_bags) {
    sent.gradients.row_of = nullptr;
    sent.gradients.factors = nullptr;
    sent.bag_lengths = batch.bag_lengths;
    sent.bag_factors = batch.bag_factors;
  }
  ASSERT_THAT(updated.ReserveUpdate(sent.slots.size(), sent.gradients, sent.gradient_rows),
              testing::IsOk());
  const auto rows = updated.Update(sent);
  ASSERT_THAT(rows, testing::IsOk());
  EXPECT_EQ(*rows, batch.Step(stepped));
  ASSERT_EQ(ReadAll(updated), ReadAll(stepped));
}

TYPED_TEST_P(RowStoreConformance, UpdatesWithGradientsAsWithTheirSums) {
  using kernels::Element;
  this->ForEverySpec([&](const TableSpec& spec) {
    const std::size_t positions = this->PositionsSummed(spec);
    if (positions == 0) return;
    for (const Element wire :
         {Element::kFloat32, Element::kFloat16, Element::kBFloat16, Element::kInt8Rowwise}) {
      for (const bool in_bags : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << "wire " << static_cast<int>(wire) << " in bags " << in_bags);
        const RandomGradients batch(spec, wire, in_bags, positions, 17);
        ExpectUpdatesAsSteps(*this->Make(spec), *this->Make(spec), batch);
        if (!in_bags) continue;
        ExpectUpdatesAsSteps(*this->Make(spec), *this->Make(spec), batch, /*expands_bags=*/true);
      }
    }
  });
}

TYPED_TEST_P(RowStoreConformance, UpdatesWithGradientsThatLieInPinnedMemory) {
  using kernels::Element;
  const TableSpec spec = ConformanceSpec(OptimizerKind::kRowwiseAdagrad, DType::kFloat16);
  const std::size_t positions = this->PositionsSummed(spec);
  if (positions == 0) return;
  for (const Element wire : {Element::kFloat32, Element::kBFloat16, Element::kInt8Rowwise}) {
    for (const bool in_bags : {false, true}) {
      for (const std::size_t apart : {0, 6, 64}) {
        SCOPED_TRACE(::testing::Message() << "wire " << static_cast<int>(wire) << " in bags "
                                          << in_bags << " " << apart << " bytes apart");
        RandomGradients batch(spec, wire, in_bags, positions, 18);
        const std::size_t stride = batch.gradients.rows.stride_bytes + apart;
        const auto memory = this->Pin(batch.gradient_rows * stride);
        ASSERT_NE(memory, nullptr);
        batch.LieIn(memory.get(), stride);
        ExpectUpdatesAsSteps(*this->Make(spec), *this->Make(spec), batch);
        if (!in_bags) continue;
        ExpectUpdatesAsSteps(*this->Make(spec), *this->Make(spec), batch, /*expands_bags=*/true);
      }
    }
  }
}

TYPED_TEST_P(RowStoreConformance, SetOptimizerActsOnTheNextStepAndKeepsTheKind) {
  TableSpec spec = ConformanceSpec(OptimizerKind::kAdagrad, DType::kBFloat16);
  const auto changed = this->Make(spec);
  spec.optimizer.learning_rate = 0.7f;
  spec.rounding = spec.rounding == Rounding::kNearest ? Rounding::kStochastic : Rounding::kNearest;
  const auto created = this->Make(spec);
  ASSERT_THAT(changed->SetOptimizer(spec.optimizer, spec.rounding), testing::IsOk());
  Train(*changed, spec, 0, 9);
  Train(*created, spec, 0, 9);
  EXPECT_EQ(ReadAll(*changed), ReadAll(*created));
  spec.optimizer.kind = OptimizerKind::kSgd;
  EXPECT_EQ(changed->SetOptimizer(spec.optimizer, spec.rounding).code(),
            absl::StatusCode::kInvalidArgument);
}

REGISTER_TYPED_TEST_SUITE_P(
    RowStoreConformance, ReportsItsShape, AnyCutHasTheRowsOfTheWholeAtCreationAndAfterTraining,
    GatherGivesTheStoredWeightsInEveryWireFormat, PoolSumsBagsOfAnyLength,
    PoolsToEveryWireFormatAsItsSumsAreConverted, EmptyBatchesDoNothing,
    WrittenRowsAreTheReadOnesAndTrainOnAlike, ResetRowsAreAsAtCreation,
    RowsResetToIdsAreTheirInitialRows, InitialRowsOfAnyIdAreThoseThatItIsResetTo,
    StepsWithRowsWhereTheyLieAsWithTheirSums, UpdatesWithGradientsAsWithTheirSums,
    UpdatesWithGradientsThatLieInPinnedMemory, SetOptimizerActsOnTheNextStepAndKeepsTheKind);

}  // namespace embla
