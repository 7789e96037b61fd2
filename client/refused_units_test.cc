// Nodes leave units that are on the move out of updates; the client sends their rows again, and
// only theirs: every row is applied exactly once. Where nodes say which node has a unit, the client
// asks that one, whatever the plan says.
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

namespace embla::client::refused_units_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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
                            [this](const NodeSpec& node, Timer& timer) {
                              return cluster_.MakeChannel(node.address, timer);
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
  absl::StatusOr<std::vector<float>> Lookup(std::string_view table,
                                            const std::vector<std::int64_t>& ids,
                                            const CallOptions& options = {}) {
    std::vector<float> rows(ids.size() * kDim);
    std::promise<absl::Status> promise;
    std::future<absl::Status> future = promise.get_future();
    client_->LookupAsync({{.table = table, .ids = ids, .rows_out = rows}}, options,
                         [&](absl::Status status) { promise.set_value(std::move(status)); });
    const absl::Status status = timer_->RunUntilReady(future);
    if (!status.ok()) return status;
    return rows;
  }
  // An update of one row of "clicks".
  absl::Status UpdateRow(std::int64_t row, const CallOptions& options = {}) {
    const std::int64_t ids[] = {row};
    const std::vector<float> gradients(kDim, 1.0f);
    return Update({{.table = "clicks", .ids = ids, .gradients = gradients}}, options);
  }
  // The addresses of the requests since the last call.
  std::vector<std::string> TakeAsked() {
    std::vector<std::string> asked;
    const std::vector<FakeCluster::Request> requests = cluster_.requests();
    for (; taken_ < requests.size(); ++taken_) asked.push_back(requests[taken_].address);
    return asked;
  }

  Client& client() { return *client_; }
  ManualTimer& timer() { return *timer_; }

 private:
  FakeCluster cluster_{MakePlan(1, 50)};
  std::size_t taken_ = 0;
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

constexpr NodeId kOne{1}, kTwo{2}, kThree{3};
const absl::Status kNoCoordinator = absl::UnavailableError("the coordinator is down");

// Plan 1, by which node 1 has the rows up to 50 of "clicks". By the nodes' plan node 2 has those
// from 40 on, and there is no coordinator.
class HintsTest : public ::testing::Test {
 protected:
  HintsTest() {
    world_.cluster().SetCoordinatorStatus(kNoCoordinator);
    world_.cluster().SetNodePlan(MakePlan(2, 40));
  }

  World world_{{.coordinator = "fake"}};
};

TEST_F(HintsTest, LeadToAUnitThatNoPlanTellsOf) {
  world_.cluster().GiveHints();
  EXPECT_THAT(world_.UpdateRow(45), IsOk());
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:1", "fake:2"));
  const std::vector<FakeCluster::Request> requests = world_.cluster().requests();
  EXPECT_EQ(requests[0].seq, requests[1].seq);
  EXPECT_EQ(requests[0].time, requests[1].time);
  EXPECT_EQ(world_.cluster().coordinator_calls(), 1) << "the first plan";
  // From now on the client knows, also for lookups. Other units stay where they were.
  const auto row = world_.Lookup("clicks", {45});
  ASSERT_THAT(row, IsOk());
  EXPECT_EQ(row->front(), world_.cluster().table(TableId{1}).weight(45, 0));
  EXPECT_THAT(world_.UpdateRow(39), IsOk());
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:2", "fake:1"));
}

TEST_F(HintsTest, LeadLookupsOnWithEveryRowThatWasAskedFor) {
  world_.cluster().GiveHints();
  const auto rows = world_.Lookup("clicks", {45, 3, 60, 49, 45});
  ASSERT_THAT(rows, IsOk());
  EXPECT_THAT(*rows, SizeIs(5 * kDim));
  const std::int64_t ids[] = {45, 3, 60, 49, 45};
  for (std::size_t i = 0; i < rows->size(); ++i) {
    EXPECT_EQ((*rows)[i], world_.cluster().table(TableId{1}).weight(ids[i / kDim], i % kDim));
  }
}

TEST_F(HintsTest, OfNodesThatNameEachOtherAreNoCircle) {
  world_.cluster().Say({kOne, 40, 50, kTwo, 5});
  world_.cluster().Say({kTwo, 40, 50, kOne, 4});
  EXPECT_THAT(world_.Lookup("clicks", {45}, {.timeout = absl::Seconds(5)}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("have moved to another node")));
  std::vector<std::string> asked = world_.TakeAsked();
  EXPECT_EQ(asked.front(), "fake:1");
  asked.erase(asked.begin());
  EXPECT_THAT(asked, Each("fake:2"));
  EXPECT_GE(asked.size(), 8u) << "5 times after a millisecond";
  EXPECT_LE(asked.size(), 25u) << "the waits double";
  // There may be a newer plan; who asks for it does not hold the call up.
  embla::testing::AwaitFor([&] { return world_.cluster().coordinator_calls() > 1; },
                           absl::Seconds(30), "asked for a newer plan");
}

TEST_F(HintsTest, AreFollowedUpwardsOnly) {
  world_.cluster().Say({kOne, 40, 50, kTwo, 5});
  world_.cluster().Say({kTwo, 40, 50, kThree, 5});
  EXPECT_THAT(world_.Lookup("clicks", {45}, {.timeout = absl::Milliseconds(20)}).status(),
              StatusIs(absl::StatusCode::kUnavailable));
  for (const FakeCluster::Request& request : world_.cluster().requests()) {
    EXPECT_NE(request.address, "fake:3");
  }
  world_.cluster().Say({kTwo, 40, 50, kThree, 6});
  world_.cluster().Say({kThree, 40, 50, kTwo, 7});
  world_.TakeAsked();
  EXPECT_THAT(world_.Lookup("clicks", {45}, {.timeout = absl::Milliseconds(20)}).status(),
              StatusIs(absl::StatusCode::kUnavailable));
  const std::vector<std::string> asked = world_.TakeAsked();
  EXPECT_THAT(std::vector(asked.begin(), asked.begin() + 2), ElementsAre("fake:2", "fake:3"));
  world_.cluster().SayNothing();
  EXPECT_THAT(world_.Lookup("clicks", {45}), IsOk());
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:2"));
}

TEST_F(HintsTest, WaitWhereTheyLeadUntilTheUnitHasCome) {
  world_.cluster().Say({kOne, 40, 50, kTwo, 2});
  world_.cluster().Say({kTwo, 40, 50, NodeId{}, 0, /*answers=*/3});
  const absl::Time begin = world_.timer().Now();
  EXPECT_THAT(world_.Lookup("clicks", {45}), IsOk());
  EXPECT_LE(world_.timer().Now() - begin, absl::Milliseconds(3));
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:1", "fake:2", "fake:2", "fake:2", "fake:2"));
}

TEST_F(HintsTest, AreDroppedWithANewerPlan) {
  world_.cluster().GiveHints();
  EXPECT_THAT(world_.UpdateRow(45), IsOk());
  world_.cluster().SetCoordinatorStatus(absl::OkStatus());
  world_.cluster().SetCoordinatorPlan(MakePlan(3, 50));
  world_.cluster().SetNodePlan(MakePlan(3, 50));
  EXPECT_THAT(world_.client().RefreshPlan(), IsOk());
  world_.TakeAsked();
  EXPECT_THAT(world_.UpdateRow(45), IsOk());
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:1"));
}

TEST_F(HintsTest, OfAnOlderPlanAreNotTaken) {
  world_.cluster().SetNodePlan(MakePlan(3, 60));
  world_.cluster().Say({kOne, 40, 50, kTwo, 2, /*answers=*/1});
  world_.cluster().Hold("fake:1");
  const std::int64_t ids[] = {45};
  const std::vector<float> gradients(kDim, 1.0f);
  std::promise<absl::Status> promise;
  std::future<absl::Status> future = promise.get_future();
  world_.client().UpdateAsync({{.table = "clicks", .ids = ids, .gradients = gradients}}, {},
                              [&](absl::Status status) { promise.set_value(std::move(status)); });
  embla::testing::AwaitFor([&] { return world_.cluster().held() == 1; }, absl::Seconds(30), "held");
  world_.cluster().SetCoordinatorStatus(absl::OkStatus());
  world_.cluster().SetCoordinatorPlan(MakePlan(3, 60));
  EXPECT_THAT(world_.client().RefreshPlan(), IsOk());
  world_.cluster().Release("fake:1");
  ASSERT_EQ(future.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_THAT(future.get(), IsOk());
  EXPECT_EQ(world_.cluster().refusals(), 1);
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:1", "fake:1"));
}

TEST_F(HintsTest, ToANodeThatThePlanDoesNotHaveWaitForANewerOne) {
  world_.cluster().Say({kOne, 40, 50, NodeId{9}, 2});
  world_.cluster().SetCoordinatorStatus(absl::OkStatus());
  const int calls = world_.cluster().coordinator_calls();
  EXPECT_THAT(world_.UpdateRow(45, {.timeout = absl::Seconds(1)}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("there is no newer one")));
  embla::testing::AwaitFor([&] { return world_.cluster().coordinator_calls() > calls; },
                           absl::Seconds(30), "asked for a newer plan");
  EXPECT_THAT(world_.TakeAsked(), Each("fake:1"));
  world_.cluster().SetCoordinatorPlan(MakePlan(2, 40));
  EXPECT_THAT(world_.UpdateRow(45), IsOk());
}

// A node that gave units away long ago may know less of them than the plan: it was not asked for
// the rows from 50 on, and what it says of them is not taken.
TEST_F(HintsTest, AreTakenAboutRowsThatTheNodeWasAskedForOnly) {
  world_.cluster().Say({kOne, 40, 60, kThree, 5});
  EXPECT_THAT(world_.UpdateRow(45, {.timeout = absl::Milliseconds(20)}),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(world_.TakeAsked(), Each("fake:1"));
  EXPECT_THAT(world_.UpdateRow(55), IsOk());
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:2"));
  world_.cluster().SayNothing();
  world_.cluster().Say({kOne, 40, 50, kTwo, 5});
  EXPECT_THAT(world_.UpdateRow(45), IsOk());
  EXPECT_THAT(world_.TakeAsked(), ElementsAre("fake:1", "fake:2"));
}

// A node that is behind may say of a unit what is older than the plan (docs/consistency.md, "Units
// that came to rest").
TEST_F(HintsTest, MakeUpdatesAsOldAsThePlanOfTheNodeThatGaveThem) {
  world_.cluster().SetCoordinatorStatus(absl::OkStatus());
  world_.cluster().SetCoordinatorPlan(MakePlan(7, 50));
  EXPECT_THAT(world_.client().RefreshPlan(), IsOk());
  EXPECT_THAT(world_.UpdateRow(7), IsOk());
  EXPECT_EQ(world_.cluster().requests().back().routed_since, PlanVersion{7});
  world_.cluster().GiveHints();
  EXPECT_THAT(world_.Lookup("clicks", {45}), IsOk());
  EXPECT_THAT(world_.UpdateRow(45), IsOk());
  EXPECT_EQ(world_.cluster().requests().back().address, "fake:2");
  EXPECT_EQ(world_.cluster().requests().back().plan_version, PlanVersion{7});
  EXPECT_EQ(world_.cluster().requests().back().routed_since, PlanVersion{2});
}

class RandomHintsTest : public ::testing::TestWithParam<bool> {};

TEST_P(RandomHintsTest, ApplyEveryRowExactlyOnceWithoutAPlan) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const ConnectOptions options = {
      .coordinator = "fake", .retry_budget_ratio = 0, .retry_budget_per_second = 0};
  World calm(options);
  World moving(options);
  moving.cluster().SetCoordinatorStatus(kNoCoordinator);
  moving.cluster().GiveHints();
  const CallOptions call = {.combine_duplicates = GetParam()};
  for (std::uint64_t i = 2; i <= 100; ++i) {
    if (random() % 3 == 0) {
      const auto border = static_cast<std::int64_t>(random() % 9 + 1) * 10;
      moving.cluster().SetNodePlan(MakePlan(i, border));
    }
    const Feature clicks = RandomFeature(random), more = RandomFeature(random);
    const Feature wide = RandomFeature(random);
    const std::vector<FeatureGradient> features = {clicks.For("clicks"), wide.For("wide"),
                                                   more.For("clicks")};
    ASSERT_THAT(calm.Update(features, call), IsOk());
    ASSERT_THAT(moving.Update(features, call), IsOk());
    for (const std::string_view table : {"clicks", "wide"}) {
      const auto rows = moving.Lookup(table, wide.ids, call);
      ASSERT_THAT(rows, IsOk());
      EXPECT_EQ(*rows, *calm.Lookup(table, wide.ids, call));
    }
  }
  EXPECT_GT(moving.cluster().refusals(), 20);
  for (const TableId table : {TableId{1}, TableId{2}}) {
    EXPECT_EQ(moving.cluster().table(table).weights(), calm.cluster().table(table).weights());
  }
}

INSTANTIATE_TEST_SUITE_P(CombineDuplicates, RandomHintsTest, ::testing::Bool());

}  // namespace
}  // namespace embla::client::refused_units_test
