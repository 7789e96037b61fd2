// Programs that may not serve end, and say why: nodes without the rows that they had, nodes without
// the cluster's key.

#include <filesystem>
#include <string>
#include <vector>

#include "client/include/embla/client.h"
#include "core/base/cluster_key.h"
#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::node_identity_test {
namespace {

namespace fs = std::filesystem;

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using embla::testing::IsOk;
using embla::testing::ProcessCluster;
using embla::testing::TempDirectory;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kDim = 8;

// One node with a data directory, and a table that was trained: every weight of ids_ is 1.
class NodeIdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start({.nodes = 1, .devices_per_node = 1, .journals = true});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    ASSERT_THAT((*admin)->Call<v1::TableReply>(client::CreateTableRequest(
                    R"({"name":"clicks","rows":1000,"dim":8,"dtype":"fp32",)"
                    R"("optimizer":{"kind":"sgd","learning_rate":1.0},)"
                    R"("init":{"kind":"constant","a":0.0}})",
                    R"({"sharding":"row_wise"})")),
                IsOk());
    auto client = cluster_->Connect();
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
    AddOne();
  }

  void AddOne() {
    const std::vector<float> gradients(ids_.size() * kDim, -1.0f);
    const FeatureGradient feature{.table = "clicks", .ids = ids_, .gradients = gradients};
    ASSERT_THAT(client_->Update({&feature, 1}, {}), IsOk());
  }
  std::vector<float> Rows() {
    std::vector<float> rows(ids_.size() * kDim);
    const FeatureLookup feature{.table = "clicks", .ids = ids_, .rows_out = rows};
    client::CallOptions options;
    options.timeout = absl::Seconds(60);
    EXPECT_THAT(client_->Lookup({&feature, 1}, options), IsOk());
    return rows;
  }
  // The node's program ends with an error, and its log has `why`.
  void ExpectEnd(const std::string& why) {
    EXPECT_EQ(cluster_->AwaitNodeEnd(0), 1);
    EXPECT_THAT(cluster_->LogTails(), HasSubstr(why));
  }

  const std::vector<std::int64_t> ids_ = {1, 2, 500};
  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<Client> client_;
};

TEST_F(NodeIdentityTest, AnEmptyDirectoryInPlaceOfRowsEndsTheProgramUnlessTheLossIsAccepted) {
  ASSERT_EQ(cluster_->StopNode(0), 0);
  fs::remove_all(cluster_->data_dir(0));
  ASSERT_THAT(cluster_->StartNode(0), IsOk());
  ExpectEnd("table clicks (1000 rows)");
  fs::remove_all(cluster_->data_dir(0));
  ASSERT_THAT(cluster_->StartNode(0, {"--accept-loss"}), IsOk());
  EXPECT_THAT(Rows(), Each(0.0f));
}

TEST_F(NodeIdentityTest, AnOlderCopyOfTheDirectoryEndsTheProgram) {
  ASSERT_EQ(cluster_->StopNode(0), 0);
  const TempDirectory copy;
  fs::copy(cluster_->data_dir(0), copy.path(), fs::copy_options::recursive);
  ASSERT_THAT(cluster_->RestartNode(0), IsOk());
  AddOne();
  ASSERT_EQ(cluster_->StopNode(0), 0);
  const std::string kept = cluster_->data_dir(0) + ".kept";
  fs::rename(cluster_->data_dir(0), kept);
  fs::copy(copy.path(), cluster_->data_dir(0), fs::copy_options::recursive);
  ASSERT_THAT(cluster_->StartNode(0), IsOk());
  ExpectEnd("older copy");
  fs::remove_all(cluster_->data_dir(0));
  fs::rename(kept, cluster_->data_dir(0));
  ASSERT_THAT(cluster_->RestartNode(0), IsOk());
  EXPECT_THAT(Rows(), Each(2.0f));
}

// Without the coordinator nobody knows whether a copy is older than what its node has given away.
TEST_F(NodeIdentityTest, ACopyOfTheDirectoryServesNobodyBeforeTheCoordinatorHasLetIt) {
  cluster_->KillCoordinator();
  ASSERT_EQ(cluster_->StopNode(0), 0);
  ASSERT_THAT(cluster_->StartNode(0), IsOk());
  EXPECT_THAT(Rows(), Each(1.0f)) << "an ordinary restart needs no coordinator";
  ASSERT_EQ(cluster_->StopNode(0), 0);
  const std::string original = cluster_->data_dir(0) + ".original";
  fs::rename(cluster_->data_dir(0), original);
  fs::copy(original, cluster_->data_dir(0), fs::copy_options::recursive);
  ASSERT_THAT(cluster_->StartNode(0), IsOk());
  std::vector<float> rows(ids_.size() * kDim);
  const FeatureLookup feature{.table = "clicks", .ids = ids_, .rows_out = rows};
  client::CallOptions options;
  options.timeout = absl::Seconds(2);
  EXPECT_THAT(client_->Lookup({&feature, 1}, options), Not(IsOk()));
  ASSERT_THAT(cluster_->RestartCoordinator(), IsOk());
  EXPECT_THAT(Rows(), Each(1.0f));
  ASSERT_EQ(cluster_->StopNode(0), 0);
  cluster_->KillCoordinator();
  ASSERT_THAT(cluster_->StartNode(0), IsOk());
  EXPECT_THAT(Rows(), Each(1.0f)) << "its place is known from then on";
}

TEST_F(NodeIdentityTest, AnotherClustersKeyEndsTheProgram) {
  ASSERT_EQ(cluster_->StopNode(0), 0);
  const TempDirectory directory;
  const std::string file = directory.path() + "/cluster.key";
  ASSERT_THAT(AtomicWriteFile(file, ClusterKey::Generate().Format()), IsOk());
  ASSERT_THAT(cluster_->StartNode(0, {"--cluster-key", file}), IsOk());
  ExpectEnd("has another cluster key than this node, which read " + file);
}

}  // namespace
}  // namespace embla::node_identity_test
