// Shard servers are killed while trainers train, and come back from their journals: the final
// weights and optimizer state are those of a run without kills, bit for bit, with and without rows
// that move to other shards meanwhile. Nothing that was acknowledged is lost or applied twice.
//
// The trainers' rows are disjoint (of a ZCH table: their buckets' order does not matter, as no id
// loses its row), so the order of each row's updates is that of its trainer.
#include <atomic>
#include <cstdint>
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

namespace embla::shard_kills_test {
namespace {

using client::CallOptions;
using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::IsOk;
using embla::testing::kAwaitMax;
using embla::testing::ProcessCluster;
using embla::testing::Progress;

constexpr std::uint64_t kSeed = 20261122;
constexpr std::uint32_t kDim = 16;
constexpr std::int64_t kRows = 3000;
constexpr int kTrainers = 2;
constexpr int kSteps = 250;
constexpr int kNodes = 2;
// Between two looks at a job, at most; trainers go on meanwhile.
constexpr absl::Duration kLookMax = absl::Milliseconds(20);

const char* const kTables[] = {"dense", "hashed", "copied"};
constexpr std::size_t kMovable = 2;  // The first ones; a copy on every node does not move.

// The ids that rows 0..kRows-1 stand for.
std::int64_t IdOf(const std::string& table, std::int64_t row) {
  if (table != "hashed") return row;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(row + 1) * 0x9e3779b97f4a7c15u);
}

// Content of a table after training.
struct Content {
  std::vector<float> rows;
  std::vector<float> state;
  bool operator==(const Content&) const = default;
};

class ShardKillsTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& shard_flags) {
    ProcessCluster::Options options{.nodes = kNodes, .devices_per_node = 2};
    options.journals = true;
    options.shard_flags = shard_flags;
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    Create(R"({"name":"dense","rows":3000,"dim":16,"row_granules":24,"dtype":"bf16",)"
           R"("rounding":"stochastic","seed":3,"optimizer":{"kind":"rowwise_adagrad"}})");
    Create(R"({"name":"hashed","rows":12288,"dim":16,"zch":{"buckets":24},"seed":5,)"
           R"("optimizer":{"kind":"adam","learning_rate":0.01}})");
    Create(R"({"name":"copied","rows":3000,"dim":16,"seed":7,"optimizer":{"kind":"adagrad"}})",
           R"({"sharding":"data_parallel"})");
  }

  void Create(const std::string& table,
              const std::string& placement = R"({"sharding":"row_wise"})") {
    const auto created = admin_->Call<v1::TableReply>(client::CreateTableRequest(table, placement));
    ASSERT_THAT(created, IsOk());
  }

  // One step after the other, each until it is acknowledged.
  void Train(int trainer) {
    client::ConnectOptions options;
    options.timeout = kAwaitMax;
    const auto client = cluster_->Connect(options);
    ASSERT_THAT(client, IsOk());
    std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(trainer));
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<std::vector<std::int64_t>> ids;
      std::vector<std::vector<float>> gradients;
      std::vector<FeatureGradient> features;
      for (const char* const table : kTables) {
        std::vector<std::int64_t>& own = ids.emplace_back(1 + random() % 60);
        for (std::int64_t& id : own) {
          const auto row = static_cast<std::int64_t>(random() % (kRows / kTrainers));
          id = IdOf(table, trainer + kTrainers * row);
        }
        std::vector<float>& values = gradients.emplace_back(own.size() * kDim);
        for (float& value : values) {
          value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
        }
      }
      for (std::size_t t = 0; t < std::size(kTables); ++t) {
        features.push_back({.table = kTables[t], .ids = ids[t], .gradients = gradients[t]});
      }
      CallOptions call;
      call.step = static_cast<std::uint64_t>(step);
      const absl::Status updated = client.value()->Update(features, call);
      ASSERT_THAT(updated, IsOk()) << "\n" << cluster_->LogTails();
      steps_->Add();
    }
  }

  // Trains while `meanwhile` runs.
  void TrainDuring(const std::function<void()>& meanwhile) {
    std::vector<std::thread> trainers;
    for (int t = 0; t < kTrainers; ++t) trainers.emplace_back([this, t] { Train(t); });
    meanwhile();
    for (std::thread& trainer : trainers) trainer.join();
  }

  // A few times, now this shard, now that.
  void KillShards(int kills) {
    for (int kill = 1; kill <= kills && !HasFatalFailure(); ++kill) {
      const bool is_time = steps_->Await(kill * kSteps * kTrainers / (kills + 1), kAwaitMax);
      ASSERT_TRUE(is_time) << "trainers do not get on\n" << cluster_->LogTails();
      const int node = kill % kNodes;
      cluster_->KillNode(node);
      const absl::Status back = cluster_->RestartNode(node);
      ASSERT_THAT(back, IsOk()) << "\n" << cluster_->LogTails();
    }
  }

  // Whether it was done; whoever waits for a shard that is down waits for it.
  bool Reshard(const std::string& table, std::uint32_t shards) {
    absl::StatusOr<v1::Job> job =
        client::CallForJob(*admin_, client::ReshardRequest(table, shards));
    const std::uint64_t id = job.ok() ? job->id() : 0;
    const absl::Time until = absl::Now() + kAwaitMax;
    while (job.ok() && !client::IsOver(job->state()) && absl::Now() < until) {
      steps_->Await(steps_->count() + 1, kLookMax);
      job = client::CallForJob(*admin_, client::GetJobRequest(id));
    }
    if (job.ok()) {
      EXPECT_TRUE(client::IsOver(job->state())) << job->description() << ": " << job->error();
    }
    return job.ok() && job->state() == v1::JOB_STATE_DONE && job->units_moved() > 0;
  }

  Content ContentOf(const std::string& table) {
    client::ConnectOptions options;
    options.timeout = kAwaitMax;
    const auto connected = cluster_->Connect(options);
    EXPECT_THAT(connected, IsOk());
    Client& client = **connected;
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < kRows; ++row) ids.push_back(IdOf(table, row));
    Content content;
    content.rows.resize(ids.size() * kDim);
    const FeatureLookup lookup{.table = table, .ids = ids, .rows_out = content.rows};
    const absl::Status rows = client.Lookup({&lookup, 1}, {});
    EXPECT_THAT(rows, IsOk());
    const auto floats = client.StateFloatsPerRow(table);
    EXPECT_THAT(floats, IsOk());
    if (table != "hashed") {
      content.state.resize(ids.size() * floats.value_or(0));
      const absl::Status state = client.ReadState(table, ids, content.state);
      EXPECT_THAT(state, IsOk());
      return content;
    }
    // The state of the ids that have rows, which must be the same ones.
    for (const std::int64_t id : ids) {
      const auto found = client.ExplainId(table, id);
      EXPECT_THAT(found, IsOk());
      if (!found.ok()) break;
      const std::size_t at = content.state.size();
      content.state.push_back(found->row.has_value() ? 1.0f : 0.0f);
      if (!found->row.has_value()) continue;
      content.state.resize(at + 1 + floats.value_or(0));
      const std::int64_t one[] = {id};
      const absl::Status state =
          client.ReadState(table, one, std::span(content.state).subspan(at + 1));
      EXPECT_THAT(state, IsOk());
    }
    return content;
  }

  // Contents of the first `tables`.
  std::vector<Content> Contents(std::size_t tables) {
    std::vector<Content> contents;
    for (std::size_t t = 0; t < tables; ++t) contents.push_back(ContentOf(kTables[t]));
    return contents;
  }

  // Makes the expected contents by a run without faults.
  void RunCalm() {
    Start({});
    TrainDuring([] {});
    calm_ = Contents(std::size(kTables));
    cluster_.reset();
    steps_ = std::make_unique<Progress>();
  }

  void ExpectCalm(std::size_t tables = std::size(kTables)) {
    const std::vector<Content> contents = Contents(tables);
    for (std::size_t t = 0; t < contents.size(); ++t) {
      EXPECT_TRUE(contents[t].rows == calm_[t].rows) << kTables[t] << ": weights differ";
      EXPECT_TRUE(contents[t].state == calm_[t].state) << kTables[t] << ": state differs";
    }
    if (HasFailure()) std::cout << cluster_->LogTails() << '\n';
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::vector<Content> calm_;
  std::unique_ptr<Progress> steps_ = std::make_unique<Progress>();  // Progress of all trainers.
};

TEST_F(ShardKillsTest, TrainingEndsWithTheBitsOfARunWithoutKills) {
  RunCalm();
  for (const char* const durability : {"written", "synced"}) {
    SCOPED_TRACE(durability);
    Start({"--durability", durability});
    TrainDuring([&] { KillShards(4); });
    ExpectCalm();
    // Once more, when nobody trains.
    cluster_->KillNode(0);
    cluster_->KillNode(1);
    ASSERT_THAT(cluster_->StartNode(0), IsOk()) << cluster_->LogTails();
    ASSERT_THAT(cluster_->RestartNode(1), IsOk()) << cluster_->LogTails();
    ExpectCalm(kMovable);  // A copy waits for its primary's snapshot.
    cluster_.reset();
    steps_ = std::make_unique<Progress>();
  }
}

TEST_F(ShardKillsTest, SoItDoesWhileRowsMoveToOtherShards) {
  RunCalm();
  Start({});
  std::atomic<bool> stop = false;
  int jobs = 0;
  std::thread mover([&] {
    while (!stop) {
      for (const std::uint32_t shards : {3u, 2u, 4u, 1u}) {
        for (std::size_t t = 0; t < kMovable; ++t) jobs += Reshard(kTables[t], shards) ? 1 : 0;
      }
    }
  });
  TrainDuring([&] { KillShards(6); });
  stop = true;
  mover.join();
  std::cout << "jobs done=" << jobs << '\n';
  EXPECT_GT(jobs, 0);
  ExpectCalm();
}

}  // namespace
}  // namespace embla::shard_kills_test
