// Programs end when they are told to, within their grace, whoever else is silent.
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla {
namespace {

using client::FeatureGradient;
using embla::testing::ProcessCluster;

constexpr std::uint32_t kDim = 8;

// Which of two nodes has the primary copy of the table.
int PrimaryOf(const std::string& table_plan_json) {
  // Node ids are given in the order of registration, so a node is found by trying.
  return table_plan_json.find("\"node\":1") < table_plan_json.find("\"node\":2") ? 1 : 2;
}

TEST(ShardStops, WithinItsGraceWhileAReplicaHangs) {
  auto cluster = *ProcessCluster::Start(
      {.nodes = 2, .devices_per_node = 1, .shard_flags = {"--stop-grace-ms", "3000"}});
  const auto admin = *cluster->ConnectAdmin();
  const auto created =
      admin->CreateTable(R"({"name":"t","rows":64,"dim":8})", R"({"sharding":"data_parallel"})");
  ASSERT_TRUE(created.ok()) << created.status();
  const auto trainer = cluster->Connect({.timeout = absl::Seconds(30)});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const std::vector<std::int64_t> ids = {1, 2, 3};
  const std::vector<float> gradients(ids.size() * kDim, 1.0f);
  const FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
  ASSERT_TRUE((*trainer)->Update({&feature, 1}, {}).ok());

  const auto nodes = admin->ListNodes();
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  const int primary_id = PrimaryOf(created->table_plan_json);
  int primary = 0;
  for (const client::NodeStatus& node : *nodes) {
    const bool is_primary =
        node.node_json.find("\"id\":" + std::to_string(primary_id)) != std::string::npos;
    if (is_primary && node.node_json.find("\"node1\"") != std::string::npos) primary = 1;
  }
  const int replica = 1 - primary;
  cluster->node(replica).Signal(SIGSTOP);
  std::thread update([&] {
    EXPECT_FALSE((*trainer)->Update({&feature, 1}, {.timeout = absl::Seconds(30)}).ok());
  });
  // Behind the other one, so that one waits for the replica by then.
  EXPECT_FALSE((*trainer)->Update({&feature, 1}, {.timeout = absl::Seconds(1)}).ok());
  cluster->node(primary).Signal(SIGTERM);
  const absl::Time began = absl::Now();
  EXPECT_TRUE(cluster->node(primary).AwaitEnd(absl::Seconds(4))) << cluster->LogTails();
  RecordProperty("seconds", absl::FormatDuration(absl::Now() - began));
  cluster->KillNode(replica);
  update.join();
}

}  // namespace
}  // namespace embla
