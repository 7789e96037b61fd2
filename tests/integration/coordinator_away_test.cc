// The coordinator goes at any moment of a reshard and stays away: units that are being handed over
// are, writers and readers follow them, no lookup misses an acknowledged update, and the job goes
// on once the coordinator is back.
//
// EMBLA_COORDINATOR_STOPS: how often it goes. EMBLA_TEST_SEED: when.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/app/shard_process.h"
#include "server/rpc/coordinator_fixture.h"
#include "tests/integration/counted_rows.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;

using client::Client;

constexpr std::uint64_t kRate = 150'000;  // Bytes per second: a job takes some two seconds.
constexpr absl::Duration kWaitMax = absl::Minutes(2);
// A freeze whose other end is gone ends after half a second, at the next of the mover's ticks. The
// rest is for a loaded machine.
constexpr absl::Duration kStallMax = absl::Seconds(3);

class CoordinatorAwayTest : public CoordinatorFixture {
 protected:
  void SetUp() override {
    Start();
    address_ = server_->address();
    for (const char* const name : {"n0", "n1"}) {
      ShardProcessOptions options;
      options.name = name;
      options.coordinator = address_;
      options.cluster_key = key_;
      options.devices.assign(1, {.kind = DeviceKind::kCpu, .memory_bytes = 64 << 20});
      options.threads_per_device = 1;
      options.data_dir = absl::StrCat(directory_.path(), "/", name);
      auto node = ShardProcess::Start(options);
      ASSERT_THAT(node, IsOk());
      nodes_.push_back(*std::move(node));
      ASSERT_TRUE(
          AwaitFor([&] { return host_->plan()->FindNode(std::string_view(name)) != nullptr; },
                   kWaitMax, "the node is in the plan"));
    }
    ASSERT_NO_FATAL_FAILURE(testing::CreateCountedTable(*admin_));
  }

  void TearDown() override {
    nodes_.clear();
    CoordinatorFixture::TearDown();
  }

  absl::StatusOr<JobView> Ask(std::function<absl::StatusOr<JobView>(Coordinator&)> question) {
    std::promise<absl::StatusOr<JobView>> answer;
    std::optional<absl::StatusOr<JobView>> found;
    host_->Post([&](Coordinator& coordinator, absl::Time) { found.emplace(question(coordinator)); },
                [&](const absl::Status&) { answer.set_value(*std::move(found)); });
    return answer.get_future().get();
  }

  // All units to one node, and with the next one back.
  absl::StatusOr<JobView> StartMoves(const std::string& node) {
    return Ask([&](Coordinator& coordinator) {
      return coordinator.StartJob({.goal = MoveGoal{.table = "t",
                                                    .granule_begin = 0,
                                                    .granule_end = testing::kCountedUnits,
                                                    .node = node},
                                   .bytes_per_second = kRate,
                                   .units_in_flight = 4},
                                  absl::Now());
    });
  }
  bool AwaitNoJob(std::uint64_t id) {
    return AwaitFor(
        [&] {
          const auto view =
              Ask([id](Coordinator& coordinator) { return coordinator.GetJob(id, absl::Now()); });
          return view.ok() && IsOver(view->job.state);
        },
        kWaitMax, "the job is over");
  }

  std::unique_ptr<Client> Connect() {
    auto client = Client::Connect({.coordinator = address_, .timeout = absl::Seconds(60)});
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }

  testing::TempDirectory directory_;
  std::string address_;
  std::vector<std::unique_ptr<ShardProcess>> nodes_;
};

TEST_F(CoordinatorAwayTest, NoWriterWaitsForItAndNoLookupIsStale) {
  const char* const wanted = std::getenv("EMBLA_COORDINATOR_STOPS");
  const int stops = wanted == nullptr ? 6 : std::atoi(wanted);
  const std::uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  testing::RowCounts counts;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> trainers;
  for (int share = 0; share <= testing::kCountingWriters; ++share) {
    std::shared_ptr<Client> client = Connect();
    if (client == nullptr) break;
    trainers.emplace_back([&, share, client] {
      std::mt19937_64 mine(seed + static_cast<std::uint64_t>(share) + 1);
      while (!is_over && !HasFailure()) {
        if (share == testing::kCountingWriters) {
          testing::CountedRead(*client, mine, counts);
        } else {
          testing::CountedWrite(*client, share, mine, counts);
        }
      }
    });
  }
  std::uint64_t moves = 0;
  absl::Duration slowest;
  for (int i = 0; i < stops && !HasFailure(); ++i) {
    absl::StatusOr<JobView> job;
    const bool is_started = AwaitFor(
        [&] {
          job = StartMoves(i % 2 == 0 ? "n1" : "n0");
          return !absl::IsUnavailable(job.status());  // Until it has heard its nodes.
        },
        kWaitMax, "the coordinator is back");
    if (!is_started) break;
    EXPECT_THAT(job, IsOk());
    if (!job.ok()) break;
    moves += job->units_total;
    const std::uint64_t until = counts.updates + random() % 4000;
    AwaitFor([&] { return counts.updates >= until; }, kWaitMax, "writers go on");
    Stop();
    counts.slowest_us = 0;
    const std::uint64_t away_until = counts.updates + 1500;
    AwaitFor([&] { return counts.updates >= away_until; }, kWaitMax,
             "writers go on without the coordinator");
    slowest = std::max(slowest, absl::Microseconds(counts.slowest_us.load()));
    Start(address_);
    AwaitNoJob(job->job.id);
  }
  is_over = true;
  for (std::thread& trainer : trainers) trainer.join();
  std::cout << "stops=" << stops << " seed=" << seed << " units=" << moves
            << " updates=" << counts.updates << " lookups=" << counts.lookups
            << " stale=" << counts.stale << " slowest update without the coordinator=" << slowest
            << '\n';
  EXPECT_EQ(counts.stale, 0u);
  EXPECT_LT(slowest, kStallMax);
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  testing::ExpectRowsAreCounted(*client, counts);
}

}  // namespace
}  // namespace embla
