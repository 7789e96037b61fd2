// A trainer that comes back takes over from the process before it: when it is connected, nothing
// that the other one had sent, or sends yet, takes effect any more, on any node, dead ones
// included.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::trainer_takeover_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;
using ::testing::Each;

constexpr std::uint32_t kDim = 8;
constexpr std::int64_t kRows = 256;

class TrainerTakeover : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start({.nodes = 2, .devices_per_node = 1, .journals = true});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    const auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    const auto created = (*admin)->Call<v1::TableReply>(client::CreateTableRequest(
        R"({"name":"t","rows":256,"dim":8,"optimizer":{"kind":"sgd","learning_rate":1.0},)"
        R"("init":{"kind":"constant","a":0.0}})",
        R"({"sharding":"row_wise"})"));
    ASSERT_THAT(created, IsOk());
    for (std::int64_t row = 0; row < kRows; ++row) ids_.push_back(row);
  }

  std::unique_ptr<Client> Connect(const std::string& trainer) {
    auto client = cluster_->Connect({.trainer = trainer, .timeout = embla::testing::kAwaitMax});
    EXPECT_THAT(client, IsOk()) << cluster_->LogTails();
    return client.ok() ? *std::move(client) : nullptr;
  }
  // Adds 1 to every weight.
  absl::Status AddOne(Client& client) {
    const std::vector<float> gradients(ids_.size() * kDim, -1.0f);
    const FeatureGradient feature{.table = "t", .ids = ids_, .gradients = gradients};
    return client.Update({&feature, 1}, {});
  }
  std::vector<float> Weights(Client& client) {
    std::vector<float> rows(ids_.size() * kDim);
    const FeatureLookup feature{.table = "t", .ids = ids_, .rows_out = rows};
    const absl::Status status = client.Lookup({&feature, 1}, {});
    EXPECT_THAT(status, IsOk());
    return rows;
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::vector<std::int64_t> ids_;
};

TEST_F(TrainerTakeover, EndsTheUpdatesOfTheProcessBefore) {
  const auto before = Connect("t0");
  ASSERT_THAT(AddOne(*before), IsOk());
  const auto other = Connect("t1");
  const auto after = Connect("t0");
  const absl::Status late = AddOne(*before);
  EXPECT_TRUE(absl::IsPermissionDenied(late)) << late;
  EXPECT_THAT(Weights(*after), Each(1.0f));
  EXPECT_THAT(AddOne(*after), IsOk());
  EXPECT_THAT(AddOne(*other), IsOk());
  EXPECT_THAT(Weights(*after), Each(3.0f));
}

TEST_F(TrainerTakeover, IsRefusedByNodesThatDiedAndByACoordinatorThatDied) {
  const auto before = Connect("t0");
  ASSERT_THAT(AddOne(*before), IsOk());
  const auto after = Connect("t0");
  cluster_->KillCoordinator();
  for (const int node : {0, 1}) {
    cluster_->KillNode(node);
    ASSERT_THAT(cluster_->StartNode(node), IsOk()) << cluster_->LogTails();
  }
  const absl::Status late = AddOne(*before);
  EXPECT_TRUE(absl::IsPermissionDenied(late)) << late;
  ASSERT_THAT(cluster_->RestartCoordinator(), IsOk()) << cluster_->LogTails();
  const auto last = Connect("t0");
  const absl::Status refused = AddOne(*after);
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(Weights(*last), Each(1.0f));
}

TEST_F(TrainerTakeover, WaitsForANodeThatIsAway) {
  const auto before = Connect("t0");
  ASSERT_THAT(AddOne(*before), IsOk());
  cluster_->KillNode(1);
  const auto early = cluster_->Connect({.trainer = "t0", .timeout = absl::Seconds(1)});
  EXPECT_TRUE(absl::IsUnavailable(early.status())) << early.status();
  EXPECT_THAT(std::string(early.status().message()), ::testing::HasSubstr("node1"));
  std::unique_ptr<Client> after;
  std::thread successor([&] { after = Connect("t0"); });
  ASSERT_THAT(cluster_->RestartNode(1), IsOk()) << cluster_->LogTails();
  successor.join();
  ASSERT_NE(after, nullptr);
  EXPECT_TRUE(absl::IsPermissionDenied(AddOne(*before)));
  EXPECT_THAT(Weights(*after), Each(1.0f));
}

}  // namespace
}  // namespace embla::trainer_takeover_test
