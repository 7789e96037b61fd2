// Ranks train tables with synchronous steps over real processes, while shard servers and the
// coordinator are killed, tables reshard 2 -> 4 -> 3, and ranks are started again under their
// names: weights and optimizer state have the bits of one trainer that makes the same
// contributions, one feature per rank, to ordinary tables.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/mutex.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"
#include "tests/testing/progress.h"

namespace embla::synchronous_training_test {
namespace {

using client::CallOptions;
using client::Client;
using client::FeatureGradient;
using embla::testing::IsOk;
using embla::testing::kAwaitMax;
using embla::testing::ProcessCluster;
using embla::testing::Progress;
using embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 20261123;
constexpr std::uint32_t kDim = 16;
constexpr std::int64_t kRows = 6000;
// Each rank makes so many between two troubles.
constexpr int kCalmSteps = 30;
constexpr absl::Duration kLookMax = absl::Milliseconds(20);

// "rows" and "hashed" are cut by rows and reshard; "cut" is cut by columns.
const char* const kTables[] = {"rows", "hashed", "cut"};
constexpr std::size_t kMovable = 2;

std::int64_t IdOf(std::size_t table, std::int64_t row) {
  if (table != 1) return row;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(row + 1) * 0x9e3779b97f4a7c15u);
}

std::string SpecOf(std::size_t table, const std::string& more) {
  const std::string spec[] = {
      R"("rows":6000,"row_granules":24,"dtype":"bf16","seed":3,)"
      R"("optimizer":{"kind":"rowwise_adagrad"})",
      R"("rows":49152,"zch":{"buckets":24},"seed":5,"optimizer":{"kind":"adam"})",
      R"("rows":6000,"seed":7,"optimizer":{"kind":"adagrad"})"};
  return absl::StrCat(R"({"dim":16,)", spec[table], more, "}");
}

// A rank's contribution to a step: of every table some ids, each once.
struct Contribution {
  std::vector<std::vector<std::int64_t>> ids;
  std::vector<std::vector<float>> gradients;
};

Contribution ContributionOf(std::uint64_t step, std::uint32_t rank) {
  std::mt19937_64 random(kSeed + step * 100 + rank);
  Contribution made;
  for (std::size_t t = 0; t < std::size(kTables); ++t) {
    std::vector<std::int64_t>& ids = made.ids.emplace_back();
    const std::uint64_t stride = 1 + random() % 40;
    for (std::int64_t row = static_cast<std::int64_t>(random() % 3000); row < kRows;
         row += static_cast<std::int64_t>(stride)) {
      ids.push_back(IdOf(t, row));
    }
    if (random() % 8 == 0) ids.clear();
    std::vector<float>& values = made.gradients.emplace_back(ids.size() * kDim);
    for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  }
  return made;
}

void Append(const Contribution& made, const std::string& suffix, std::vector<std::string>& names,
            std::vector<FeatureGradient>& features) {
  for (std::size_t t = 0; t < std::size(kTables); ++t) {
    names.push_back(kTables[t] + suffix);
    features.push_back({.ids = made.ids[t], .gradients = made.gradients[t]});
  }
}

// One rank over all of its processes.
class RankTrainer {
 public:
  // Trains up to step `end`, which may still come nearer.
  RankTrainer(const ProcessCluster& cluster, std::uint32_t rank, std::uint32_t ranks,
              const std::atomic<std::uint64_t>& end, Progress& steps)
      : cluster_(cluster), rank_(rank), ranks_(ranks), end_(end), steps_(steps) {
    thread_ = std::thread([this] { Run(); });
  }
  ~RankTrainer() { thread_.join(); }

  // A process of the same name takes over, whatever the one before is doing.
  void Restart() { restart_ = true; }

 private:
  absl::StatusOr<std::unique_ptr<Client>> Connect() const {
    client::ConnectOptions options;
    options.timeout = kAwaitMax;
    options.trainer = absl::StrCat("rank", rank_);
    options.rank = rank_;
    options.ranks = ranks_;
    auto client = cluster_.Connect(options);
    if (!client.ok()) return client;
    const auto joined = (*client)->JoinSteps({kTables, kTables + std::size(kTables)}, kAwaitMax);
    if (!joined.ok()) return joined.status();
    return client;
  }

  void Run() {
    auto client = Connect();
    ASSERT_THAT(client.status(), IsOk()) << cluster_.LogTails();
    // Updates of a process that is gone go on for a while.
    std::vector<std::unique_ptr<Client>> gone;
    std::vector<std::unique_ptr<Contribution>> held;
    for (std::uint64_t step = 0; step < end_; ++step) {
      const bool is_taken_over = restart_.exchange(false);
      if (is_taken_over) {
        held.push_back(std::make_unique<Contribution>(ContributionOf(step, rank_)));
        std::vector<FeatureGradient> features = FeaturesOf(*held.back());
        CallOptions call;
        call.step = step;
        (*client)->UpdateAsync(std::move(features), call, [](const absl::Status&) {});
        gone.push_back(*std::move(client));
        client = Connect();
        ASSERT_THAT(client.status(), IsOk()) << cluster_.LogTails();
      }
      const Contribution made = ContributionOf(step, rank_);
      CallOptions call;
      call.step = step;
      const absl::Status updated = (*client)->Update(FeaturesOf(made), call);
      ASSERT_THAT(updated, IsOk()) << "rank " << rank_ << " step " << step << "\n"
                                   << cluster_.LogTails();
      steps_.Add();
    }
  }
  static std::vector<FeatureGradient> FeaturesOf(const Contribution& made) {
    std::vector<FeatureGradient> features;
    for (std::size_t t = 0; t < std::size(kTables); ++t) {
      features.push_back({.table = kTables[t], .ids = made.ids[t], .gradients = made.gradients[t]});
    }
    return features;
  }

  const ProcessCluster& cluster_;
  const std::uint32_t rank_;
  const std::uint32_t ranks_;
  const std::atomic<std::uint64_t>& end_;
  Progress& steps_;
  std::atomic<bool> restart_ = false;
  std::thread thread_;
};

class SynchronousTrainingTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t ranks() const { return GetParam(); }

  void Start() {
    auto started = ProcessCluster::Start({.nodes = 4, .devices_per_node = 1, .journals = true});
    ASSERT_THAT(started.status(), IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin.status(), IsOk());
    admin_ = *std::move(admin);
    for (std::size_t t = 0; t < std::size(kTables); ++t) {
      const std::string type = t == 2 ? "column_wise" : "row_wise";
      const std::string where = absl::StrCat(R"({"sharding":")", type,
                                             R"(","min_partition":4,"nodes":["node0","node1"]})");
      const std::string name = absl::StrCat(R"(,"name":")", kTables[t]);
      ASSERT_THAT(admin_
                      ->Call<v1::TableReply>(
                          client::CreateTableRequest(SpecOf(t, name + R"(","sync":{})"), where))
                      .status(),
                  IsOk());
      ASSERT_THAT(admin_
                      ->Call<v1::TableReply>(
                          client::CreateTableRequest(SpecOf(t, name + R"(.plain")"), where))
                      .status(),
                  IsOk());
    }
  }

  // One trainer, whose features are those of the ranks in their order.
  void TrainPlain() {
    const auto client = cluster_->Connect();
    ASSERT_THAT(client.status(), IsOk());
    for (std::uint64_t step = 0; step < end_; ++step) {
      std::vector<Contribution> made;
      for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
        made.push_back(ContributionOf(step, rank));
      }
      std::vector<FeatureGradient> features;
      std::vector<std::string> names;
      for (const Contribution& one : made) Append(one, ".plain", names, features);
      for (std::size_t f = 0; f < features.size(); ++f) features[f].table = names[f];
      CallOptions call;
      call.step = step;
      ASSERT_THAT((*client)->Update(features, call), IsOk());
    }
  }

  std::pair<std::vector<float>, std::vector<float>> ContentOf(const std::string& table,
                                                              bool hashed) {
    client::ConnectOptions options;
    options.timeout = kAwaitMax;
    const auto client = cluster_->Connect(options);
    EXPECT_THAT(client.status(), IsOk());
    std::pair<std::vector<float>, std::vector<float>> content;
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::int64_t id = IdOf(hashed ? 1 : 0, row);
      if (hashed) {
        const auto found = (*client)->ExplainId(table, id);
        EXPECT_THAT(found.status(), IsOk());
        if (!found.ok() || !found->row.has_value()) continue;
      }
      ids.push_back(id);
    }
    content.first.resize(ids.size() * kDim);
    EXPECT_THAT((*client)->ReadRows(table, ids, content.first), IsOk());
    const auto floats = (*client)->StateFloatsPerRow(table);
    EXPECT_THAT(floats.status(), IsOk());
    content.second.resize(ids.size() * floats.value_or(0));
    EXPECT_THAT((*client)->ReadState(table, ids, content.second), IsOk());
    return content;
  }

  void Reshard(const std::string& table, std::uint32_t shards) {
    const v1::StartJobRequest request = client::ReshardRequest(table, shards);
    const absl::Time until = absl::Now() + kAwaitMax;
    absl::StatusOr<v1::Job> job = client::CallForJob(*admin_, request);
    while (!job.ok() && absl::Now() < until) {
      steps_.Await(steps_.count() + 1, kLookMax);
      job = client::CallForJob(*admin_, request);
    }
    ASSERT_THAT(job.status(), IsOk());
    const std::uint64_t id = job->id();
    while ((!job.ok() || !client::IsOver(job->state())) && absl::Now() < until) {
      steps_.Await(steps_.count() + 1, kLookMax);
      job = client::CallForJob(*admin_, client::GetJobRequest(id));
    }
    ASSERT_THAT(job.status(), IsOk());
    EXPECT_TRUE(job->state() == v1::JOB_STATE_DONE) << job->description() << ": " << job->error();
  }

  void TrainOn() {
    const int count = steps_.count() + kCalmSteps * static_cast<int>(ranks());
    ASSERT_TRUE(steps_.Await(count, kAwaitMax)) << "no progress\n" << cluster_->LogTails();
  }
  // Ranks are at one step, or two that follow each other.
  void End() { end_ = static_cast<std::uint64_t>(steps_.count()) / ranks() + kCalmSteps; }
  void Kill(int node) {
    cluster_->KillNode(node);
    ASSERT_THAT(cluster_->RestartNode(node), IsOk()) << cluster_->LogTails();
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::atomic<std::uint64_t> end_ = UINT64_MAX;
  Progress steps_;  // Progress of all ranks.
};

TEST_P(SynchronousTrainingTest, HasTheBitsOfOneTrainerThroughDeathsAndReshards) {
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    std::vector<std::unique_ptr<RankTrainer>> trainers;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      trainers.push_back(std::make_unique<RankTrainer>(*cluster_, rank, ranks(), end_, steps_));
    }
    TrainOn();
    for (std::size_t t = 0; t < kMovable; ++t) Reshard(kTables[t], 4);
    TrainOn();
    Kill(0);
    TrainOn();
    trainers.front()->Restart();
    TrainOn();
    for (std::size_t t = 0; t < kMovable; ++t) Reshard(kTables[t], 3);
    TrainOn();
    cluster_->KillCoordinator();
    cluster_->KillNode(1);
    EXPECT_THAT(cluster_->StartNode(1), IsOk());
    EXPECT_THAT(cluster_->RestartCoordinator(), IsOk());
    TrainOn();
    trainers.back()->Restart();
    TrainOn();
    Kill(2);
    End();
  }
  std::cout << "ranks=" << ranks() << " steps=" << end_ << '\n';
  TrainPlain();
  for (std::size_t t = 0; t < std::size(kTables); ++t) {
    const auto stepped = ContentOf(kTables[t], t == 1);
    const auto plain = ContentOf(absl::StrCat(kTables[t], ".plain"), t == 1);
    EXPECT_FALSE(stepped.first.empty());
    EXPECT_TRUE(stepped.first == plain.first) << kTables[t] << ": weights differ";
    EXPECT_TRUE(stepped.second == plain.second) << kTables[t] << ": state differs";
  }
  if (HasFailure()) std::cout << cluster_->LogTails() << '\n';
}

INSTANTIATE_TEST_SUITE_P(Ranks, SynchronousTrainingTest, ::testing::Values(1, 2, 4));

// Two ranks of which one falls silent.
class SilentRankTest : public ::testing::Test {
 protected:
  void Start(const std::string& on_silence) {
    auto started = ProcessCluster::Start({.nodes = 2, .devices_per_node = 1, .journals = true});
    ASSERT_THAT(started.status(), IsOk());
    cluster_ = *std::move(started);
    const auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin.status(), IsOk());
    const std::string spec =
        absl::StrCat(R"({"name":"t","rows":64,"dim":4,"init":{"kind":"constant"},)",
                     R"("optimizer":{"kind":"sgd","learning_rate":1},)",
                     R"("sync":{"step_timeout_ms":300,"on_silence":")", on_silence, R"("}})");
    ASSERT_THAT(
        (*admin)
            ->Call<v1::TableReply>(client::CreateTableRequest(spec, R"({"sharding":"row_wise"})"))
            .status(),
        IsOk());
    std::vector<std::thread> joins;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      client::ConnectOptions options;
      options.timeout = kAwaitMax;
      options.rank = rank;
      options.ranks = 2;
      auto client = cluster_->Connect(options);
      ASSERT_THAT(client.status(), IsOk());
      clients_.push_back(*std::move(client));
      joins.emplace_back([this, rank] { EXPECT_EQ(Join(rank), 0u); });
    }
    for (std::thread& join : joins) join.join();
  }
  std::uint64_t Join(std::uint32_t rank) {
    const auto joined = clients_[rank]->JoinSteps({"t"}, kAwaitMax);
    EXPECT_THAT(joined.status(), IsOk());
    return joined.ok() ? joined->front() : 0;
  }
  // Adds 1 to every weight.
  absl::Status Step(std::uint32_t rank, std::uint64_t step) {
    CallOptions call;
    call.step = step;
    const FeatureGradient feature{.table = "t", .ids = ids_, .gradients = ones_};
    return clients_[rank]->Update({&feature, 1}, call);
  }
  void StepBoth(std::uint64_t step) {
    std::thread other([&] { EXPECT_THAT(Step(1, step), IsOk()); });
    EXPECT_THAT(Step(0, step), IsOk());
    other.join();
  }
  void ExpectWeights(float value) {
    std::vector<float> rows(ids_.size() * 4);
    ASSERT_THAT(clients_[0]->ReadRows("t", ids_, rows), IsOk());
    EXPECT_THAT(rows, ::testing::Each(value));
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::int64_t> ids_ = {0, 1, 31, 32, 63};
  std::vector<float> ones_ = std::vector<float>(5 * 4, -1.0f);
};

TEST_F(SilentRankTest, IsLeftOutAndJoinsAgain) {
  ASSERT_NO_FATAL_FAILURE(Start("close"));
  StepBoth(0);
  ExpectWeights(2.0f);
  EXPECT_THAT(Step(0, 1), IsOk());  // Without the other one, in the end.
  ExpectWeights(3.0f);
  const absl::Status late = Step(1, 1);
  EXPECT_THAT(late,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("join again (JoinSteps)")));
  const std::uint64_t step = Join(1);
  EXPECT_EQ(step, 2u);
  StepBoth(step);
  ExpectWeights(5.0f);
}

TEST_F(SilentRankTest, FailsTheStepOfTablesThatAreDeclaredSo) {
  ASSERT_NO_FATAL_FAILURE(Start("fail"));
  StepBoth(0);
  const absl::Status failed = Step(0, 1);
  EXPECT_THAT(failed,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("join again (JoinSteps)")));
  ExpectWeights(2.0f);
  std::uint64_t step = 0;
  std::thread other([&] { Join(1); });
  step = Join(0);
  other.join();
  StepBoth(std::max<std::uint64_t>(step, 1));  // Repeats the step that failed.
  ExpectWeights(4.0f);
}

}  // namespace
}  // namespace embla::synchronous_training_test
