#include "server/storage/host_row_store.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/storage/row_store_conformance.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

template <std::size_t kThreads>
struct HostFactory {
  std::unique_ptr<RowStore> Make(const TableSpec& spec, const Slice& slice) {
    auto store = HostRowStore::Create(spec, slice, budget, pool);
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }
  MemoryBudget budget{std::size_t{1} << 30};
  ThreadPool pool{kThreads};
};

using Factories = ::testing::Types<HostFactory<1>, HostFactory<3>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Host, RowStoreConformance, Factories);

TEST(HostRowStoreStep, ThreadCountDoesNotChangeARow) {
  for (const auto kind : kOptimizerKinds) {
    TableSpec spec = ConformanceSpec(kind, DType::kBFloat16);
    spec.rows = 5'000;
    HostFactory<1> one;
    HostFactory<2> two;
    HostFactory<7> seven;
    const auto a = one.Make(spec, WholeTable(spec));
    const auto b = two.Make(spec, WholeTable(spec));
    const auto c = seven.Make(spec, WholeTable(spec));
    for (RowStore* store : {a.get(), b.get(), c.get()}) Train(*store, spec, 0, 3);
    const StoredRows want = ReadAll(*a);
    EXPECT_EQ(ReadAll(*b), want);
    EXPECT_EQ(ReadAll(*c), want);
  }
}

TEST(HostRowStoreCreate, TakesItsBytesFromTheBudgetAndGivesThemBack) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kRowwiseAdagrad, DType::kFloat16);
  const Slice slice{0, 800, 0, 5, {}};
  EXPECT_EQ(HostRowStore::BytesNeeded(spec, slice), 800u * (16 + 4));
  ThreadPool pool(1);
  MemoryBudget budget(16'000);
  {
    const auto store = HostRowStore::Create(spec, slice, budget, pool);
    ASSERT_THAT(store, IsOk());
    EXPECT_EQ((*store)->memory_bytes(), 16'000u);
    EXPECT_EQ(budget.used_bytes(), 16'000u);
    EXPECT_EQ(HostRowStore::Create(spec, slice, budget, pool).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(HostRowStoreCreate, RefusesWhatTheSystemCannotMapAndMoreRowsThanSlots) {
  TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  spec.rows = std::int64_t{1} << 40;
  ThreadPool pool(1);
  MemoryBudget budget(~std::size_t{0});
  const auto wide = HostRowStore::Create(spec, {0, spec.rows, 0, 1, {}}, budget, pool);
  EXPECT_EQ(wide.status().code(), absl::StatusCode::kResourceExhausted);
  // 4e9 rows of 256 KiB: a PiB fits into the address space of no machine.
  spec.dim = 65536;
  const auto big = HostRowStore::Create(spec, {0, 4'000'000'000, 0, 65536, {}}, budget, pool);
  EXPECT_EQ(big.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(HostRowStoreCreate, UnsetRowsTakeWhatIsWrittenAndResetLikeOthers) {
  const TableSpec spec = ConformanceSpec(OptimizerKind::kAdam, DType::kFloat32);
  const Slice slice{0, 800, 0, 5, {}};
  ThreadPool pool(1);
  MemoryBudget budget(1 << 20);
  const auto initial = HostRowStore::Create(spec, slice, budget, pool);
  const auto unset = HostRowStore::Create(spec, slice, budget, pool, NewRows::kUnset);
  ASSERT_THAT(initial, IsOk());
  ASSERT_THAT(unset, IsOk());
  ASSERT_THAT((*unset)->ResetRows(0, 800), IsOk());
  EXPECT_EQ(ReadAll(**unset), ReadAll(**initial));
}

TEST(HostRowStoreCreate, InitialWeightsFollowTheSpec) {
  HostFactory<2> factory;
  TableSpec spec = ConformanceSpec(OptimizerKind::kSgd, DType::kFloat32);
  const auto weights = [&] {
    const auto store = factory.Make(spec, WholeTable(spec));
    const StoredRows rows = ReadAll(*store);
    std::vector<float> values(rows.weights.size() / 4);
    std::memcpy(values.data(), rows.weights.data(), rows.weights.size());
    return values;
  };
  const float bound = static_cast<float>(std::sqrt(1.0 / 900));
  for (const float w : weights()) ASSERT_LE(std::fabs(w), bound);
  spec.init = {InitKind::kConstant, 0.75f, 0.0f};
  for (const float w : weights()) ASSERT_EQ(w, 0.75f);
  spec.init = {InitKind::kUniform, 2.0f, 3.0f};
  for (const float w : weights()) ASSERT_TRUE(w >= 2.0f && w < 3.0f);
  spec.init = {InitKind::kNormal, 10.0f, 0.5f};
  double sum = 0.0;
  for (const float w : weights()) sum += w;
  EXPECT_NEAR(sum / (900 * 24), 10.0, 0.02);
}

}  // namespace
}  // namespace embla
