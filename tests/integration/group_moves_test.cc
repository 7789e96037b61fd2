// Tables with replica groups move between real servers, and between the devices of one, while
// trainers of both groups update and average them. A table that never moves gets the very same
// updates: in each group both end with the same bits, state included. One node is killed on the way
// and comes back with its journal.
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::group_moves_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 6000;
constexpr std::uint32_t kDim = 16;
constexpr std::uint32_t kGroups = 2;
constexpr int kRoundsBetweenSyncs = 3;
constexpr absl::Duration kJobMax = absl::Minutes(3);

struct Copy {
  std::vector<float> weights;
  std::vector<float> state;
  bool operator==(const Copy&) const = default;
};

class GroupMovesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::uint32_t seed = embla::testing::TestSeed();
    auto started = ProcessCluster::Start({.nodes = 2, .devices_per_node = 4, .journals = true});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    const char* const units = R"("row_granules":48)";
    Create("moved", kRows, units, R"({"sharding":"row_wise"})");
    Create(
        "still", kRows, units,
        absl::StrCat(R"({"sharding":"table_wise","nodes":[")", cluster_->node_name(0), R"("]})"));
    for (std::uint32_t group = 0; group < kGroups; ++group) {
      auto client = cluster_->Connect(
          {.timeout = absl::Seconds(120), .retry_budget_per_second = 1000, .replica_group = group});
      ASSERT_THAT(client, IsOk());
      trainers_.push_back(*std::move(client));
      random_.emplace_back(seed + group);
    }
  }

  void Create(const std::string& name, std::int64_t rows, const std::string& fields,
              const std::string& placement) {
    const auto created = admin_->Call<v1::TableReply>(client::CreateTableRequest(
        absl::StrCat(R"({"name":")", name, R"(","rows":)", rows, R"(,"dim":)", kDim, ",", fields,
                     R"(,"replica_groups":)", kGroups,
                     R"(,"seed":7,"init":{"kind":"uniform","a":-1.0,"b":1.0})",
                     R"(,"optimizer":{"kind":"adam","learning_rate":0.1}})"),
        placement));
    ASSERT_THAT(created, IsOk());
  }

  // A trainer's lookup and update of the same rows of all tables that are trained.
  absl::Status Step(std::uint32_t group) {
    std::mt19937& random = random_[group];
    std::vector<std::int64_t> ids(1 + random() % 60);
    for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % trained_rows_);
    std::uniform_real_distribution<float> any(-1, 1);
    std::vector<float> gradients(ids.size() * kDim);
    for (float& gradient : gradients) gradient = any(random);
    std::vector<std::vector<float>> rows;
    std::vector<FeatureGradient> features;
    for (const std::string& table : trained_) {
      rows.emplace_back(gradients.size());
      const FeatureLookup lookup{.table = table, .ids = ids, .rows_out = rows.back()};
      const absl::Status looked_up = trainers_[group]->Lookup({&lookup, 1}, {});
      if (!looked_up.ok()) return looked_up;
      features.push_back({.table = table, .ids = ids, .gradients = gradients});
    }
    EXPECT_EQ(rows.front(), rows.back()) << "group " << group << " round " << rounds_;
    return trainers_[group]->Update(features, {});
  }

  // All trainers at once; then, now and then, an averaging.
  void Round() {
    std::vector<std::thread> threads;
    for (std::uint32_t group = 0; group < kGroups; ++group) {
      threads.emplace_back([this, group] {
        const absl::Status status = Step(group);
        EXPECT_THAT(status, IsOk()) << "group " << group;
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (++rounds_ % kRoundsBetweenSyncs != 0) return;
    const auto synced = trainers_[rounds_ % kGroups]->Sync({}, {});
    EXPECT_THAT(synced, IsOk());
  }

  // Trains until the job is over; `meanwhile` is called once, a few rounds after it began.
  void Run(const v1::StartJobRequest& request, const std::function<void()>& meanwhile = nullptr) {
    auto job = client::CallForJob(*admin_, request);
    ASSERT_THAT(job, IsOk());
    const int before = rounds_;
    const absl::Time late = absl::Now() + kJobMax;
    for (bool called = meanwhile == nullptr; job.ok();
         job = client::CallForJob(*admin_, client::GetJobRequest(job->id()))) {
      if (!called && rounds_ >= before + 2) {
        meanwhile();
        called = true;
      }
      const bool is_over = job->state() != v1::JOB_STATE_RUNNING;
      if (is_over && called && rounds_ >= before + 2 * kRoundsBetweenSyncs) break;
      Round();
      if (absl::Now() > late) ADD_FAILURE() << "the job does not end: " << job->DebugString();
      if (HasFailure()) FAIL() << cluster_->LogTails();
    }
    ASSERT_THAT(job, IsOk());
    EXPECT_EQ(job->state(), v1::JOB_STATE_DONE) << job->error();
    EXPECT_GT(job->units_moved(), 0u);
    std::cout << job->description() << ": units=" << job->units_moved()
              << " rounds=" << rounds_ - before << '\n';
  }

  Copy Read(std::uint32_t group, const std::string& table) {
    std::vector<std::int64_t> ids(trained_rows_);
    for (std::size_t row = 0; row < ids.size(); ++row) ids[row] = static_cast<std::int64_t>(row);
    Client& client = *trainers_[group];
    Copy copy{std::vector<float>(ids.size() * kDim), {}};
    copy.state.resize(ids.size() * client.StateFloatsPerRow(table).value_or(0));
    EXPECT_THAT(client.ReadRows(table, ids, copy.weights), IsOk());
    EXPECT_THAT(client.ReadState(table, ids, copy.state), IsOk());
    return copy;
  }

  void ExpectSameBits() {
    for (std::uint32_t group = 0; group < kGroups; ++group) {
      EXPECT_TRUE(Read(group, "moved") == Read(group, "still")) << "group " << group;
    }
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::vector<std::unique_ptr<Client>> trainers_;  // By group.
  std::vector<std::mt19937> random_;
  std::vector<std::string> trained_ = {"moved", "still"};
  std::size_t trained_rows_ = kRows;
  int rounds_ = 0;
};

TEST_F(GroupMovesTest, EveryCopyHasTheBitsOfNoMovesAfterDrainsAndReshards) {
  const std::string drained = cluster_->node_name(1);
  Run(client::DrainRequest(drained));
  ExpectSameBits();
  ASSERT_THAT(client::CallForJob(*admin_, client::UndrainRequest(drained)), IsOk());
  // Both of group 0's devices on both nodes, and then less, also within the nodes.
  for (const std::uint32_t shards : {4u, 2u, 3u, 1u}) {
    Run(client::ReshardRequest("moved", shards));
    if (HasFatalFailure()) return;
  }
  ExpectSameBits();
  ASSERT_THAT(trainers_[0]->Sync({}, {}), IsOk());
  const auto verified = cluster_->Embla("verify --table moved --synced");
  EXPECT_EQ(verified.second, 0) << verified.first;
  EXPECT_THAT(verified.first, HasSubstr("all well"));
  ExpectSameBits();
}

TEST_F(GroupMovesTest, ANodeThatIsKilledOnTheWayComesBackWithAllCopies) {
  const std::string drained = cluster_->node_name(1);
  for (const int killed : {1, 0}) {
    v1::StartJobRequest drain = client::DrainRequest(drained);
    drain.set_bytes_per_second(1'500'000);
    Run(drain, [&] {
      cluster_->KillNode(killed);
      std::thread restart([&] {
        const absl::Status restarted = cluster_->RestartNode(killed);
        EXPECT_THAT(restarted, IsOk());
      });
      Round();
      restart.join();
    });
    if (HasFatalFailure()) return;
    ASSERT_THAT(client::CallForJob(*admin_, client::UndrainRequest(drained)), IsOk());
    Run(client::ReshardRequest("moved", 4));
    ExpectSameBits();
  }
}

// Units of several chunks, whose copies change by averaging after each step while they are copied.
TEST_F(GroupMovesTest, LargeUnitsThatAreAveragedAfterEachStepMoveToo) {
  trained_ = {"often"};
  trained_rows_ = 60'000;
  Create("often", static_cast<std::int64_t>(trained_rows_),
         R"("row_granules":6,"sync_every_steps":1)", R"({"sharding":"row_wise"})");
  for (const auto& trainer : trainers_) ASSERT_THAT(trainer->RefreshPlan(), IsOk());
  const std::string drained = cluster_->node_name(1);
  for (int round = 0; round < 2; ++round) {
    Run(client::DrainRequest(drained));
    if (HasFatalFailure()) return;
    ASSERT_THAT(client::CallForJob(*admin_, client::UndrainRequest(drained)), IsOk());
    Run(client::ReshardRequest("often", 4));
    if (HasFatalFailure()) return;
    ASSERT_THAT(trainers_[0]->Sync({"often"}, {}), IsOk());
    EXPECT_TRUE(Read(0, "often") == Read(1, "often"));
  }
  const auto verified = cluster_->Embla("verify --table often --synced");
  EXPECT_EQ(verified.second, 0) << verified.first;
}

}  // namespace
}  // namespace embla::group_moves_test
