// A coordinator on a slow disk, while thousands of trainers connect at once.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::MetricsText;
using ::embla::testing::ProcessCluster;

constexpr int kTrainers = 6000;
constexpr int kNodes = 3;
constexpr int kConnections = 16;
constexpr absl::Duration kConnectMax = absl::Seconds(120);

struct Call {
  grpc::ClientContext context;
  v1::OpenSessionRequest request;
  v1::OpenSessionReply reply;
};

// Asks for a session of each of the trainers, all at once. Returns how many were refused.
int ConnectAll(const std::string& address) {
  std::vector<std::unique_ptr<v1::CoordinatorService::Stub>> stubs;
  for (int i = 0; i < kConnections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(v1::CoordinatorService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
  std::atomic<int> answered = 0;
  std::atomic<int> refused = 0;
  std::deque<Call> calls(kTrainers);
  for (int i = 0; i < kTrainers; ++i) {
    Call& call = calls[i];
    call.context.set_deadline(absl::ToChronoTime(absl::Now() + kConnectMax));
    call.request.set_trainer(absl::StrCat("trainer", i));
    call.request.set_client_nonce(1);
    stubs[i % kConnections]->async()->OpenSession(&call.context, &call.request, &call.reply,
                                                  [&](const grpc::Status& status) {
                                                    if (!status.ok()) ++refused;
                                                    ++answered;
                                                  });
  }
  AwaitFor([&] { return answered == kTrainers; }, 2 * kConnectMax, "every trainer is answered");
  return refused;
}

TEST(SlowDisk, NoNodeIsDeclaredDeadWhileSixThousandTrainersConnect) {
  auto cluster = ProcessCluster::Start(
      {.nodes = kNodes,
       .devices_per_node = 1,
       .coordinator_flags = {"--heartbeat-ms", "250", "--dead-after-ms", "3000"},
       .coordinator_environment = {"LD_PRELOAD=" EMBLA_SLOW_SYNC,
                                   "ASAN_OPTIONS=verify_asan_link_order=0"}});
  ASSERT_THAT(cluster, IsOk());
  const auto metrics = [&] { return MetricsText::Of((*cluster)->coordinator_metrics_address()); };
  const MetricsText before = metrics();
  const absl::Time began = absl::Now();
  EXPECT_EQ(ConnectAll((*cluster)->coordinator_address()), 0);
  std::cout << "took " << absl::Now() - began << '\n';

  // Events until the last answer are counted at the next tick.
  const double beats = metrics().Value("embla_heartbeats_total{node=\"node0\"}");
  MetricsText after = metrics();
  AwaitFor(
      [&] {
        after = metrics();
        return after.Value("embla_sessions_opened_total") >= kTrainers &&
               after.Value("embla_heartbeats_total{node=\"node0\"}") > beats;
      },
      kAwaitMax, "the sessions are counted");
  EXPECT_EQ(after.Value("embla_sessions_opened_total"), kTrainers);
  EXPECT_EQ(after.Value("embla_nodes_died_total"), 0);
  for (int node = 0; node < kNodes; ++node) {
    EXPECT_EQ(after.Value(absl::StrCat("embla_node_live{node=\"node", node, "\"}")), 1);
  }
  // The disk was as slow as this test means.
  const testing::Observations syncs(before, after, "embla_store_sync_seconds");
  std::cout << syncs.count() << " syncs, " << syncs.sum() << " s\n";
  EXPECT_GT(syncs.count(), 0);
  EXPECT_GE(syncs.sum(), 0.008 * syncs.count());
}

}  // namespace
}  // namespace embla
