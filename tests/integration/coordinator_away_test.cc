// The coordinator is killed at any moment of a reshard and stays away: nodes hand over the units
// that were ordered, writers and readers follow them, no lookup misses an acknowledged update, and
// the job goes on once the coordinator is back.
//
// No update waits for the coordinator. An update that did would take as long as the coordinator
// stays away, which is longer than any may take here; its time counts, too, when it ends only after
// the coordinator is back.
//
// EMBLA_COORDINATOR_KILLS: how often it is killed. EMBLA_TEST_SEED: when.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
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
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/integration/counted_rows.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::coordinator_away_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::ProcessCluster;

constexpr int kNodes = 2;
constexpr std::uint64_t kRate = 150'000;  // Bytes per second: a job takes some two seconds.
// With both ends of a move alive, an update waits for a sync and three messages. The rest is for a
// loaded machine.
constexpr absl::Duration kUpdateMax = absl::Seconds(1);
// Longer: an update that begins in the first second without a coordinator, and waits for it, is too
// slow.
constexpr absl::Duration kAway = absl::Seconds(2);

class CoordinatorAwayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ProcessCluster::Options options{.nodes = kNodes, .devices_per_node = 1};
    options.journals = true;
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    ASSERT_THAT(admin_->Call<v1::TableReply>(testing::CountedTableRequest()), IsOk());
  }

  // The last one reads.
  void StartTrainers(std::uint64_t seed) {
    for (int share = 0; share <= testing::kCountingWriters; ++share) {
      auto connected = cluster_->Connect({.timeout = kAwaitMax});
      ASSERT_THAT(connected, IsOk());
      const std::shared_ptr<client::Client> client = *std::move(connected);
      trainers_.emplace_back([this, share, client, seed] {
        std::mt19937_64 random(seed + static_cast<std::uint64_t>(share) + 1);
        while (!is_over_ && !HasFailure()) {
          if (share == testing::kCountingWriters) {
            testing::CountedRead(*client, random, counts_);
          } else {
            testing::CountedWrite(*client, share, random, counts_);
          }
        }
      });
    }
  }

  // All units to one node. Without id: the job has not begun.
  v1::Job StartMoves(int node) {
    v1::StartJobRequest request = client::MoveRequest(
        testing::kCountedTable, 0, testing::kCountedUnits, cluster_->node_name(node), 0);
    request.set_bytes_per_second(kRate);
    request.set_units_in_flight(4);
    absl::StatusOr<v1::Job> job;
    AwaitFor(
        [&] {
          job = client::CallForJob(*admin_, request);
          return !absl::IsUnavailable(job.status());  // Until the coordinator has heard its nodes.
        },
        kAwaitMax, "the coordinator is back");
    EXPECT_THAT(job, IsOk()) << cluster_->LogTails();
    return job.ok() ? *job : v1::Job();
  }
  v1::JobState AwaitEnd(std::uint64_t id) {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    AwaitFor(
        [&] {
          const auto job = client::CallForJob(*admin_, client::GetJobRequest(id));
          if (job.ok()) state = job->state();
          return client::IsOver(state);
        },
        kAwaitMax, "the job is over");
    return state;
  }

  // Units that both nodes' logs have let go of, ever.
  int HandedOver() const {
    double units = 0;
    for (int node = 0; node < kNodes; ++node) {
      units += testing::MetricsText::Of(cluster_->node_metrics_address(node))
                   .Value("embla_moves_total{outcome=\"sent\"}");
    }
    return static_cast<int>(units);
  }

  // All units begin to move to `node`, and the coordinator is killed at some time before they have.
  // Returns how many units move without it.
  int KillOnce(int node, std::mt19937_64& random) {
    const int at_first = HandedOver();
    const v1::Job job = StartMoves(node);
    if (job.id() == 0) return 0;
    const auto total = static_cast<int>(job.units_total());
    const int kill_at = at_first + static_cast<int>(random() % (job.units_total() * 3 / 4));
    AwaitFor([&] { return HandedOver() >= kill_at; }, kAwaitMax, "units move");
    const std::uint64_t kill_at_update = counts_.updates + random() % 100;
    AwaitFor([&] { return counts_.updates >= kill_at_update; }, kAwaitMax, "writers go on");
    cluster_->KillCoordinator();
    const absl::Time killed_at = absl::Now();
    const int before = HandedOver();
    counts_.slowest_us = 0;
    const std::uint64_t away_until = counts_.updates + 1000;
    AwaitFor([&] { return counts_.updates >= away_until && absl::Now() - killed_at >= kAway; },
             kAwaitMax, "writers go on without the coordinator");
    const int while_away = HandedOver() - before;
    EXPECT_THAT(cluster_->StartCoordinator(), IsOk());
    EXPECT_EQ(AwaitEnd(job.id()), v1::JOB_STATE_DONE) << cluster_->LogTails();
    EXPECT_EQ(HandedOver(), at_first + total);
    slowest_ = std::max(slowest_, absl::Microseconds(counts_.slowest_us.load()));
    return while_away;
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  testing::RowCounts counts_;
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> trainers_;
  absl::Duration slowest_;  // Longest update that ended between a kill and the end of its job.
};

TEST_F(CoordinatorAwayTest, NoWriterWaitsForItAndNoLookupIsStale) {
  const char* const wanted = std::getenv("EMBLA_COORDINATOR_KILLS");
  const int kills = wanted == nullptr ? 4 : std::atoi(wanted);
  const std::uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  ASSERT_NO_FATAL_FAILURE(StartTrainers(seed));
  int while_away = 0;
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("kill ", i));
    while_away += KillOnce((i + 1) % kNodes, random);
  }
  is_over_ = true;
  for (std::thread& trainer : trainers_) trainer.join();
  std::cout << "kills=" << kills << " seed=" << seed << " units=" << HandedOver()
            << " handed over meanwhile=" << while_away << " updates=" << counts_.updates
            << " lookups=" << counts_.lookups << " stale=" << counts_.stale
            << " slowest update=" << slowest_ << '\n';
  EXPECT_GT(while_away, 0) << "no kill was amid a hand-over";
  EXPECT_EQ(counts_.stale, 0u);
  EXPECT_LT(slowest_, kUpdateMax);
  const auto client = cluster_->Connect({.timeout = kAwaitMax});
  ASSERT_THAT(client, IsOk());
  testing::ExpectRowsAreCounted(**client, counts_);
}

}  // namespace
}  // namespace embla::coordinator_away_test
