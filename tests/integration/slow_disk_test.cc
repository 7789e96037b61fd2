// Slow disks: a coordinator's, while thousands of trainers connect at once; a node's, while it is
// trained and asked.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::slow_disk_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::MetricsText;
using ::embla::testing::ProcessCluster;
using ::testing::Each;

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

// A node whose disk takes 300 ms for each sync.
class SlowLog : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 64;
  static constexpr std::uint32_t kDim = 8;
  static constexpr absl::Duration kSync = absl::Milliseconds(300);

  void SetUp() override {
    ProcessCluster::Options options{.nodes = 1, .devices_per_node = 1};
    options.shard_environment = {
        "LD_PRELOAD=" EMBLA_SLOW_SYNC,
        absl::StrCat("EMBLA_SLOW_SYNC_MS=", absl::ToInt64Milliseconds(kSync)),
        "ASAN_OPTIONS=verify_asan_link_order=0"};
    options.journals = true;
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    const auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    for (const std::string level : {"synced", "written"}) {
      const std::string table = absl::StrCat(
          R"({"name": ")", level, R"(", "rows": )", kRows, R"(, "dim": )", kDim,
          R"(, "durability": ")", level, R"(", "optimizer": {"kind": "sgd", "learning_rate": 1.0})",
          R"(, "init": {"kind": "constant", "a": 0.0}})");
      const auto created = (*admin)->Call<v1::TableReply>(
          client::CreateTableRequest(table, R"({"sharding": "table_wise"})"));
      ASSERT_THAT(created, IsOk());
    }
    ids_.resize(kRows);
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  std::unique_ptr<client::Client> Connect() {
    auto client = cluster_->Connect({.timeout = kAwaitMax});
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }
  // Adds 1 to every weight.
  absl::Status AddOne(client::Client& client, const std::string& table) {
    const std::vector<float> gradients(ids_.size() * kDim, -1.0f);
    const client::FeatureGradient feature{.table = table, .ids = ids_, .gradients = gradients};
    return client.Update({&feature, 1}, {});
  }
  // The value that all weights have.
  float Weight(client::Client& client, const std::string& table) {
    std::vector<float> rows(ids_.size() * kDim);
    const client::FeatureLookup feature{.table = table, .ids = ids_, .rows_out = rows};
    EXPECT_THAT(client.Lookup({&feature, 1}, {}), IsOk());
    EXPECT_THAT(rows, Each(rows.front()));
    return rows.front();
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::vector<std::int64_t> ids_;
};

TEST_F(SlowLog, SyncedTablesWaitForItAndNobodyElseDoes) {
  constexpr int kUpdates = 8;
  const std::unique_ptr<client::Client> trainer = Connect();
  const std::unique_ptr<client::Client> other = Connect();
  ASSERT_TRUE(trainer != nullptr && other != nullptr);
  ASSERT_THAT(AddOne(*trainer, "synced"), IsOk());
  ASSERT_THAT(AddOne(*other, "written"), IsOk());
  std::atomic<int> lookups = 0;  // Begun and ended while a synced update waited.
  std::atomic<int> written = 0;  // Likewise, updates.
  for (int i = 0; i < kUpdates; ++i) {
    std::atomic<bool> is_done = false;
    const absl::Time begun = absl::Now();
    std::thread update([&] {
      EXPECT_THAT(AddOne(*trainer, "synced"), IsOk());
      is_done = true;
    });
    while (!is_done) {
      Weight(*other, "synced");
      if (!is_done) ++lookups;
      EXPECT_THAT(AddOne(*other, "written"), IsOk());
      if (!is_done) ++written;
    }
    update.join();
    EXPECT_GE(absl::Now() - begun, kSync);
  }
  std::cout << lookups << " lookups and " << written << " updates beside " << kUpdates
            << " synced ones\n";
  EXPECT_GT(lookups, 2 * kUpdates);
  EXPECT_GT(written, 2 * kUpdates);
  EXPECT_EQ(Weight(*other, "synced"), kUpdates + 1);
}

// The node is killed while updates wait for the disk: what it acknowledged is there, and what it
// did not is done once, by the client's repetition.
TEST_F(SlowLog, NothingIsLostWhenTheNodeIsKilledWhileUpdatesWait) {
  constexpr int kKills = 4;
  constexpr int kUpdatesPerKill = 6;
  const std::unique_ptr<client::Client> trainer = Connect();
  ASSERT_NE(trainer, nullptr);
  int acknowledged = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    ASSERT_THAT(AddOne(*trainer, "synced"), IsOk());
    ++acknowledged;
    std::atomic<int> ended = 0;
    std::vector<std::thread> waiting;
    for (int i = 0; i < kUpdatesPerKill; ++i) {
      waiting.emplace_back([&] {
        EXPECT_THAT(AddOne(*trainer, "synced"), IsOk()) << cluster_->LogTails();
        ++ended;
      });
    }
    // They are applied before they are synced: then they wait.
    AwaitFor([&] { return Weight(*trainer, "synced") > acknowledged; }, kAwaitMax,
             "an update is applied");
    cluster_->KillNode(0);
    EXPECT_LT(ended, kUpdatesPerKill);
    ASSERT_THAT(cluster_->RestartNode(0), IsOk());
    for (std::thread& thread : waiting) thread.join();
    acknowledged += kUpdatesPerKill;
    EXPECT_EQ(Weight(*trainer, "synced"), acknowledged);
  }
}

}  // namespace
}  // namespace embla::slow_disk_test
