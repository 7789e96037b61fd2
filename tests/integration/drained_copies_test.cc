// Nodes of real processes are drained of their copies, and get them back, while trainers update
// and look up a data_parallel table and one by rows: no lookup fails, and weights and optimizer
// state end with the bits of the same training in peace. Then once more, with nodes that are
// killed meanwhile and come back from their journals.
//
// Each row is trained by one trainer, so the order of its updates is defined; and gradients follow
// from what was looked up, so a copy that answers with an older state for one step shows at the
// end.
#include <algorithm>
#include <atomic>
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
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"
#include "tests/testing/progress.h"

namespace embla::drained_copies_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::IsOk;
using embla::testing::kAwaitMax;
using embla::testing::ProcessCluster;
using embla::testing::Progress;

constexpr std::uint64_t kSeed = 20261122;
constexpr std::uint32_t kDim = 16;
constexpr std::int64_t kRows = 20'000;  // A copy takes four windows.
constexpr int kTrainers = 3;
constexpr int kNodes = 3;
// Between two looks at a job, at most; trainers go on meanwhile.
constexpr absl::Duration kLookMax = absl::Milliseconds(20);
const char* const kTables[] = {"copied", "by_rows"};

struct Content {
  std::vector<float> rows;
  std::vector<float> state;
};

class CopiesTest : public ::testing::Test {
 protected:
  void Start() {
    ProcessCluster::Options options{.nodes = kNodes, .devices_per_node = 2};
    options.journals = true;
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    Create(R"({"name":"copied","rows":20000,"dim":16,"seed":7,"dtype":"bf16",)"
           R"("rounding":"stochastic","optimizer":{"kind":"adam","learning_rate":0.01}})",
           "data_parallel");
    Create(R"({"name":"by_rows","rows":20000,"dim":16,"row_granules":24,"seed":3,)"
           R"("optimizer":{"kind":"rowwise_adagrad"}})",
           "row_wise");
  }

  void Create(const std::string& table, const std::string& sharding) {
    const auto created = admin_->Call<v1::TableReply>(
        client::CreateTableRequest(table, absl::StrCat(R"({"sharding":")", sharding, R"("})")));
    ASSERT_THAT(created, IsOk());
  }

  std::unique_ptr<Client> Connect() {
    auto client = cluster_->Connect({.timeout = kAwaitMax});
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }

  // `steps` steps, one after the other. Lookups are part of them unless nodes are killed: a table
  // by rows has nobody else to ask.
  absl::Status Train(Client& client, int trainer, int steps, bool looks_up) {
    std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(trainer));
    for (int step = 1; step <= steps; ++step) {
      std::vector<std::int64_t> ids(1 + random() % 40);
      for (std::int64_t& id : ids) {
        id = trainer + kTrainers * static_cast<std::int64_t>(random() % (kRows / kTrainers));
      }
      std::vector<float> rows(ids.size() * kDim), gradients(ids.size() * kDim);
      for (float& value : gradients) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
      if (looks_up) {
        const FeatureLookup lookup{.table = kTables[0], .ids = ids, .rows_out = rows};
        if (absl::Status status = client.Lookup({&lookup, 1}, {}); !status.ok()) return status;
        for (std::size_t i = 0; i < rows.size(); ++i) gradients[i] += 0.5f * rows[i];
      }
      std::vector<FeatureGradient> features;
      for (const char* const table : kTables) {
        features.push_back({.table = table, .ids = ids, .gradients = gradients});
      }
      client::CallOptions call;
      call.step = static_cast<std::uint64_t>(step);
      if (absl::Status status = client.Update(features, call); !status.ok()) return status;
      steps_->Add();
    }
    return absl::OkStatus();
  }

  // Trains while `meanwhile` runs, which is told when training is over.
  void TrainDuring(int steps, bool looks_up,
                   const std::function<void(const std::atomic<bool>& is_over)>& meanwhile) {
    steps_ = std::make_unique<Progress>();
    std::atomic<bool> is_over = false;
    std::thread other([&] { meanwhile(is_over); });
    std::vector<std::thread> trainers;
    for (int t = 0; t < kTrainers; ++t) {
      trainers.emplace_back([&, t] {
        const auto client = Connect();
        if (client == nullptr) return;
        const absl::Status status = Train(*client, t, steps, looks_up);
        EXPECT_THAT(status, IsOk()) << "trainer " << t << '\n' << cluster_->LogTails();
      });
    }
    for (std::thread& trainer : trainers) trainer.join();
    is_over = true;
    steps_->End();
    other.join();
  }

  // Whether it was done; whoever waits for a node that is down waits for it.
  bool Run(const v1::StartJobRequest& request) {
    absl::StatusOr<v1::Job> job = client::CallForJob(*admin_, request);
    const std::uint64_t id = job.ok() ? job->id() : 0;
    const absl::Time until = absl::Now() + kAwaitMax;
    while (job.ok() && !client::IsOver(job->state()) && absl::Now() < until) {
      steps_->Await(steps_->count() + 1, kLookMax);
      job = client::CallForJob(*admin_, client::GetJobRequest(id));
    }
    if (!job.ok()) {
      std::cout << "job not done: " << job.status() << '\n';
      return false;
    }
    EXPECT_TRUE(client::IsOver(job->state())) << job->description() << ": " << job->error() << '\n'
                                              << cluster_->LogTails();
    return job->state() == v1::JOB_STATE_DONE;
  }
  bool Drain(int node) { return Run(client::DrainRequest(cluster_->node_name(node))); }
  void Undrain(int node) {
    const v1::StartJobRequest request = client::UndrainRequest(cluster_->node_name(node));
    // The coordinator may be down for a moment.
    const absl::Time until = absl::Now() + kAwaitMax;
    absl::Status status = client::CallForJob(*admin_, request).status();
    while (absl::IsUnavailable(status) && absl::Now() < until) {
      steps_->Await(steps_->count() + 1, kLookMax);
      status = client::CallForJob(*admin_, request).status();
    }
    EXPECT_THAT(status, IsOk());
  }
  bool Rebalance() { return Run(client::RebalanceRequest()); }

  // Each node in its turn loses everything and gets its copy back, that with the primary copy
  // excepted; returns how many did.
  int DrainAll(const std::atomic<bool>& is_over) {
    int drained = 0;
    for (int node = 0; !is_over; node = (node + 1) % kNodes) {
      const bool was_drained = Drain(node);
      Undrain(node);
      const bool is_back = Rebalance();
      drained += was_drained && is_back ? 1 : 0;
    }
    return drained;
  }

  Content ContentOf(const std::string& table) {
    const auto client = Connect();
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < kRows; ++row) ids.push_back(row);
    Content content;
    content.rows.resize(ids.size() * kDim);
    const absl::Status rows = client->ReadRows(table, ids, content.rows);
    EXPECT_THAT(rows, IsOk());
    const auto floats = client->StateFloatsPerRow(table);
    EXPECT_THAT(floats, IsOk());
    content.state.resize(ids.size() * floats.value_or(0));
    const absl::Status state = client->ReadState(table, ids, content.state);
    EXPECT_THAT(state, IsOk());
    return content;
  }

  std::vector<Content> RunCalm(int steps, bool looks_up) {
    Start();
    TrainDuring(steps, looks_up, [](const auto&) {});
    std::vector<Content> contents;
    for (const char* const table : kTables) contents.push_back(ContentOf(table));
    cluster_.reset();
    return contents;
  }

  void ExpectSame(const std::vector<Content>& calm) {
    for (std::size_t t = 0; t < calm.size(); ++t) {
      const Content content = ContentOf(kTables[t]);
      EXPECT_TRUE(content.rows == calm[t].rows) << kTables[t] << ": weights differ";
      EXPECT_TRUE(content.state == calm[t].state) << kTables[t] << ": state differs";
    }
    if (HasFailure()) std::cout << cluster_->LogTails() << '\n';
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::unique_ptr<Progress> steps_ = std::make_unique<Progress>();  // Progress of all trainers.
};

TEST_F(CopiesTest, DrainsOfAnyNodeLeaveTheBitsOfPeaceAndFailNoLookup) {
  constexpr int kSteps = 1500;
  const std::vector<Content> calm = RunCalm(kSteps, /*looks_up=*/true);
  Start();
  int drained = 0;
  TrainDuring(kSteps, /*looks_up=*/true,
              [&](const std::atomic<bool>& is_over) { drained = DrainAll(is_over); });
  std::cout << "nodes drained and back=" << drained << '\n';
  EXPECT_GE(drained, 2);
  ExpectSame(calm);
  // The processes after these begin with the same.
  for (int node = 0; node < kNodes; ++node) cluster_->KillNode(node);
  for (int node = 0; node < kNodes; ++node) {
    ASSERT_THAT(cluster_->StartNode(node), IsOk()) << cluster_->LogTails();
  }
  ExpectSame(calm);
}

TEST_F(CopiesTest, SoTheyDoWhileProcessesAreKilled) {
  constexpr int kSteps = 600;
  constexpr int kKills = 5;
  const std::vector<Content> calm = RunCalm(kSteps, /*looks_up=*/false);
  Start();
  int drained = 0;
  TrainDuring(kSteps, /*looks_up=*/false, [&](const std::atomic<bool>& is_over) {
    std::thread jobs([&] { drained = DrainAll(is_over); });
    for (int kill = 1; kill <= kKills && !HasFailure(); ++kill) {
      if (!steps_->Await(kill * kSteps * kTrainers / (kKills + 1), kAwaitMax)) break;
      if (kill == 3) {
        cluster_->KillCoordinator();
        EXPECT_THAT(cluster_->RestartCoordinator(), IsOk()) << cluster_->LogTails();
        continue;
      }
      cluster_->KillNode(kill % kNodes);
      EXPECT_THAT(cluster_->RestartNode(kill % kNodes), IsOk()) << cluster_->LogTails();
    }
    jobs.join();
  });
  std::cout << "nodes drained and back=" << drained << '\n';
  ExpectSame(calm);
}

}  // namespace
}  // namespace embla::drained_copies_test
