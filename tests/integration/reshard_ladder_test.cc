// A ZCH table of 768 buckets on 1, 2, 4, 8, 5, 3 and 1 shards, one after the other, over real
// processes, while four trainers train it; and on 4, 1, 2, 4 and 3 devices of two nodes, where some
// buckets change devices and some change nodes. Every id keeps its row: lookups never fail, weights
// and optimizer state end with the bits of the same training without any move, and each change
// moves as few buckets as it can. Pauses and latencies are printed, not judged.
//
// Each row is trained by one trainer, so the order of its updates is defined; and gradients follow
// from what was looked up, so a row that is wrong for one step shows at the end.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/clock.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"
#include "tests/testing/progress.h"

namespace embla::reshard_ladder_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;
using embla::testing::Progress;
using v1::Job;

constexpr std::uint64_t kSeed = 20261122;
constexpr char kTable[] = "t";
constexpr int kTrainers = 4;
constexpr std::int64_t kIdsPerTrainer = 6000;
constexpr std::size_t kIdsPerStep = 48;
constexpr std::uint32_t kDim = 32;
constexpr std::uint32_t kBuckets = 768;
// A quarter of the slots is used: nobody is evicted, whoever comes first.
constexpr std::int64_t kRows = std::int64_t{kBuckets} * 128;
// Pause of a trainer between two steps: a load that leaves the machine room, so that latencies are
// those of requests, not of queues. Nothing waits for it.
constexpr std::chrono::milliseconds kThinkTime(4);
// Between two looks at a job, at most; trainers go on meanwhile.
constexpr absl::Duration kLookMax = absl::Milliseconds(20);
constexpr int kStepsPerLook = 4;
constexpr absl::Duration kJobMax = absl::Minutes(5);

std::int64_t IdOf(int trainer, std::int64_t number) {
  const auto row = static_cast<std::uint64_t>(trainer + kTrainers * number);
  return static_cast<std::int64_t>((row + 1) * 0x9e3779b97f4a7c15u);
}

// How long lookups took, in milliseconds.
class Latencies {
 public:
  void Add(double ms) { ms_.push_back(ms); }
  void Add(const Latencies& other) { ms_.insert(ms_.end(), other.ms_.begin(), other.ms_.end()); }
  double Percentile(double p) const {
    if (ms_.empty()) return 0;
    std::vector<double> sorted = ms_;
    const auto at = static_cast<std::size_t>(p * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at),
                     sorted.end());
    return sorted[at];
  }
  std::size_t count() const { return ms_.size(); }

 private:
  std::vector<double> ms_;
};

std::ostream& operator<<(std::ostream& out, const Latencies& latencies) {
  return out << "count=" << latencies.count() << " p50=" << latencies.Percentile(.5)
             << " p90=" << latencies.Percentile(.9) << " p99=" << latencies.Percentile(.99);
}

class Trainer {
 public:
  // Takes `steps` steps; negative: until it is stopped.
  Trainer(std::unique_ptr<Client> client, int number, int steps, std::atomic<bool>& is_moving)
      : client_(std::move(client)),
        number_(number),
        is_moving_(is_moving),
        random_(kSeed + number) {
    thread_ = std::thread([this, steps] { Run(steps); });
  }
  ~Trainer() { Join().IgnoreError(); }

  void Stop() { stop_ = true; }
  // The first error.
  absl::Status Join() {
    if (thread_.joinable()) thread_.join();
    return error_;
  }
  Progress& steps() { return steps_; }
  // After Join.
  const std::set<std::int64_t>& trained() const { return trained_; }
  const Latencies& still() const { return still_; }
  const Latencies& moving() const { return moving_; }

 private:
  void Run(int steps) {
    while (error_.ok() && (steps < 0 ? !stop_ : steps_.count() < steps)) {
      error_ = Step();
      if (error_.ok()) steps_.Add();
      if (steps < 0) std::this_thread::sleep_for(kThinkTime);
    }
    steps_.End();
  }

  absl::Status Step() {
    std::vector<std::int64_t> ids(kIdsPerStep);
    for (std::int64_t& id : ids) {
      id = IdOf(number_, static_cast<std::int64_t>(random_() % kIdsPerTrainer));
    }
    std::vector<float> rows(ids.size() * kDim);
    const FeatureLookup lookup{.table = kTable, .ids = ids, .rows_out = rows};
    const bool is_moving = is_moving_;
    const absl::Time start = Clock::Real().Now();
    if (absl::Status status = client_->Lookup({&lookup, 1}, {}); !status.ok()) return status;
    (is_moving ? moving_ : still_).Add(absl::ToDoubleMilliseconds(Clock::Real().Now() - start));
    std::vector<float> gradients(rows.size());
    std::uniform_real_distribution<float> any(-1, 1);
    for (std::size_t i = 0; i < rows.size(); ++i) gradients[i] = 0.5f * rows[i] + any(random_);
    const FeatureGradient feature{.table = kTable, .ids = ids, .gradients = gradients};
    absl::Status status = client_->Update({&feature, 1}, {});
    if (status.ok()) trained_.insert(ids.begin(), ids.end());
    return status;
  }

  const std::unique_ptr<Client> client_;
  const int number_;
  std::atomic<bool>& is_moving_;  // Not owned; outlives this object.
  std::mt19937_64 random_;
  absl::Status error_;
  std::set<std::int64_t> trained_;
  Latencies still_;
  Latencies moving_;
  std::atomic<bool> stop_ = false;
  Progress steps_;
  std::thread thread_;
};

struct Content {
  std::vector<std::int64_t> ids;
  std::vector<float> rows;
  std::vector<float> state;
};

struct Change {
  std::uint32_t shards = 0;
  std::uint64_t units = 0;  // Fewest units that have to move.
};

class ReshardLadderTest : public ::testing::Test {
 protected:
  void StartCluster(const ProcessCluster::Options& options, const std::string& sharding) {
    trainers_.clear();
    cluster_.reset();
    auto cluster = ProcessCluster::Start(options);
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    const auto created = admin_->Call<v1::TableReply>(client::CreateTableRequest(
        absl::StrCat(R"({"name":")", kTable, R"(","rows":)", kRows, R"(,"dim":)", kDim,
                     R"(,"seed":7,"zch":{"buckets":)", kBuckets,
                     R"(},"optimizer":{"kind":"adagrad","learning_rate":0.05}})"),
        absl::StrCat(R"({"sharding":")", sharding, R"("})")));
    ASSERT_THAT(created, IsOk());
  }

  std::unique_ptr<Client> Connect() {
    auto client = cluster_->Connect({.timeout = absl::Seconds(60)});
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Trainer by trainer, how many steps it takes; empty: until Stop.
  void StartTraining(const std::vector<int>& steps) {
    trainers_.clear();
    for (int t = 0; t < kTrainers; ++t) {
      trainers_.push_back(std::make_unique<Trainer>(
          Connect(), t, steps.empty() ? -1 : steps[static_cast<std::size_t>(t)], is_moving_));
    }
  }

  // Returns the steps of each trainer.
  std::vector<int> EndTraining() {
    std::vector<int> steps;
    for (const auto& trainer : trainers_) trainer->Stop();
    for (const auto& trainer : trainers_) {
      const absl::Status status = trainer->Join();
      EXPECT_THAT(status, IsOk()) << '\n' << cluster_->LogTails();
      steps.push_back(trainer->steps().count());
    }
    return steps;
  }

  // Until every trainer has taken `steps` more.
  void AwaitSteps(int steps) {
    for (const auto& trainer : trainers_) {
      const int until = trainer->steps().count() + steps;
      ASSERT_TRUE(trainer->steps().Await(until, kJobMax)) << cluster_->LogTails();
    }
  }

  std::uint64_t PlanVersion() {
    const auto status = admin_->Call<v1::ClusterStatus>(v1::GetClusterStatusRequest());
    EXPECT_THAT(status, IsOk());
    return status.ok() ? status->plan_version() : 0;
  }

  Job Reshard(std::uint32_t shards) {
    is_moving_ = true;
    absl::StatusOr<Job> job = client::CallForJob(*admin_, client::ReshardRequest(kTable, shards));
    const absl::Time give_up = Clock::Real().Now() + kJobMax;
    while (job.ok() && !client::IsOver(job->state()) && Clock::Real().Now() < give_up) {
      Progress& steps = trainers_.front()->steps();
      steps.Await(steps.count() + kStepsPerLook, kLookMax);
      job = client::CallForJob(*admin_, client::GetJobRequest(job->id()));
    }
    is_moving_ = false;
    EXPECT_THAT(job, IsOk());
    return job.value_or(Job());
  }

  // Reads every id that was trained.
  Content Read() {
    std::set<std::int64_t> ids;
    for (const auto& trainer : trainers_) {
      ids.insert(trainer->trained().begin(), trainer->trained().end());
    }
    Content content;
    content.ids.assign(ids.begin(), ids.end());
    const auto client = Connect();
    content.rows.resize(content.ids.size() * kDim);
    const absl::Status rows = client->ReadRows(kTable, content.ids, content.rows);
    EXPECT_THAT(rows, IsOk());
    const auto floats = client->StateFloatsPerRow(kTable);
    EXPECT_THAT(floats, IsOk());
    content.state.resize(content.ids.size() * floats.value_or(0));
    const absl::Status state = client->ReadState(kTable, content.ids, content.state);
    EXPECT_THAT(state, IsOk());
    return content;
  }

  // One change after the other while trainers train; returns the steps of each.
  std::vector<int> Climb(const std::vector<Change>& changes) {
    std::cout << "seed=" << kSeed << '\n';
    StartTraining({});
    AwaitSteps(150);
    for (const Change& change : changes) {
      const std::uint64_t before = PlanVersion();
      const Job job = Reshard(change.shards);
      EXPECT_EQ(job.state(), v1::JOB_STATE_DONE) << job.error() << '\n' << cluster_->LogTails();
      EXPECT_EQ(job.units_total(), change.units) << "to " << change.shards << " shards";
      EXPECT_EQ(job.units_moved(), change.units) << "to " << change.shards << " shards";
      std::cout << job.description() << ": units=" << job.units_moved() << " of " << kBuckets
                << " bytes_sent=" << job.bytes_moved() << " seconds="
                << static_cast<double>(job.ended_unix_ms() - job.started_unix_ms()) / 1e3
                << " plans=" << PlanVersion() - before << " pause_ms p50=" << job.pause_p50_ms()
                << " p99=" << job.pause_p99_ms() << " max=" << job.pause_max_ms() << std::endl;
      AwaitSteps(20);
      if (HasFailure()) break;
    }
    const std::vector<int> steps = EndTraining();
    PrintLatencies();
    return steps;
  }

  void PrintLatencies() const {
    Latencies still, moving;
    for (const auto& trainer : trainers_) {
      still.Add(trainer->still());
      moving.Add(trainer->moving());
    }
    std::cout << "lookup_ms without moves: " << still << ", during moves: " << moving
              << ", p99 ratio=" << moving.Percentile(.99) / still.Percentile(.99) << std::endl;
  }

  // Compares the content with that of the same training without moves.
  void ExpectAsWithoutMoves(const std::vector<int>& steps) {
    const Content moved = Read();
    ASSERT_FALSE(HasFailure());
    StartCluster({.nodes = 1, .devices_per_node = 1}, "table_wise");
    ASSERT_FALSE(HasFatalFailure());
    StartTraining(steps);
    EXPECT_EQ(EndTraining(), steps);
    const Content same = Read();
    EXPECT_EQ(moved.ids, same.ids);
    EXPECT_TRUE(moved.rows == same.rows) << "weights differ";
    EXPECT_TRUE(moved.state == same.state) << "optimizer state differs";
    std::cout << "ids=" << same.ids.size()
              << " steps=" << std::accumulate(steps.begin(), steps.end(), 0) << '\n';
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::atomic<bool> is_moving_ = false;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

TEST_F(ReshardLadderTest, EveryIdKeepsItsRowAndState) {
  StartCluster({.nodes = 8, .devices_per_node = 1}, "table_wise");
  ASSERT_FALSE(HasFatalFailure());
  // 8 to 5: three shards of 96 go. 5 to 3: of 154, 154, 154, 153 and 153 the last two go.
  const std::vector<int> steps =
      Climb({{2, 384}, {4, 384}, {8, 384}, {5, 288}, {3, 306}, {1, 512}});
  ASSERT_FALSE(HasFailure());
  ExpectAsWithoutMoves(steps);
}

TEST_F(ReshardLadderTest, SoItDoesWhereNodesHaveSeveralDevices) {
  StartCluster({.nodes = 2, .devices_per_node = 2}, "row_wise");
  ASSERT_FALSE(HasFatalFailure());
  // 2 to 4: each node splits what it has. 4 to 3: the shard that goes is split in three.
  const std::vector<int> steps = Climb({{1, 576}, {2, 384}, {4, 384}, {3, 192}});
  ASSERT_FALSE(HasFailure());
  ExpectAsWithoutMoves(steps);
}

}  // namespace
}  // namespace embla::reshard_ladder_test
