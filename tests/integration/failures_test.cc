// Errors that trainers see when processes die: none while the coordinator is away, a clear error
// naming the node while a shard server is away, and service again when it is back.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::failures_test {
namespace {

using client::CallOptions;
using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;
using ::testing::HasSubstr;

constexpr std::uint32_t kDim = 8;
constexpr std::int64_t kRows = 1000;

class FailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start({.nodes = 2, .devices_per_node = 2});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    const auto created = (*admin)->Call<v1::TableReply>(client::CreateTableRequest(
        R"({"name":"t","rows":1000,"dim":8,"dtype":"fp32",)"
        R"("optimizer":{"kind":"sgd","learning_rate":1.0},"init":{"kind":"constant","a":0.0}})",
        R"({"sharding":"row_wise"})"));
    ASSERT_THAT(created, IsOk());
    auto client = cluster_->Connect();
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
    for (std::int64_t row = 0; row < kRows; row += 7) ids_.push_back(row);
  }

  absl::Status Lookup(std::vector<float>& rows, absl::Duration timeout) {
    rows.resize(ids_.size() * kDim);
    const FeatureLookup feature{.table = "t", .ids = ids_, .rows_out = rows};
    CallOptions options;
    options.timeout = timeout;
    return client_->Lookup({&feature, 1}, options);
  }

  // Adds 1 to every weight of ids_: the gradient is -1 and the learning rate 1.
  absl::Status AddOne() {
    const std::vector<float> gradients(ids_.size() * kDim, -1.0f);
    const FeatureGradient feature{.table = "t", .ids = ids_, .gradients = gradients};
    return client_->Update({&feature, 1}, {});
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<Client> client_;
  std::vector<std::int64_t> ids_;
};

TEST_F(FailuresTest, NoRequestFailsWhileTheCoordinatorIsKilledAndRestarted) {
  std::atomic<bool> stop = false;
  std::atomic<int> updates = 0;
  std::atomic<bool> has_failed = false;
  std::vector<std::string> errors;
  std::thread trainer([&] {
    std::vector<float> rows;
    while (!stop) {
      absl::Status status = Lookup(rows, absl::Seconds(20));
      if (status.ok()) status = AddOne();
      if (!status.ok()) {
        errors.push_back(status.ToString());
        has_failed = true;
        break;
      }
      ++updates;
    }
  });
  const auto await_progress = [&] {
    const int before = updates;
    AwaitFor([&] { return updates >= before + 50 || has_failed; }, embla::testing::kAwaitMax,
             "training goes on");
  };
  await_progress();
  for (int round = 0; round < 3; ++round) {
    cluster_->KillCoordinator();
    await_progress();  // Training goes on without it.
    ASSERT_THAT(cluster_->RestartCoordinator(), IsOk()) << cluster_->LogTails();
    await_progress();
  }
  stop = true;
  trainer.join();
  EXPECT_THAT(errors, ::testing::IsEmpty());
  std::vector<float> rows;
  ASSERT_THAT(Lookup(rows, absl::Seconds(20)), IsOk());
  EXPECT_THAT(rows, ::testing::Each(static_cast<float>(updates)));  // Each applied exactly once.
}

TEST_F(FailuresTest, ADeadNodeIsNamedWithinTheDeadlineAndTheClientRecoversWhenItIsBack) {
  std::vector<float> rows;
  ASSERT_THAT(Lookup(rows, absl::Seconds(20)), IsOk());
  cluster_->KillNode(1);
  const absl::Time before = absl::Now();
  const absl::Status status = Lookup(rows, absl::Seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(cluster_->node_name(1)));
  // Generous: the machine may be busy, but a call that hangs for ever must fail this test.
  EXPECT_LT(absl::Now() - before, absl::Seconds(30));
  ASSERT_THAT(cluster_->RestartNode(1), IsOk()) << cluster_->LogTails();
  const absl::Status again = Lookup(rows, absl::Seconds(20));
  EXPECT_THAT(again, IsOk());
}

TEST_F(FailuresTest, ProgramsStopCleanlyOnTerm) {
  EXPECT_EQ(cluster_->StopNode(0), 0) << cluster_->LogTails();
  EXPECT_EQ(cluster_->StopNode(1), 0) << cluster_->LogTails();
  EXPECT_EQ(cluster_->StopCoordinator(), 0) << cluster_->LogTails();
}

}  // namespace
}  // namespace embla::failures_test
