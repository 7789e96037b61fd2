// Contributions to synchronous steps: what a client claims of which node, what it does with units
// that are refused, and which errors end a call.
//
// The oracle is a second client with nodes that refuse nothing. The fake nodes have one rank, and
// take each unit's steps in order and once.
#include <future>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/testing/fake_cluster.h"
#include "client/transport/testing/manual_timer.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"

namespace embla::client::contributions_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 103;
constexpr std::uint32_t kGranules = 10;
constexpr std::uint32_t kDim = 8;

constexpr TableId kPlain{1}, kRowWise{2}, kColumnWise{3}, kGrid{4};
constexpr const char* kNames[] = {"plain", "row_wise", "column_wise", "grid"};

struct PlanOptions {
  std::uint64_t version = 1;
  std::uint32_t border = 5;  // Granules before it are on the first of two nodes.
  std::vector<StepMembers> members = {{.first_step = 0, .ranks = {Rank{0}}}};
};

// The first table is an ordinary one. Both column cuts of the last one have the same rows on the
// same nodes.
PlanPtr MakePlan(const PlanOptions& options) {
  std::vector<NodeSpec> nodes;
  for (std::uint32_t n = 1; n <= 3; ++n) {
    nodes.push_back({NodeId{n}, absl::StrCat("n", n), absl::StrCat("fake:", n), {{}}});
  }
  const DeviceId on1{NodeId{1}, 0}, on2{NodeId{2}, 0}, on3{NodeId{3}, 0};
  std::vector<TablePlan> tables(std::size(kNames));
  for (std::uint32_t t = 0; t < tables.size(); ++t) {
    TableSpec& spec = tables[t].spec;
    spec = {.id = TableId{t + 1}, .name = kNames[t], .rows = kRows, .dim = kDim};
    spec.row_granules = kGranules;
    spec.column_granule_width = 4;
    spec.SetDefaults();
    spec.optimizer.kind = OptimizerKind::kSgd;
    if (t == 0) continue;
    spec.sync.emplace();
    tables[t].steps = {.version = PlanVersion{options.version}, .members = options.members};
  }
  const std::int64_t border = tables[0].spec.RowGranuleBegin(options.border);
  tables[0].replicas = {{{0, border, 0, kDim, on1}, {border, kRows, 0, kDim, on2}}};
  tables[1].replicas = {{{0, border, 0, kDim, on2}, {border, kRows, 0, kDim, on3}}};
  tables[2].replicas = {
      {{0, kRows, 0, 4, on1}, {0, border, 4, kDim, on2}, {border, kRows, 4, kDim, on3}}};
  tables[3].replicas = {{{0, border, 0, 4, on3},
                         {border, kRows, 0, 4, on1},
                         {0, border, 4, kDim, on3},
                         {border, kRows, 4, kDim, on1}}};
  return std::make_shared<Plan>(PlanVersion{options.version}, "test", std::move(nodes),
                                std::move(tables));
}

const ConnectOptions kRank0 = {.coordinator = "fake", .rank = 0, .ranks = 1};

// A client and its cluster, on a clock that runs when nothing else happens.
class World {
 public:
  explicit World(const ConnectOptions& options = kRank0, SessionId session_before = {},
                 PlanPtr plan = MakePlan({}))
      : cluster_(std::move(plan)) {
    cluster_.SetTrainerSession(session_before);
    auto timer = std::make_unique<ManualTimer>(absl::FromUnixSeconds(1'000'000));
    timer_ = timer.get();
    ClientImpl::World world{std::move(timer), cluster_.MakeCoordinator(),
                            [this](const NodeSpec& node, Timer& timer) {
                              return cluster_.MakeChannel(node.address, timer);
                            }};
    auto client = ClientImpl::Open(options, std::move(world));
    EXPECT_THAT(client.status(), IsOk());
    client_ = *std::move(client);
  }

  FakeCluster& cluster() { return cluster_; }
  Client& client() { return *client_; }
  absl::Time now() const { return timer_->Now(); }

  absl::Status Update(const std::vector<FeatureGradient>& features, const CallOptions& options) {
    std::promise<absl::Status> promise;
    std::future<absl::Status> future = promise.get_future();
    client_->UpdateAsync(features, options,
                         [&](absl::Status status) { promise.set_value(std::move(status)); });
    return timer_->RunUntilReady(future);
  }

  absl::StatusOr<std::vector<std::uint64_t>> Join(const std::vector<std::string>& tables,
                                                  absl::Duration timeout) {
    auto future =
        std::async(std::launch::async, [&] { return client_->JoinSteps(tables, timeout); });
    return timer_->RunUntilReady(future);
  }

 private:
  FakeCluster cluster_;
  ManualTimer* timer_ = nullptr;  // The client's.
  std::unique_ptr<Client> client_;
};

// The arrays of a feature.
struct Feature {
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> lengths;
  std::vector<float> gradients;
  Pooling pooling = Pooling::kNone;

  FeatureGradient For(TableId table) const {
    return {.table = kNames[ToInt(table) - 1],
            .ids = ids,
            .lengths = lengths,
            .pooling = pooling,
            .gradients = gradients};
  }
};

Feature RowsOf(std::vector<std::int64_t> ids) {
  Feature feature;
  feature.ids = std::move(ids);
  feature.gradients.assign(feature.ids.size() * kDim, 1.0f);
  return feature;
}

Feature RandomFeature(std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1.0f, 1.0f);
  Feature feature;
  const Pooling poolings[] = {Pooling::kNone, Pooling::kSum, Pooling::kMean};
  feature.pooling = poolings[random() % 3];
  std::size_t rows = 0;
  for (std::uint32_t bag = random() % 6; bag > 0; --bag) {
    const std::uint32_t length = random() % 5;
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

std::vector<FakeCluster::Request> ContributionsTo(TableId table, const FakeCluster& cluster) {
  std::vector<FakeCluster::Request> found;
  for (const FakeCluster::Request& request : cluster.requests()) {
    if (request.claim.has_value() && request.claim->table == table) found.push_back(request);
  }
  return found;
}

UnitSet Units(std::uint32_t column, std::uint32_t begin, std::uint32_t end) {
  return UnitSet({.column_granule = column, .begin = begin, .end = end});
}

TEST(Contributions, ClaimAllUnitsOfEveryNodeAlsoWithoutRows) {
  World world;
  const Feature nothing, one = RowsOf({7});
  const std::vector<FeatureGradient> features = {nothing.For(kColumnWise), one.For(kGrid)};
  ASSERT_THAT(world.Update(features, {.step = 0}), IsOk());
  ASSERT_THAT(world.Update(features, {.step = 1}), IsOk());
  EXPECT_TRUE(world.cluster().AllAt(kColumnWise, 2));
  EXPECT_TRUE(world.cluster().AllAt(kGrid, 2));
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 0));

  const auto cuts = ContributionsTo(kColumnWise, world.cluster());
  ASSERT_EQ(cuts.size(), 6u);
  EXPECT_EQ(cuts[0].claim->units, Units(0, 0, kGranules));
  EXPECT_EQ(cuts[1].claim->units, Units(1, 0, 5));
  EXPECT_EQ(cuts[2].claim->units, Units(1, 5, kGranules));
  UnitSet both = Units(0, 0, 5);
  both.Include(Units(1, 0, 5));
  const auto grid = ContributionsTo(kGrid, world.cluster());
  ASSERT_EQ(grid.size(), 4u);
  EXPECT_EQ(grid[1].address, "fake:3");
  EXPECT_EQ(grid[1].claim->units, both);
  EXPECT_EQ(grid[1].ids, 1u);
  EXPECT_EQ(grid[0].ids, 0u);
  // One logical update each, whatever it has to do.
  EXPECT_EQ(std::set({grid[0].seq, grid[1].seq, cuts[0].seq}), std::set({UpdateSeq{1}}));
  EXPECT_EQ(grid[2].seq, UpdateSeq{2});
  EXPECT_EQ(grid[2].step, 1u);
  EXPECT_EQ(grid[2].claim->rank, Rank{0});
  EXPECT_FALSE(grid[2].claim->resumes);
}

TEST(Contributions, WithoutRowsStillSayTheLearningRate) {
  World world;
  const Feature one = RowsOf({7});
  FeatureGradient feature = one.For(kRowWise);
  feature.learning_rate = 0.5f;
  ASSERT_THAT(world.Update({feature}, {.step = 0}), IsOk());
  for (const FakeCluster::Request& request : ContributionsTo(kRowWise, world.cluster())) {
    EXPECT_EQ(request.learning_rate, 0.5f) << request.address;
  }
}

TEST(Contributions, TravelBesideWhatIsOfOrdinaryTables) {
  World world;
  const Feature rows = RowsOf({7, 100, 7});
  ASSERT_THAT(world.Update({rows.For(kRowWise), rows.For(kPlain), rows.For(kRowWise)},
                           {.combine_duplicates = false, .step = 0}),
              IsOk());
  const auto requests = world.cluster().requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_FALSE(requests[0].claim.has_value());
  EXPECT_FALSE(requests[1].claim.has_value());
  // Combined whatever the call says; the ordinary table's are not.
  EXPECT_EQ(requests[0].ids, 2u);
  EXPECT_EQ(requests[2].ids, 1u);
  EXPECT_EQ(requests[3].ids, 1u);
  // The ordinary table's step 0 is the update's number.
  EXPECT_EQ(requests[0].step, 1u);
  EXPECT_EQ(requests[2].step, 0u);
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
}

TEST(Contributions, MakeEveryStepOnceWhateverNodesRefuse) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  World calm;
  ConnectOptions options = kRank0;
  options.retry_budget_ratio = 0;
  options.retry_budget_per_second = 0;
  World moving(options);
  std::deque<PlanPtr> plans;
  for (std::uint64_t version = 2; version <= 40; ++version) {
    plans.push_back(
        MakePlan({.version = version, .border = static_cast<std::uint32_t>(random() % 9 + 1)}));
  }
  moving.cluster().RefuseUnits(seed, std::move(plans));
  for (std::uint64_t step = 0; step < 100; ++step) {
    const Feature features[] = {RandomFeature(random), RandomFeature(random), RandomFeature(random),
                                RandomFeature(random), RandomFeature(random)};
    const std::vector<FeatureGradient> call = {
        features[0].For(kRowWise), features[1].For(kColumnWise), features[2].For(kPlain),
        features[3].For(kGrid), features[4].For(kRowWise)};
    ASSERT_THAT(calm.Update(call, {.step = step}), IsOk());
    ASSERT_THAT(moving.Update(call, {.step = step}), IsOk());
    for (const TableId table : {kRowWise, kColumnWise, kGrid}) {
      ASSERT_TRUE(calm.cluster().AllAt(table, step + 1)) << "table " << ToInt(table);
      ASSERT_TRUE(moving.cluster().AllAt(table, step + 1)) << "table " << ToInt(table);
    }
  }
  EXPECT_GT(moving.cluster().refusals(), 100);
  for (const TableId table : {kPlain, kRowWise, kColumnWise, kGrid}) {
    EXPECT_EQ(moving.cluster().table(table).weights(), calm.cluster().table(table).weights());
  }
}

TEST(Contributions, UnitsThatAreHereGoAgainAtOnceAndFrozenOnesLater) {
  World world;
  const Feature rows = RowsOf({7, 20, 45});
  world.cluster().RefuseClaims(
      {{{.units = {0, 0, 1}, .reason = RefusedClaim::Reason::kFrozen, .retry_after_ms = 50},
        {.units = {0, 1, 3}, .reason = RefusedClaim::Reason::kAgain},
        {.units = {0, 4, 5}, .reason = RefusedClaim::Reason::kAgain}}});
  const absl::Time begin = world.now();
  ASSERT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}), IsOk());
  const auto requests = ContributionsTo(kRowWise, world.cluster());
  ASSERT_EQ(requests.size(), 4u);
  UnitSet again = Units(0, 1, 3);
  again.Include(Units(0, 4, 5));
  EXPECT_EQ(requests[2].claim->units, again);
  EXPECT_EQ(requests[2].ids, 2u);
  EXPECT_EQ(requests[2].time, begin);
  EXPECT_EQ(requests[3].claim->units, Units(0, 0, 1));
  EXPECT_EQ(requests[3].ids, 1u);
  EXPECT_EQ(requests[3].time, begin + absl::Milliseconds(50));
  EXPECT_EQ(requests[3].seq, requests[0].seq);
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
}

TEST(Contributions, UnitsThatMovedGoWhereThePlanSaysWithoutRowsToo) {
  World world;
  const Feature nothing;
  // Units 3 and 4 go from the first node to the second.
  const PlanPtr next = MakePlan({.version = 2, .border = 3});
  world.cluster().SetNodePlan(next);
  world.cluster().SetCoordinatorPlan(next);
  ASSERT_THAT(world.Update({nothing.For(kRowWise)}, {.step = 0}), IsOk());
  const auto requests = ContributionsTo(kRowWise, world.cluster());
  ASSERT_EQ(requests.size(), 4u);
  std::map<std::string, UnitSet> again = {{requests[2].address, requests[2].claim->units},
                                          {requests[3].address, requests[3].claim->units}};
  EXPECT_EQ(again["fake:2"], Units(0, 0, 3));
  EXPECT_EQ(again["fake:3"], Units(0, 3, 5));
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
}

TEST(Contributions, FollowHintsToUnitsThatNoPlanTellsOf) {
  World world;
  const Feature rows = RowsOf({7, 40});
  world.cluster().SetCoordinatorStatus(absl::UnavailableError("the coordinator is down"));
  world.cluster().SetNodePlan(MakePlan({.version = 2, .border = 3}));
  world.cluster().GiveHints();
  const absl::Time begin = world.now();
  ASSERT_THAT(world.Update({rows.For(kRowWise), rows.For(kGrid)}, {.step = 0}), IsOk());
  EXPECT_EQ(world.now(), begin) << "nothing was waited for";
  const auto requests = ContributionsTo(kRowWise, world.cluster());
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
  EXPECT_TRUE(world.cluster().AllAt(kGrid, 1));
  // The next step's claims go there at once.
  ASSERT_THAT(world.Update({rows.For(kRowWise), rows.For(kGrid)}, {.step = 1}), IsOk());
  EXPECT_EQ(ContributionsTo(kRowWise, world.cluster()).size(), 6u);
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 2));
  EXPECT_TRUE(world.cluster().AllAt(kGrid, 2));
}

TEST(Contributions, AreRepeatedUnderTheSameNumberWhileANodeIsAway) {
  ConnectOptions options = kRank0;
  options.retry_budget_ratio = 0;
  options.retry_budget_per_second = 0;
  World world(options);
  const Feature rows = RowsOf({7});
  // More than the budget of retries has.
  std::vector<absl::Status> answers(12, absl::UnavailableError("a change of members is open"));
  answers.push_back(absl::ResourceExhaustedError("step 0 is too far ahead"));
  answers.push_back(absl::DeadlineExceededError("no reply in time"));
  world.cluster().FailNext("fake:2", answers);
  ASSERT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}), IsOk());
  const auto requests = ContributionsTo(kRowWise, world.cluster());
  EXPECT_EQ(requests.size(), 16u);
  for (const FakeCluster::Request& request : requests) EXPECT_EQ(request.seq, UpdateSeq{1});
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
}

TEST(Contributions, ToAStepThatIsOverEndTheCall) {
  World world;
  const Feature rows = RowsOf({7});
  world.cluster().FailAll("fake:2",
                          absl::FailedPreconditionError("step 0 is over, step 4 is next"));
  EXPECT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("step 4 is next")));
  EXPECT_EQ(ContributionsTo(kRowWise, world.cluster()).size(), 2u);
}

TEST(Contributions, AreSentAgainUntilThePlanIsTheNodes) {
  World world;
  const Feature rows = RowsOf({7});
  world.cluster().FailNext(
      "fake:2", std::vector<absl::Status>(
                    9, absl::FailedPreconditionError("column 4 is elsewhere; refresh the plan")));
  EXPECT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}), IsOk());
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
}

TEST(Contributions, AreSentOnceMoreWhereTheNodeMayHaveANewerPlan) {
  World world;
  const Feature rows = RowsOf({7});
  world.cluster().FailNext("fake:2", {absl::FailedPreconditionError("rank 0 is no member")});
  world.cluster().SetCoordinatorPlan(MakePlan({.version = 2}));
  EXPECT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}), IsOk());
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
}

TEST(Contributions, ThatANodeWouldRefuseAreNotSentToOthers) {
  World world;
  Feature rows = RowsOf({7, 60});
  rows.gradients.back() = std::numeric_limits<float>::infinity();
  EXPECT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NaN or infinite")));
  rows = RowsOf({7, kRows});
  EXPECT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("id 103")));
  EXPECT_TRUE(world.cluster().requests().empty());
}

TEST(Contributions, NeedARank) {
  World world({.coordinator = "fake"});
  const Feature rows = RowsOf({7});
  EXPECT_THAT(world.Update({rows.For(kRowWise)}, {.step = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("connect with rank")));
  EXPECT_THAT(world.client().JoinSteps({"row_wise"}, absl::Seconds(1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("connect with rank")));
}

TEST(Contributions, OfASessionThatTookTheRankOverSaySoForAWhile) {
  ConnectOptions options = kRank0;
  options.trainer = "t";
  World world(options, SessionId{12});
  EXPECT_TRUE(world.client().has_taken_over());
  const Feature rows = RowsOf({7});
  const std::uint64_t first = 0;
  for (std::uint64_t step = first; step < first + 258; ++step) {
    ASSERT_THAT(world.Update({rows.For(kRowWise)}, {.step = step}), IsOk());
  }
  for (const FakeCluster::Request& request : ContributionsTo(kRowWise, world.cluster())) {
    EXPECT_EQ(request.claim->resumes, request.step < first + 256) << request.step;
  }
}

TEST(Contributions, OfOneNodeDoNotWaitForTheAnswersOfAnother) {
  World world;
  world.cluster().Hold("fake:2");
  const Feature rows = RowsOf({7});
  std::promise<absl::Status> done;
  world.client().UpdateAsync({rows.For(kRowWise), rows.For(kGrid)}, {.step = 0},
                             [&](const absl::Status& status) { done.set_value(status); });
  AwaitFor([&] { return world.cluster().requests().size() == 3; }, absl::Seconds(60),
           "every shard has its part");
  world.cluster().Release("fake:2");
  EXPECT_THAT(done.get_future().get(), IsOk());
  EXPECT_TRUE(world.cluster().AllAt(kRowWise, 1));
}

TEST(JoinSteps, AsksUntilThePlanSaysSo) {
  World world(kRank0, {}, MakePlan({.members = {}}));
  std::thread coordinator([&] {
    AwaitFor([&] { return world.cluster().step_wishes().size() >= 3; }, absl::Seconds(60),
             "the client has asked three times");
    world.cluster().SetCoordinatorPlan(
        MakePlan({.version = 2,
                  .members = {{.first_step = 0, .ranks = {Rank{1}}},
                              {.first_step = 9, .ranks = {Rank{0}, Rank{1}}},
                              {.first_step = 12, .ranks = {Rank{0}}}}}));
  });
  EXPECT_THAT(world.Join({"row_wise", "grid"}, absl::Hours(10)),
              embla::testing::IsOkAndHolds(::testing::ElementsAre(9u, 9u)));
  coordinator.join();
  EXPECT_THAT(world.cluster().step_wishes().front(), ::testing::ElementsAre(kRowWise, kGrid));
  EXPECT_EQ(world.cluster().session_requests().front().rank, Rank{0});
  EXPECT_EQ(world.cluster().session_requests().front().ranks, 1u);
}

TEST(JoinSteps, TheDeadlineNamesTheRanksThatAreMissing) {
  ConnectOptions options = kRank0;
  options.ranks = 3;
  World world(options, {}, MakePlan({.members = {{.first_step = 0, .ranks = {Rank{1}}}}}));
  EXPECT_THAT(world.Join({"row_wise"}, absl::Seconds(5)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       ::testing::AllOf(HasSubstr("members are ranks 1"),
                                        HasSubstr("missing are 0, 2 of 3"))));
  EXPECT_EQ(world.cluster().step_wishes().size(), 5u);
}

TEST(JoinSteps, AsksOnceAlsoWhereThePlanHasTheRank) {
  World world;
  EXPECT_FALSE(world.client().has_taken_over());
  EXPECT_THAT(world.Join({"row_wise"}, absl::Seconds(5)),
              embla::testing::IsOkAndHolds(::testing::ElementsAre(0u)));
  EXPECT_EQ(world.cluster().step_wishes().size(), 1u);
  // Another session has the rank.
  world.cluster().SetCoordinatorStatus(absl::FailedPreconditionError("it is session 5's"));
  EXPECT_THAT(world.Join({"row_wise"}, absl::Seconds(3)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("session 5's")));
  EXPECT_EQ(world.cluster().step_wishes().size(), 4u);
}

TEST(JoinSteps, OfAnOrdinaryTableIsAnError) {
  World world;
  EXPECT_THAT(world.Join({"plain"}, absl::Seconds(5)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no synchronous steps")));
}

}  // namespace
}  // namespace embla::client::contributions_test
