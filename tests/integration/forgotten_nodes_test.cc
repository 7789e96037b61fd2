// A machine is lost with its disk, in real processes: its node is forgotten, its rows begin at
// initial values elsewhere, data_parallel tables lose nothing although it had the primary, and
// training goes on.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::forgotten_nodes_test {
namespace {

using client::FeatureGradient;
using client::FeatureLookup;
using embla::testing::AwaitFor;
using embla::testing::IsOk;
using embla::testing::kAwaitMax;
using embla::testing::ProcessCluster;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr std::uint32_t kDim = 8;
constexpr std::int64_t kRows = 600;
constexpr int kNodes = 3;

class ForgottenNodesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ProcessCluster::Options options{.nodes = kNodes, .devices_per_node = 2};
    options.journals = true;
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    Create("by_rows", "row_wise");
    Create("copied", "data_parallel");
    auto client = cluster_->Connect({.timeout = kAwaitMax});
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
    ids_.resize(kRows);
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  // Every weight begins at 5, and a gradient of -1 adds 1.
  void Create(const std::string& name, const std::string& sharding) {
    const auto created = admin_->Call<v1::TableReply>(client::CreateTableRequest(
        absl::StrCat(R"({"name":")", name, R"(","rows":)", kRows, R"(,"dim":)", kDim,
                     R"(,"row_granules":24,"init":{"kind":"constant","a":5.0},)",
                     R"("optimizer":{"kind":"sgd","learning_rate":1.0}})"),
        absl::StrCat(R"({"sharding":")", sharding, R"("})")));
    ASSERT_THAT(created, IsOk());
  }

  void AddOne() {
    const std::vector<float> gradients(ids_.size() * kDim, -1.0f);
    const FeatureGradient features[] = {{.table = "by_rows", .ids = ids_, .gradients = gradients},
                                        {.table = "copied", .ids = ids_, .gradients = gradients}};
    ASSERT_THAT(client_->Update(features, {}), IsOk()) << cluster_->LogTails();
  }
  std::vector<float> Lookup(const std::string& table) {
    std::vector<float> rows(ids_.size() * kDim);
    const FeatureLookup feature{.table = table, .ids = ids_, .rows_out = rows};
    EXPECT_THAT(client_->Lookup({&feature, 1}, {}), IsOk()) << cluster_->LogTails();
    return rows;
  }
  int PrimaryOf(const std::string& table) {
    const auto reply = admin_->Call<v1::Plan>(v1::GetClusterPlanRequest());
    EXPECT_THAT(reply, IsOk());
    const auto plan = PlanFromJson(reply->json());
    EXPECT_THAT(plan, IsOk());
    const NodeId primary = plan->FindTable(table)->primary().front().device.node;
    for (int node = 0; node < kNodes; ++node) {
      if (plan->FindNode(primary)->name == cluster_->node_name(node)) return node;
    }
    return -1;
  }
  std::pair<std::string, int> Forget(int node, const std::string& flags) {
    return cluster_->Embla(absl::StrCat("node forget ", cluster_->node_name(node), " ", flags));
  }
  // Waits until the node is dead: the lost rows are listed then.
  void AwaitDead(int node) {
    ASSERT_TRUE(
        AwaitFor([&] { return Forget(node, "").first.find("by_rows") != std::string::npos; },
                 kAwaitMax, "the node is dead"));
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::unique_ptr<client::Client> client_;
  std::vector<std::int64_t> ids_;
};

TEST_F(ForgottenNodesTest, WhatOnlyItHadBeginsAnewAndNothingElseIsLost) {
  AddOne();
  const int lost = PrimaryOf("copied");
  ASSERT_GE(lost, 0);
  EXPECT_THAT(Forget(lost, ""), Pair(HasSubstr("is live"), 5));
  cluster_->KillNode(lost);
  AwaitDead(lost);
  EXPECT_THAT(Forget(lost, ""),
              Pair(AllOf(HasSubstr("by_rows"), HasSubstr("200"), Not(HasSubstr("copied"))), 5));
  EXPECT_THAT(Forget(lost, "--lose-rows --wait"), Pair(HasSubstr("done"), 0))
      << cluster_->LogTails();
  EXPECT_THAT(Lookup("copied"), Each(6.0f));
  std::vector<float> rows = Lookup("by_rows");
  EXPECT_EQ(std::ranges::count(rows, 5.0f), 200 * kDim);
  EXPECT_EQ(std::ranges::count(rows, 6.0f), 400 * kDim);
  AddOne();
  EXPECT_THAT(Lookup("copied"), Each(7.0f));
  rows = Lookup("by_rows");
  EXPECT_EQ(std::ranges::count(rows, 6.0f), 200 * kDim);
  EXPECT_EQ(std::ranges::count(rows, 7.0f), 400 * kDim);
  for (const char* const table : {"by_rows", "copied"}) {
    EXPECT_THAT(cluster_->Embla(absl::StrCat("verify --table ", table)),
                Pair(HasSubstr("all well"), 0));
  }
  EXPECT_THAT(cluster_->Embla("node ls").first, Not(HasSubstr(cluster_->node_name(lost))));
  EXPECT_THAT(cluster_->Embla("cluster status").first, HasSubstr("2 live of 2"));
  // The rows that began anew are in the journals, too.
  for (int node = 0; node < kNodes; ++node) {
    if (node != lost) cluster_->KillNode(node);
  }
  for (int node = 0; node < kNodes; ++node) {
    if (node == lost) continue;
    ASSERT_THAT(cluster_->StartNode(node), IsOk());
  }
  EXPECT_EQ(Lookup("by_rows"), rows);
  EXPECT_THAT(Lookup("copied"), Each(7.0f));
}

TEST_F(ForgottenNodesTest, ADrainedNodeThatWasStoppedGoesWithoutAWord) {
  int node = PrimaryOf("copied") == 0 ? 1 : 0;
  ASSERT_THAT(cluster_->Embla(absl::StrCat("node drain ", cluster_->node_name(node), " --wait")),
              Pair(HasSubstr("done"), 0));
  EXPECT_EQ(cluster_->StopNode(node), 0);
  EXPECT_THAT(Forget(node, "--wait"), Pair(HasSubstr("done"), 0));
  EXPECT_THAT(cluster_->Embla("verify --table by_rows"), Pair(HasSubstr("all well"), 0));
  AddOne();
  EXPECT_THAT(Lookup("by_rows"), Each(6.0f));
}

}  // namespace
}  // namespace embla::forgotten_nodes_test
