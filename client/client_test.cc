// The client against nodes in memory that fail on command, on a clock that the test moves.
#include <cmath>
#include <fstream>
#include <future>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/route/testing/random_plan.h"
#include "client/testing/fake_cluster.h"
#include "client/transport/testing/manual_timer.h"
#include "core/base/failpoint.h"
#include "core/base/retry_hint.h"
#include "core/base/testing/await.h"
#include "core/base/testing/log_lines.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"

namespace embla::client {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::LinesWith;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kRows = 100;
constexpr std::uint32_t kDim = 4;

// Table "clicks" split by rows over the nodes 1 and 2, table "copied" on both, 1 is the primary,
// table "wide" split by columns. Node n's address is fake:n and `suffix`.
PlanPtr MakePlan(std::uint64_t version, const std::string& suffix = "", std::int64_t border = 50) {
  std::vector<NodeSpec> nodes;
  for (std::uint32_t n = 1; n <= 2; ++n) {
    nodes.push_back({NodeId{n}, absl::StrCat("n", n), absl::StrCat("fake:", n, suffix), {{}}});
  }
  const DeviceId on1{NodeId{1}, 0}, on2{NodeId{2}, 0};
  std::vector<TablePlan> tables(3);
  const char* names[] = {"clicks", "copied", "wide"};
  for (std::uint32_t t = 0; t < tables.size(); ++t) {
    tables[t].spec = {.id = TableId{t + 1}, .name = names[t], .rows = kRows, .dim = kDim};
    tables[t].spec.SetDefaults();
  }
  tables[0].spec.optimizer.kind = OptimizerKind::kSgd;
  tables[0].replicas = {{{0, border, 0, kDim, on1}, {border, kRows, 0, kDim, on2}}};
  tables[1].replicas = {{{0, kRows, 0, kDim, on1}}, {{0, kRows, 0, kDim, on2}}};
  tables[2].replicas = {{{0, kRows, 0, 1, on1}, {0, kRows, 1, kDim, on2}}};
  return std::make_shared<Plan>(PlanVersion{version}, "test", std::move(nodes), std::move(tables));
}

class ClientTest : public ::testing::Test {
 protected:
  // Ids of both nodes.
  static constexpr std::int64_t kIds[] = {7, 93, 7};

  explicit ClientTest(ConnectOptions options = {.coordinator = "fake"})
      : options_(std::move(options)) {}

  void SetUp() override {
    auto timer = std::make_unique<ManualTimer>(absl::FromUnixSeconds(1'000'000));
    timer_ = timer.get();
    ClientImpl::World world{std::move(timer), cluster_.MakeCoordinator(),
                            [this](const NodeSpec& node, Timer& timer) {
                              return cluster_.MakeChannel(node.address, timer);
                            }};
    auto client = ClientImpl::Open(options_, std::move(world));
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
  }

  FeatureLookup Clicks() { return {.table = "clicks", .ids = kIds, .rows_out = rows_}; }
  FeatureGradient ClicksGradient() const {
    return {.table = "clicks", .ids = kIds, .gradients = gradients_};
  }

  // Runs a call to its end, moving the clock whenever nothing else happens.
  absl::Status Finish(const std::function<void(DoneCallback)>& start) {
    std::promise<absl::Status> promise;
    std::future<absl::Status> future = promise.get_future();
    start([&](absl::Status status) { promise.set_value(std::move(status)); });
    return timer_->RunUntilReady(future);
  }
  absl::Status Lookup(const FeatureLookup& feature, const CallOptions& options = {}) {
    return Finish([&](DoneCallback done) { client_->LookupAsync({feature}, options, done); });
  }
  absl::Status Update(const FeatureGradient& feature, const CallOptions& options = {}) {
    return Finish([&](DoneCallback done) { client_->UpdateAsync({feature}, options, done); });
  }

  void ExpectRows(std::uint32_t table) {
    for (std::size_t i = 0; i < std::size(kIds); ++i) {
      for (std::uint32_t c = 0; c < kDim; ++c) {
        EXPECT_EQ(rows_[i * kDim + c], cluster_.table(TableId{table}).weight(kIds[i], c));
      }
    }
  }

  const ConnectOptions options_;
  FakeCluster cluster_{MakePlan(1)};
  ManualTimer* timer_ = nullptr;  // The client's.
  std::vector<float> rows_ = std::vector<float>(3 * kDim);
  std::vector<float> gradients_ = std::vector<float>(3 * kDim, 0.25f);
  std::unique_ptr<Client> client_;  // Last: it talks to the cluster.
};

constexpr std::int64_t ClientTest::kIds[];

TEST_F(ClientTest, LookupFillsRowsFromEveryNode) {
  const FeatureLookup feature = Clicks();
  ASSERT_EQ(client_->Lookup({&feature, 1}, {}), absl::OkStatus());
  ExpectRows(1);
  EXPECT_EQ(cluster_.requests().size(), 2u);
}

TEST_F(ClientTest, UpdateStepsEveryRowOnceAndNumbersUpdates) {
  const float before = cluster_.table(TableId{1}).weight(7, 0);
  const FeatureGradient feature = ClicksGradient();
  ASSERT_EQ(client_->Update({&feature, 1}, {}), absl::OkStatus());
  ASSERT_EQ(client_->Update({&feature, 1}, {}), absl::OkStatus());
  const float step = cluster_.table(TableId{1}).spec().optimizer.learning_rate * 0.5f;
  EXPECT_EQ(cluster_.table(TableId{1}).weight(7, 0), before - step - step);
  const auto requests = cluster_.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(ToInt(requests[0].seq), 1u);
  EXPECT_EQ(ToInt(requests[3].seq), 2u);
  EXPECT_EQ(ToInt(requests[3].first_incomplete), 2u);
}

TEST_F(ClientTest, NothingToDoIsDoneAtOnce) {
  EXPECT_EQ(client_->Lookup({}, {}), absl::OkStatus());
  EXPECT_EQ(client_->Update({}, {}), absl::OkStatus());
  EXPECT_TRUE(cluster_.requests().empty());
}

TEST_F(ClientTest, PrefetchFillsRowsWhenWaitedFor) {
  PendingLookup pending = client_->Prefetch({Clicks()}, {});
  ASSERT_EQ(pending.Wait(), absl::OkStatus());
  ExpectRows(1);
}

TEST_F(ClientTest, UnavailableNodeIsAskedAgainWithTheSameSeq) {
  const absl::Status down = absl::UnavailableError("connection refused");
  cluster_.FailNext("fake:2", {down, down, down});
  ASSERT_EQ(Update(ClicksGradient()), absl::OkStatus());
  const auto requests = cluster_.requests();
  ASSERT_EQ(requests.size(), 5u);  // Node 1 once, node 2 four times.
  for (const auto& request : requests) EXPECT_EQ(ToInt(request.seq), 1u);
  // Each wait is longer than the one before, whatever the jitter.
  EXPECT_GE(requests[2].time - requests[1].time, absl::Milliseconds(5));
  EXPECT_GE(requests[4].time - requests[3].time, absl::Milliseconds(20));
  EXPECT_THAT(client_->MetricsText(), HasSubstr("embla_client_retries_total{method=\"Update\"} 3"));
}

TEST_F(ClientTest, DeadNodeIsNamedBeforeTheDeadline) {
  cluster_.FailAll("fake:2", absl::UnavailableError("connection refused"));
  const absl::Time begin = timer_->Now();
  const absl::Status status = Lookup(Clicks(), {.timeout = absl::Seconds(3)});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("node n2 at fake:2"), HasSubstr("table clicks"),
                    HasSubstr("connection refused"), HasSubstr("attempts")));
  EXPECT_LE(timer_->Now() - begin, absl::Seconds(3));
  EXPECT_GE(timer_->Now() - begin, absl::Seconds(1));
  // The client recovers with the node.
  cluster_.FailAll("fake:2", absl::OkStatus());
  EXPECT_EQ(Lookup(Clicks()), absl::OkStatus());
  ExpectRows(1);
}

TEST_F(ClientTest, SilentNodeIsNamedAtTheDeadline) {
  cluster_.Hold("fake:1");
  const absl::Time begin = timer_->Now();
  // Ids of n1 alone: the clock may move on before the other node has been asked.
  const std::int64_t ids[] = {7, 8, 9};
  const absl::Status status =
      Lookup({.table = "clicks", .ids = ids, .rows_out = rows_}, {.timeout = absl::Seconds(3)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node n1 at fake:1"));
  EXPECT_EQ(timer_->Now() - begin, absl::Seconds(3));
}

TEST_F(ClientTest, ErrorsOfTheCallPassThroughAtOnce) {
  const std::int64_t outside[] = {7, kRows, 7};
  const absl::Status status = Lookup({.table = "clicks", .ids = outside, .rows_out = rows_});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("n1"), HasSubstr("clicks")));
  EXPECT_EQ(cluster_.requests().size(), 1u);
  cluster_.FailNext("fake:1", {absl::InvalidArgumentError("a gradient is NaN")});
  EXPECT_EQ(Update(ClicksGradient()).code(), absl::StatusCode::kInvalidArgument);
  // An update that failed does not hold back the session.
  ASSERT_EQ(Update(ClicksGradient()), absl::OkStatus());
  EXPECT_EQ(ToInt(cluster_.requests().back().first_incomplete), 2u);
}

TEST_F(ClientTest, OverloadedNodeIsAskedLater) {
  cluster_.FailNext("fake:1", {absl::ResourceExhaustedError("queue full")});
  ASSERT_EQ(Lookup(Clicks()), absl::OkStatus());
  const auto requests = cluster_.requests();
  EXPECT_GE(requests.back().time - requests.front().time, absl::Milliseconds(50));
}

TEST_F(ClientTest, ANodeSaysWhenItWantsToBeAskedAgain) {
  const absl::Status busy =
      WithRetryAfter(absl::ResourceExhaustedError("queue full"), absl::Milliseconds(300));
  cluster_.FailNext("fake:1", std::vector<absl::Status>(3, busy));
  ASSERT_EQ(Lookup(Clicks()), absl::OkStatus());
  const auto requests = cluster_.requests();
  EXPECT_GE(requests.back().time - requests.front().time, absl::Milliseconds(3 * 300));
  // No deadline is waited for in vain.
  cluster_.FailNext("fake:1", {WithRetryAfter(busy, absl::Hours(1))});
  const absl::Time before = timer_->Now();
  EXPECT_EQ(Lookup(Clicks()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(timer_->Now(), before);
}

TEST_F(ClientTest, StalePlanIsRefreshedAndOnlyTheRefusedShareIsSentAgain) {
  const PlanPtr plan = MakePlan(2, "", 8);
  cluster_.SetNodePlan(plan);
  cluster_.SetCoordinatorPlan(plan);
  const std::int64_t ids[] = {7, 20, 93};  // 20 moves from node 1 to node 2.
  const float before = cluster_.table(TableId{1}).weight(93, 0);
  ASSERT_EQ(Update({.table = "clicks", .ids = ids, .gradients = gradients_}), absl::OkStatus());
  const auto requests = cluster_.requests();
  ASSERT_EQ(requests.size(), 4u);  // Old: 1 (refused), 2. New: 1, 2.
  for (const auto& request : requests) EXPECT_EQ(ToInt(request.seq), 1u);
  EXPECT_EQ(ToInt(requests.back().plan_version), 2u);
  for (const auto& request : requests) EXPECT_EQ(ToInt(request.routed_since), 1u);
  // Row 93 was stepped by the first round alone.
  const float rate = cluster_.table(TableId{1}).spec().optimizer.learning_rate;
  EXPECT_EQ(cluster_.table(TableId{1}).weight(93, 0), before - rate * 0.25f);
  EXPECT_EQ(client_->plan_version(), 2u);
}

TEST_F(ClientTest, NodeThatIsBehindIsWaitedFor) {
  const absl::Status behind = absl::NotFoundError("no table clicks at plan 0");
  cluster_.FailNext("fake:1", {behind, behind, behind});
  EXPECT_EQ(Lookup(Clicks()), absl::OkStatus());
  ExpectRows(1);
}

TEST_F(ClientTest, NodeThatRefusesThePlanForGoodIsNamed) {
  cluster_.FailAll("fake:1", absl::FailedPreconditionError("not here"));
  const absl::Time begin = timer_->Now();
  const absl::Status status = Lookup(Clicks(), {.timeout = absl::Seconds(2)});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("n1"), HasSubstr("refuses plan 1"), HasSubstr("not here")));
  EXPECT_LE(timer_->Now() - begin, absl::Seconds(2));
}

TEST_F(ClientTest, NodeAtANewAddressIsFoundThere) {
  cluster_.FailAll("fake:2", absl::UnavailableError("connection refused"));
  cluster_.SetCoordinatorPlan(MakePlan(2, ":moved"));
  ASSERT_EQ(client_->RefreshPlan(), absl::OkStatus());
  EXPECT_EQ(Lookup(Clicks()), absl::OkStatus());
  EXPECT_EQ(cluster_.requests().back().address.substr(6), ":moved");
}

TEST_F(ClientTest, NewTableIsFoundByARefreshAndAMissingOneIsNotFound) {
  EXPECT_EQ(Lookup({.table = "none", .ids = kIds, .rows_out = rows_}).code(),
            absl::StatusCode::kNotFound);
  const PlanPtr old_plan = MakePlan(2);
  std::vector<TablePlan> tables(old_plan->tables().begin(), old_plan->tables().end());
  tables.push_back(tables[0]);
  tables[3].spec.id = TableId{4};
  tables[3].spec.name = "new";
  const auto plan = std::make_shared<Plan>(PlanVersion{3}, "test", old_plan->nodes(), tables);
  cluster_.SetCoordinatorPlan(plan);
  // The nodes do not know it: what matters is that they were asked, until the time was over.
  EXPECT_THAT(Lookup({.table = "new", .ids = kIds, .rows_out = rows_}).code(),
              AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(client_->plan_version(), 3u);
}

TEST_F(ClientTest, ConnectingAsksAgainWhenTheNetworkLosesAQuestion) {
  cluster_.LoseCoordinatorCalls(2);
  SetUp();
  EXPECT_LE(cluster_.last_lost_deadline(), timer_->Now() + absl::Seconds(5));
  EXPECT_EQ(Lookup(Clicks()), absl::OkStatus());
}

TEST_F(ClientTest, ConnectingAsksForOneSessionHoweverOften) {
  cluster_.LoseCoordinatorCalls(2);
  SetUp();
  const std::vector<SessionRequest> requests = cluster_.session_requests();
  ASSERT_EQ(requests.size(), 4u);  // The first one is of another client.
  EXPECT_NE(requests[1].client_nonce, 0u);
  EXPECT_NE(requests[1].client_nonce, requests[0].client_nonce);
  EXPECT_EQ(requests[2].client_nonce, requests[1].client_nonce);
  EXPECT_EQ(requests[3].client_nonce, requests[1].client_nonce);
}

TEST_F(ClientTest, ConnectingNamesTheSessionThatItReplaces) {
  cluster_.SetTrainerSession(SessionId{12});
  SetUp();
  const std::vector<SessionRequest> requests = cluster_.session_requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].replaces, SessionId{0});
  EXPECT_EQ(requests[2].replaces, SessionId{12});
  EXPECT_EQ(requests[2].client_nonce, requests[1].client_nonce);
  EXPECT_EQ(client_->session(), 77u);
}

TEST_F(ClientTest, EveryRequestShowsTheSessionAndItsProof) {
  ASSERT_THAT(Lookup(Clicks()), IsOk());
  ASSERT_THAT(Update(ClicksGradient()), IsOk());
  ASSERT_EQ(cluster_.requests().size(), 4u);
  for (const auto& request : cluster_.requests()) {
    EXPECT_EQ(request.session, SessionId{77});
    EXPECT_EQ(request.proof, kFakeProof);
  }
}

TEST_F(ClientTest, AnUpdateOfAClosedSessionIsNotRepeated) {
  cluster_.FailNext("fake:1", {absl::PermissionDeniedError("session 77 is closed")});
  const absl::Status status = Update(ClicksGradient());
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(cluster_.requests().size(), 2u);
}

TEST_F(ClientTest, TrainingGoesOnWhileTheCoordinatorIsDown) {
  cluster_.SetCoordinatorStatus(absl::UnavailableError("connection refused"));
  EXPECT_EQ(Lookup(Clicks()), absl::OkStatus());
  EXPECT_EQ(Update(ClicksGradient()), absl::OkStatus());
  EXPECT_EQ(client_->RefreshPlan().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientTest, LookupOfACopyFailsOverAndUpdatesGoToThePrimary) {
  const FeatureLookup copied{.table = "copied", .ids = kIds, .rows_out = rows_};
  // Session 77 reads the second copy.
  ASSERT_EQ(Lookup(copied), absl::OkStatus());
  EXPECT_EQ(cluster_.requests().back().address, "fake:2");
  cluster_.FailAll("fake:2", absl::UnavailableError("connection refused"));
  ASSERT_EQ(Lookup(copied), absl::OkStatus());
  ExpectRows(2);
  EXPECT_EQ(cluster_.requests().back().address, "fake:1");
  // For a second nobody asks node 2.
  const std::size_t before = cluster_.requests().size();
  ASSERT_EQ(Lookup(copied), absl::OkStatus());
  EXPECT_EQ(cluster_.requests().size(), before + 1);
  ASSERT_EQ(Update({.table = "copied", .ids = kIds, .gradients = gradients_}), absl::OkStatus());
  EXPECT_EQ(cluster_.requests().back().address, "fake:1");
}

TEST_F(ClientTest, UpdatesBeyondTheWindowWaitForTheOldest) {
  cluster_.Hold("fake:1");
  std::atomic<int> finished = 0;
  const int count = static_cast<int>(UpdateWindow::kSpanMax) + 10;
  for (int i = 0; i < count; ++i) {
    client_->UpdateAsync({ClicksGradient()}, {}, [&](absl::Status status) {
      EXPECT_EQ(status, absl::OkStatus());
      ++finished;
    });
  }
  // Node 2 answers at once, so that every update that was let in has one answer.
  AwaitFor([&] { return cluster_.requests().size() >= UpdateWindow::kSpanMax; }, absl::Seconds(60),
           "the window is full");
  EXPECT_EQ(finished, 0);
  for (const auto& request : cluster_.requests()) {
    EXPECT_LE(ToInt(request.seq), UpdateWindow::kSpanMax);
    EXPECT_EQ(ToInt(request.first_incomplete), 1u);
  }
  cluster_.Release("fake:1");
  AwaitFor([&] { return finished == count; }, absl::Seconds(60), "every update is answered");
  EXPECT_EQ(cluster_.requests().size(), 2u * count);
}

// A node is restarted: the calls in flight outlive it, and do not flood it.
TEST_F(ClientTest, RetriesBeyondTheBudgetWaitForItAndNoCallFails) {
  constexpr int kCalls = 40;
  constexpr absl::Duration kAway = absl::Seconds(5);
  cluster_.FailAll("fake:2", absl::UnavailableError("connection refused"));
  const absl::Time begin = timer_->Now();
  std::atomic<int> finished = 0;
  for (int i = 0; i < kCalls; ++i) {
    client_->UpdateAsync({ClicksGradient()}, {.timeout = absl::Seconds(30)},
                         [&](absl::Status status) {
                           EXPECT_EQ(status, absl::OkStatus());
                           ++finished;
                         });
  }
  const auto run_until = [&](const std::function<bool()>& over, std::string_view what) {
    AwaitFor(
        [&] {
          while (!over() && timer_->RunNext()) {
          }
          return over();
        },
        absl::Seconds(60), what);
  };
  run_until([&] { return timer_->Now() >= begin + kAway; }, "the node is away long enough");
  EXPECT_EQ(finished, 0);
  std::size_t asked = 0;
  for (const auto& request : cluster_.requests()) asked += request.address == "fake:2" ? 1 : 0;
  // Once for each call; at once, by what the calls have brought, and by time.
  EXPECT_LE(asked, kCalls + 10 + kCalls / 10 + 10 * 6);
  cluster_.FailAll("fake:2", absl::OkStatus());
  run_until([&] { return finished == kCalls; }, "every update is answered");
  EXPECT_LE(timer_->Now() - begin, kAway + absl::Seconds(5));
}

class ClientWithoutBudgetTest : public ClientTest {
 protected:
  ClientWithoutBudgetTest()
      : ClientTest({.coordinator = "fake", .retry_budget_ratio = 0, .retry_budget_per_second = 0}) {
  }
};

TEST_F(ClientWithoutBudgetTest, ErrorsPassThroughOnceTheBudgetIsUsedUp) {
  cluster_.FailAll("fake:1", absl::UnavailableError("connection refused"));
  const absl::Status status = Lookup(Clicks(), {.timeout = absl::Hours(1)});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("retry budget"), HasSubstr("node n1")));
  EXPECT_EQ(cluster_.requests().size(), 12u);  // 10 tokens, and node 2.
  EXPECT_THAT(client_->MetricsText(), HasSubstr("embla_client_retry_budget_exhausted_total 1"));
}

struct CountsElsewhere {
  Metrics shared;
};
class ClientWithSharedMetricsTest : CountsElsewhere, public ClientTest {
 protected:
  ClientWithSharedMetricsTest() : ClientTest({.coordinator = "fake", .metrics = &shared}) {}
  std::string SharedText() const { return shared.Text(); }
};

TEST_F(ClientWithSharedMetricsTest, CountsWhereItIsTold) {
  ASSERT_EQ(Update(ClicksGradient()), absl::OkStatus());
  const std::string series = "embla_client_requests_total{code=\"OK\",method=\"Update\"} 1";
  EXPECT_THAT(SharedText(), HasSubstr(series));
  EXPECT_THAT(client_->MetricsText(), HasSubstr(series));
}

std::string FileContent(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(ClientTest, ExportTableWritesANumpyFile) {
  for (const char* table : {"clicks", "wide"}) {
    const std::string path = ::testing::TempDir() + "client_test_" + table + ".npy";
    ASSERT_EQ(client_->ExportTable(table, path), absl::OkStatus());
    const std::string content = FileContent(path);
    ASSERT_GT(content.size(), 128u);
    EXPECT_EQ(content.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    EXPECT_THAT(content, HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (100, 4)"));
    const std::size_t header =
        10 + static_cast<unsigned char>(content[8]) + 256 * static_cast<unsigned char>(content[9]);
    EXPECT_EQ(header % 64, 0u);
    std::vector<float> rows(kRows * kDim);
    ASSERT_EQ(content.size(), header + rows.size() * sizeof(float));
    std::memcpy(rows.data(), content.data() + header, content.size() - header);
    EXPECT_EQ(rows, cluster_.table(TableId{table == std::string("wide") ? 3u : 1u}).weights());
    std::remove(path.c_str());
  }
}

TEST_F(ClientTest, FullDiskLeavesNothingBehind) {
  const std::string path = ::testing::TempDir() + "client_test_full.npy";
  for (const char* point : {"file.write", "file.sync", "file.open"}) {
    SetFailpoint(point, FailpointAction::kError);
    EXPECT_NE(client_->ExportTable("clicks", path), absl::OkStatus()) << point;
    ClearFailpoints();
    EXPECT_FALSE(std::ifstream(path).good()) << point;
    EXPECT_FALSE(std::ifstream(path + ".tmp").good()) << point;
  }
}

TEST_F(ClientTest, WritesRowsInPiecesWhereverTheyAre) {
  std::vector<std::int64_t> ids;
  for (std::int64_t id = kRows - 1; id >= 0; --id) ids.push_back(id);
  std::vector<float> weights(ids.size() * kDim);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  const std::vector<float> statistic(ids.size(), 9.0f);
  ASSERT_EQ(client_->WriteRows("clicks", ids, weights, {}, {}), absl::OkStatus());
  ASSERT_EQ(client_->WriteRows("wide", ids, weights, statistic, {}), absl::OkStatus());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::uint32_t c = 0; c < kDim; ++c) {
      EXPECT_EQ(cluster_.table(TableId{1}).weight(ids[i], c), weights[i * kDim + c]);
      EXPECT_EQ(cluster_.table(TableId{3}).weight(ids[i], c), weights[i * kDim + c]);
      EXPECT_EQ(cluster_.table(TableId{3}).statistic(ids[i], c), 9.0f);
    }
  }
}

TEST_F(ClientTest, AWriteThatIsWrongNamesTheIdAndWritesNothing) {
  const std::vector<std::int64_t> ids = {5, 60, 5};
  std::vector<float> weights(ids.size() * kDim, 1.0f);
  const auto write = [&](std::span<const float> state = {}) {
    const absl::Status status = client_->WriteRows("clicks", ids, weights, state, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(write(), HasSubstr("table clicks: id 5 is written twice in one call"));
  weights[kDim] = NAN;
  EXPECT_THAT(write(), HasSubstr("a weight of id 60 is NaN or infinite"));
  EXPECT_THAT(write(std::vector<float>(2)), HasSubstr("state has 2 floats"));
  weights.pop_back();
  EXPECT_THAT(write(), HasSubstr("weights has 11 floats, but 3 rows x 4 are 12"));
  weights.clear();
  EXPECT_THAT(write(), HasSubstr("neither weights nor state are given"));
  EXPECT_EQ(cluster_.requests().size(), 0u);
}

TEST_F(ClientTest, LearningRatesOfATableAgree) {
  FeatureGradient features[] = {ClicksGradient(), ClicksGradient()};
  features[0].learning_rate = 0.5f;
  absl::Status status = client_->Update(features, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("different learning rates"));
  features[0].learning_rate = features[1].learning_rate = -1.0f;
  status = client_->Update(features, {});
  EXPECT_THAT(std::string(status.message()), HasSubstr("learning_rate -1 is not finite"));
  features[0].learning_rate = features[1].learning_rate = 0.5f;
  EXPECT_EQ(client_->Update(features, {}), absl::OkStatus());
}

TEST_F(ClientTest, ErrorsTellWhatTheyAreAbout) {
  const FeatureLookup missing{.table = "clocks"};
  const ErrorDetails no_table = DetailsOf(client_->Lookup({&missing, 1}, {}));
  EXPECT_EQ(no_table.table, "clocks");
  EXPECT_FALSE(no_table.retryable);
  cluster_.FailAll("fake:2", absl::UnavailableError("gone"));
  const absl::Status update = Update(ClicksGradient(), {.timeout = absl::Seconds(3)});
  const ErrorDetails details = DetailsOf(update);
  EXPECT_EQ(details.table, "clicks");
  EXPECT_EQ(details.node, "n2");
  EXPECT_TRUE(details.retryable);
  EXPECT_TRUE(details.outcome_unknown);
  const ErrorDetails lookup = DetailsOf(Lookup(Clicks(), {.timeout = absl::Seconds(3)}));
  EXPECT_FALSE(lookup.outcome_unknown);
  EXPECT_EQ(DetailsOf(absl::OkStatus()).table, "");
}

TEST_F(ClientTest, ClosingEndsWhatIsStillInFlight) {
  cluster_.Hold("fake:2");
  std::promise<absl::Status> done;
  client_->UpdateAsync({ClicksGradient()}, {},
                       [&](absl::Status status) { done.set_value(std::move(status)); });
  ASSERT_TRUE(AwaitFor([&] { return cluster_.requests().size() == 1 && cluster_.held() == 1; },
                       absl::Seconds(10), "one node has answered, the other one has not"));
  const absl::Status closed = client_->Close(absl::ZeroDuration());
  EXPECT_EQ(closed.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(closed.message()), HasSubstr("1 calls in flight"));
  const absl::Status update = done.get_future().get();
  EXPECT_EQ(update.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(DetailsOf(update).outcome_unknown);
  EXPECT_EQ(Lookup(Clicks()).code(), absl::StatusCode::kFailedPrecondition);
  const FeatureLookup feature = Clicks();
  EXPECT_EQ(client_->Lookup({&feature, 1}, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_->Close(absl::ZeroDuration()), absl::OkStatus());
}

TEST_F(ClientTest, ReadsRowsAndStateInTheOrderOfTheIds) {
  ASSERT_EQ(Update({.table = "wide", .ids = kIds, .gradients = gradients_}), absl::OkStatus());
  ASSERT_EQ(client_->ReadRows("wide", kIds, rows_), absl::OkStatus());
  ExpectRows(3);
  ASSERT_EQ(client_->StateFloatsPerRow("wide").value(), 1u);
  std::vector<float> state(3);
  ASSERT_EQ(client_->ReadState("wide", kIds, state), absl::OkStatus());
  const PlainTable& wide = cluster_.table(TableId{3});
  EXPECT_THAT(state,
              ElementsAre(wide.statistic(7, 0), wide.statistic(93, 0), wide.statistic(7, 0)));
  EXPECT_THAT(state, Each(Not(0.0f)));
  const std::int64_t outside[] = {-1, 0, 1};
  EXPECT_EQ(client_->ReadState("wide", outside, state).code(), absl::StatusCode::kOutOfRange);
}

// Table "clicks" in three replica groups.
PlanPtr GroupedPlan() {
  const PlanPtr plan = MakePlan(2);
  std::vector<TablePlan> tables(plan->tables().begin(), plan->tables().end());
  tables[0].spec.replica_groups = 3;
  tables[0].replicas.resize(3, tables[0].replicas[0]);
  return std::make_shared<Plan>(plan->version(), "test", plan->nodes(), std::move(tables));
}

TEST_F(ClientTest, RequestsNameTheGroupThatTheSessionsTurnGives) {
  cluster_.SetCoordinatorPlan(GroupedPlan());
  ASSERT_THAT(client_->RefreshPlan(), IsOk());
  FeatureLookup clicks = Clicks();
  ASSERT_THAT(client_->Lookup({&clicks, 1}, {}), IsOk());
  const FeatureGradient gradient = ClicksGradient();
  ASSERT_THAT(client_->Update({&gradient, 1}, {}), IsOk());
  ASSERT_EQ(cluster_.requests().size(), 4u);
  for (const FakeCluster::Request& request : cluster_.requests()) {
    EXPECT_EQ(request.replica_group, 5u % 3);
  }
  EXPECT_EQ(client_->Tables()[0].replica_groups, 3u);
  EXPECT_EQ(client_->Tables()[0].replica_group, 2u);
  EXPECT_EQ(client_->Tables()[1].replica_group, 0u);
}

class ClientOfGroupTest : public ClientTest {
 protected:
  ClientOfGroupTest() : ClientTest({.coordinator = "fake", .replica_group = 1}) {}
};

TEST_F(ClientOfGroupTest, AStatedGroupIsTakenAndMustExist) {
  FeatureLookup clicks = Clicks();
  ASSERT_THAT(client_->Lookup({&clicks, 1}, {}), IsOk());  // No groups: nothing to be stated.
  EXPECT_EQ(cluster_.requests().back().replica_group, 0u);
  cluster_.SetCoordinatorPlan(GroupedPlan());
  ASSERT_THAT(client_->RefreshPlan(), IsOk());
  ASSERT_THAT(client_->Lookup({&clicks, 1}, {}), IsOk());
  EXPECT_EQ(cluster_.requests().back().replica_group, 1u);
}

TEST_F(ClientTest, SyncAsksEveryNodeOnceAndAddsUpWhatTheyFound) {
  cluster_.SetCoordinatorPlan(GroupedPlan());
  ASSERT_THAT(client_->RefreshPlan(), IsOk());
  cluster_.FailNext("fake:2", {absl::UnavailableError("the plan is not here yet")});
  const auto synced = client_->Sync({}, {});
  ASSERT_THAT(synced, IsOk());
  EXPECT_EQ(cluster_.requests().size(), 3u);
  ASSERT_EQ(synced->size(), 1u);
  EXPECT_EQ(synced->front().table, "clicks");
  EXPECT_EQ(synced->front().replica_groups, 3u);
  EXPECT_EQ(synced->front().divergence_max, 2.0);
  EXPECT_EQ(synced->front().divergence_rms, 1.0);
}

TEST_F(ClientTest, SyncAsksAgainForUnitsThatWereBeingHandedOver) {
  cluster_.SetCoordinatorPlan(GroupedPlan());
  ASSERT_THAT(client_->RefreshPlan(), IsOk());
  cluster_.LeaveOutOnce(0);
  const auto synced = client_->Sync({}, {});
  ASSERT_THAT(synced, IsOk());
  EXPECT_EQ(cluster_.requests().size(), 3u);
}

TEST_F(ClientTest, SyncNamesTheNodesThatFailed) {
  EXPECT_THAT(client_->Sync({"clicks"}, {}), IsOk());  // No groups: nothing to do.
  EXPECT_TRUE(cluster_.requests().empty());
  EXPECT_EQ(client_->Sync({"none"}, {}).status().code(), absl::StatusCode::kNotFound);
  cluster_.SetCoordinatorPlan(GroupedPlan());
  ASSERT_THAT(client_->RefreshPlan(), IsOk());
  cluster_.FailAll("fake:1", absl::UnavailableError("away"));
  cluster_.FailAll("fake:2", absl::DataLossError("broken"));
  const absl::Status status = client_->Sync({"clicks"}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("node n1 at fake:1 did not average: away"),
                    HasSubstr("node n2 at fake:2 did not average: broken")));
}

TEST_F(ClientTest, TellsItsTables) {
  const std::vector<TableInfo> tables = client_->Tables();
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].name, "clicks");
  EXPECT_EQ(tables[0].rows, kRows);
  EXPECT_EQ(tables[0].dim, kDim);
  EXPECT_EQ(tables[0].dtype, "fp32");
  EXPECT_EQ(tables[0].optimizer, "sgd");
  EXPECT_EQ(client_->session(), 77u);
}

TEST(ConnectOptionsValidate, NamesTheFieldThatIsWrong) {
  const auto message = [](const ConnectOptions& options) { return Message(options.Validate()); };
  EXPECT_EQ(message({.coordinator = "a:1"}), "");
  EXPECT_THAT(message({}), HasSubstr("coordinator"));
  EXPECT_THAT(message({.coordinator = "a:1", .threads = 0}), HasSubstr("threads"));
  EXPECT_THAT(message({.coordinator = "a:1", .timeout = absl::ZeroDuration()}),
              HasSubstr("timeout"));
  EXPECT_THAT(message({.coordinator = "a:1", .retry_budget_ratio = -1}),
              HasSubstr("retry_budget_ratio"));
  EXPECT_EQ(message({.coordinator = "a:1", .rank = 3, .ranks = 4}), "");
  EXPECT_THAT(message({.coordinator = "a:1", .rank = 0}), HasSubstr("rank and ranks"));
  EXPECT_THAT(message({.coordinator = "a:1", .ranks = 2}), HasSubstr("rank and ranks"));
  EXPECT_THAT(message({.coordinator = "a:1", .rank = 4, .ranks = 4}), HasSubstr("below ranks, 4"));
}

class TracedClient : public ClientTest {
 protected:
  TracedClient()
      : ClientTest({.coordinator = "fake", .traceparent = [this] {
                      ++asked_;
                      return traceparent_;
                    }}) {}

  int asked_ = 0;
  std::string traceparent_ = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
};

TEST_F(TracedClient, EachMessageIsASpanOfItsOwnUnderTheCalls) {
  cluster_.FailNext("fake:2", {absl::UnavailableError("down")});
  ::testing::internal::CaptureStderr();
  ASSERT_THAT(Update(ClicksGradient()), IsOk());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(asked_, 1);

  auto calls = LinesWith(log, "I client traced call ");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(calls[0]["parent_id"], "b7ad6b7169203331");
  EXPECT_EQ(calls[0]["method"], "Update");
  EXPECT_EQ(calls[0]["status"], "OK");
  EXPECT_EQ(calls[0]["messages"], "3");
  std::set<std::string> sent, logged;
  for (const FakeCluster::Request& request : cluster_.requests()) {
    EXPECT_EQ(request.trace.TraceId(), calls[0]["trace_id"]);
    EXPECT_TRUE(request.trace.sampled);
    sent.insert(SpanIdText(request.trace.span));
  }
  std::vector<std::string> ends;
  for (auto& message : LinesWith(log, "I client traced message ")) {
    EXPECT_EQ(message["trace_id"], calls[0]["trace_id"]);
    EXPECT_EQ(message["parent_id"], calls[0]["span_id"]);
    logged.insert(message["span_id"]);
    ends.push_back(message["node"] + " " + message["attempt"] + " " + message["status"]);
  }
  EXPECT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent.count(calls[0]["span_id"]), 0u);
  EXPECT_EQ(logged, sent);
  EXPECT_THAT(ends, ::testing::UnorderedElementsAre("n1 1 OK", "n2 1 UNAVAILABLE", "n2 2 OK"));
}

TEST_F(TracedClient, ErrorsNameTheTraceAndOnlySampledCallsAreLogged) {
  traceparent_.back() = '0';
  cluster_.FailAll("fake:2", absl::InvalidArgumentError("bad"));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(
      Message(Lookup(Clicks())),
      AllOf(HasSubstr("trace 0af7651916cd43dd8448eb211c80319c: node n2"), HasSubstr("bad")));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(cluster_.requests().front().trace.sampled);
}

TEST_F(TracedClient, WhatIsNoTraceparentIsNoTrace) {
  cluster_.FailAll("fake:2", absl::InvalidArgumentError("bad"));
  for (const char* const text : {"", "00-0af7651916cd43dd"}) {
    traceparent_ = text;
    EXPECT_THAT(Message(Lookup(Clicks())), Not(HasSubstr("trace")));
  }
  for (const auto& request : cluster_.requests()) EXPECT_FALSE(request.trace.is_set());
}

TEST_F(TracedClient, LinesBeyondTheBoundAreCounted) {
  ::testing::internal::CaptureStderr();
  const FeatureLookup feature = Clicks();
  for (int i = 0; i < 400; ++i) ASSERT_THAT(client_->Lookup({&feature, 1}, {}), IsOk());
  EXPECT_EQ(LinesWith(::testing::internal::GetCapturedStderr(), " traced ").size(), 1000u);
  EXPECT_THAT(client_->MetricsText(), HasSubstr("embla_client_trace_lines_dropped_total 200"));
}

}  // namespace
}  // namespace embla::client
