// Programs end when they are told to, within their grace, whoever else is silent.
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/include/embla/client.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::stopping_test {
namespace {

using client::FeatureGradient;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;

constexpr std::uint32_t kDim = 8;

TEST(ShardStops, WithinItsGraceWhileAReplicaHangs) {
  auto cluster = *ProcessCluster::Start(
      {.nodes = 2, .devices_per_node = 1, .shard_flags = {"--stop-grace-ms", "3000"}});
  const auto [printed, code] =
      cluster->Embla("table create --name t --rows 64 --dim 8 --sharding data_parallel -o json");
  ASSERT_EQ(code, 0) << printed;
  // The primary copy is the first one.
  const int primary = printed.find("\"node0\"") < printed.find("\"node1\"") ? 0 : 1;
  const auto trainer = cluster->Connect({.timeout = absl::Seconds(30)});
  ASSERT_THAT(trainer, IsOk());
  const std::vector<std::int64_t> ids = {1, 2, 3};
  const std::vector<float> gradients(ids.size() * kDim, 1.0f);
  const FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
  const auto is_taken = [&](absl::Duration timeout) {
    return (*trainer)->Update({&feature, 1}, {.timeout = timeout}).ok();
  };
  ASSERT_TRUE(is_taken(absl::Seconds(30)));

  const int replica = 1 - primary;
  cluster->node(replica).Signal(SIGSTOP);
  // A process takes a while to stop.
  for (int tries = 0; is_taken(absl::Seconds(1)); ++tries) ASSERT_LT(tries, 1000);
  std::thread update([&] { EXPECT_FALSE(is_taken(absl::Seconds(12))); });
  // The second update queues after the first, so that one waits for the replica by then.
  EXPECT_FALSE(is_taken(absl::Seconds(1)));
  cluster->node(primary).Signal(SIGTERM);
  const absl::Time began = absl::Now();
  EXPECT_TRUE(cluster->node(primary).AwaitEnd(absl::Seconds(4))) << cluster->LogTails();
  RecordProperty("seconds", absl::FormatDuration(absl::Now() - began));
  cluster->KillNode(replica);
  update.join();
}

}  // namespace
}  // namespace embla::stopping_test
