// Nodes leave units that are on the move out of updates; the client sends their rows again, and
// only theirs: every row is applied exactly once.
//
// The oracle is a second client with nodes that leave nothing out. The fake nodes keep no record of
// what they have applied, so a row that is sent twice is applied twice.
#include <future>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/testing/fake_cluster.h"
#include "client/transport/testing/manual_timer.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"

namespace embla::client {
namespace {

using ::embla::testing::IsOk;

constexpr std::int64_t kRows = 100;
constexpr std::uint32_t kDim = 4;

// Table "clicks" split by rows at `border`, table "wide" split by columns, and at `border` too.
PlanPtr MakePlan(std::uint64_t version, std::int64_t border) {
  std::vector<NodeSpec> nodes;
  for (std::uint32_t n = 1; n <= 3; ++n) {
    nodes.push_back({NodeId{n}, absl::StrCat("n", n), absl::StrCat("fake:", n), {{}}});
  }
  const DeviceId on1{NodeId{1}, 0}, on2{NodeId{2}, 0}, on3{NodeId{3}, 0};
  std::vector<TablePlan> tables(2);
  const char* names[] = {"clicks", "wide"};
  for (std::uint32_t t = 0; t < tables.size(); ++t) {
    tables[t].spec = {.id = TableId{t + 1}, .name = names[t], .rows = kRows, .dim = kDim};
    tables[t].spec.SetDefaults();
  }
  tables[0].spec.optimizer.kind = OptimizerKind::kSgd;
  tables[0].replicas = {{{0, border, 0, kDim, on1}, {border, kRows, 0, kDim, on2}}};
  tables[1].replicas = {
      {{0, kRows, 0, 1, on1}, {0, border, 1, kDim, on2}, {border, kRows, 1, kDim, on3}}};
  return std::make_shared<Plan>(PlanVersion{version}, "test", std::move(nodes), std::move(tables));
}

// A client and its cluster, on a clock that runs when nothing else happens.
class World {
 public:
  explicit World(const ConnectOptions& options) {
    auto timer = std::make_unique<ManualTimer>(absl::FromUnixSeconds(1'000'000));
    timer_ = timer.get();
    ClientImpl::World world{std::move(timer), cluster_.MakeCoordinator(),
                            [this](const std::string& address, Timer& timer) {
                              return cluster_.MakeChannel(address, timer);
                            }};
    auto client = ClientImpl::Open(options, std::move(world));
    EXPECT_THAT(client, IsOk());
    client_ = *std::move(client);
  }

  FakeCluster& cluster() { return cluster_; }

  absl::Status Update(const std::vector<FeatureGradient>& features,
                      const CallOptions& options = {}) {
    std::promise<absl::Status> promise;
    std::future<absl::Status> future = promise.get_future();
    client_->UpdateAsync(features, options,
                         [&](absl::Status status) { promise.set_value(std::move(status)); });
    return timer_->RunUntilReady(future);
  }

 private:
  FakeCluster cluster_{MakePlan(1, 50)};
  ManualTimer* timer_ = nullptr;  // The client's.
  std::unique_ptr<Client> client_;
};

// The arrays of a feature.
struct Feature {
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> lengths;
  std::vector<float> gradients;
  Pooling pooling = Pooling::kNone;

  FeatureGradient For(std::string_view table) const {
    return {
        .table = table, .ids = ids, .lengths = lengths, .pooling = pooling, .gradients = gradients};
  }
};

Feature RandomFeature(std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1.0f, 1.0f);
  Feature feature;
  const Pooling poolings[] = {Pooling::kNone, Pooling::kSum, Pooling::kMean};
  feature.pooling = poolings[random() % 3];
  std::size_t rows = 0;
  for (int bag = 0; bag < 8; ++bag) {
    const std::uint32_t length = random() % 6;
    for (std::uint32_t i = 0; i < length; ++i) {
      feature.ids.push_back(static_cast<std::int64_t>(random() % kRows));
    }
    if (feature.pooling != Pooling::kNone) feature.lengths.push_back(length);
    rows += feature.pooling == Pooling::kNone ? length : 1;
  }
  feature.gradients.resize(rows * kDim);
  for (float& gradient : feature.gradients) gradient = value(random);
  return feature;
}

class RefusedUnitsTest : public ::testing::TestWithParam<bool> {};

TEST_P(RefusedUnitsTest, EveryRowIsAppliedExactlyOnce) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  ConnectOptions options = {.coordinator = "fake"};
  World calm(options);
  // Moves are no failures: they take nothing from the budget of retries.
  options.retry_budget_ratio = 0;
  options.retry_budget_per_second = 0;
  World moving(options);
  const CallOptions call = {.combine_duplicates = GetParam()};
  std::deque<PlanPtr> plans;
  for (std::uint64_t version = 2; version <= 30; ++version) {
    plans.push_back(MakePlan(version, static_cast<std::int64_t>(random() % 9 + 1) * 10));
  }
  moving.cluster().RefuseUnits(seed, std::move(plans));
  for (int i = 0; i < 100; ++i) {
    const Feature clicks = RandomFeature(random), more = RandomFeature(random);
    const Feature wide = RandomFeature(random);
    const std::vector<FeatureGradient> features = {clicks.For("clicks"), wide.For("wide"),
                                                   more.For("clicks")};
    ASSERT_THAT(calm.Update(features, call), IsOk());
    const absl::Status status = moving.Update(features, call);
    ASSERT_THAT(status, IsOk());
  }
  EXPECT_GT(moving.cluster().refusals(), 100);
  for (const TableId table : {TableId{1}, TableId{2}}) {
    // Duplicates of a row go together, so even the order of their sum is the same.
    EXPECT_EQ(moving.cluster().table(table).weights(), calm.cluster().table(table).weights());
  }
}

INSTANTIATE_TEST_SUITE_P(CombineDuplicates, RefusedUnitsTest, ::testing::Bool());

TEST(RefusedUnits, ADeadlineEndsTheWaitAndSaysWhatForIt) {
  World world({.coordinator = "fake"});
  world.cluster().RefuseAll(RefusedUnit::Reason::kFrozen);
  const std::int64_t ids[] = {7};
  const std::vector<float> gradients(kDim, 1.0f);
  const absl::Status status =
      world.Update({{.table = "clicks", .ids = ids, .gradients = gradients}},
                   {.timeout = absl::Milliseconds(100)});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("rows [0, 10) are being handed over"));
  EXPECT_GT(world.cluster().refusals(), 10);
}

TEST(RefusedUnits, AMoveThatNoPlanTellsOfEndsWithTheDeadline) {
  World world({.coordinator = "fake"});
  world.cluster().RefuseAll(RefusedUnit::Reason::kMoved);
  const std::int64_t ids[] = {7};
  const std::vector<float> gradients(kDim, 1.0f);
  const absl::Status status = world.Update(
      {{.table = "clicks", .ids = ids, .gradients = gradients}}, {.timeout = absl::Seconds(5)});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("rows [0, 10) have moved to another node"));
}

}  // namespace
}  // namespace embla::client
