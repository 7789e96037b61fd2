// Clients with much to do beside one with little, on one node of real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "tests/testing/process_cluster.h"

namespace embla {
namespace {

using client::Client;
using client::ConnectOptions;
using client::FeatureLookup;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::ProcessCluster;

constexpr int kHeavyClients = 50;
constexpr std::size_t kHeavyIds = 100'000;
constexpr std::size_t kLightIds = 10;
constexpr std::uint32_t kDim = 256;
constexpr std::int64_t kRows = 100'000;

// The sum of `ids` rows: whatever their number, the reply is one row.
absl::Status LookUp(Client& client, std::size_t ids) {
  static const std::vector<std::int64_t> all = [] {
    std::vector<std::int64_t> some(kHeavyIds);
    for (std::size_t i = 0; i < some.size(); ++i) {
      some[i] = static_cast<std::int64_t>(i * 7919 % kRows);
    }
    return some;
  }();
  const auto length = static_cast<std::uint32_t>(ids);
  std::vector<float> sum(kDim);
  FeatureLookup feature{.table = "t",
                        .ids = std::span(all).first(ids),
                        .lengths = {&length, 1},
                        .pooling = client::Pooling::kSum,
                        .rows_out = sum};
  return client.Lookup({&feature, 1}, {.timeout = kAwaitMax, .combine_duplicates = false});
}

struct Waits {
  absl::Duration p50, p99;  // Of the light client's lookups, there and back.
  absl::Duration heavy;     // How long the node works on one request of the heavy ones.
};

// `clients`: the heavy ones; several may be the same.
Waits Measure(const std::vector<Client*>& clients, Client& light, int lookups) {
  std::atomic<bool> is_over = false;
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  threads.reserve(clients.size());
  for (Client* const client : clients) {
    threads.emplace_back([&, client] {
      while (!is_over) {
        EXPECT_THAT(LookUp(*client, kHeavyIds), IsOk());
        ++answered;
      }
    });
  }
  // From here on the others wait in the node, and it is never idle.
  AwaitFor([&] { return answered >= kHeavyClients; }, kAwaitMax, "the heavy clients are at work");
  const int answered_before = answered;
  const absl::Time began = absl::Now();
  std::vector<absl::Duration> waits;
  for (int i = 0; i < lookups; ++i) {
    const absl::Time asked = absl::Now();
    EXPECT_THAT(LookUp(light, kLightIds), IsOk());
    waits.push_back(absl::Now() - asked);
  }
  const absl::Duration heavy = (absl::Now() - began) / std::max(1, answered - answered_before);
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(waits);
  return {.p50 = waits[waits.size() / 2], .p99 = waits[waits.size() * 99 / 100], .heavy = heavy};
}

// In its own session the light client is served in turns; in the session of the heavy ones it is
// served as they come.
TEST(Fairness, ALightClientBesideFiftyHeavyOnesWaitsForOneOfTheirRequests) {
  const auto cluster = ProcessCluster::Start(
      {.nodes = 1, .devices_per_node = 1, .shard_flags = {"--threads-per-device", "1"}});
  ASSERT_THAT(cluster, IsOk());
  const auto [printed, code] = (*cluster)->Embla(
      absl::StrCat("table create --name t --sharding row_wise --rows ", kRows, " --dim ", kDim));
  ASSERT_EQ(code, 0) << printed;
  const ConnectOptions options{.in_flight_bytes_max_per_node = std::int64_t{1} << 30, .threads = 1};
  const auto light = (*cluster)->Connect(options);
  ASSERT_THAT(light, IsOk());
  std::vector<std::unique_ptr<Client>> sessions;
  std::vector<Client*> heavy;
  for (int i = 0; i < kHeavyClients; ++i) {
    auto session = (*cluster)->Connect(options);
    ASSERT_THAT(session, IsOk());
    heavy.push_back(session->get());
    sessions.push_back(*std::move(session));
  }

  Waits turns = Measure(heavy, **light, 400);
  // Other work of the machine only adds to it.
  for (int again = 0; again < 2 && turns.p99 > 2 * turns.heavy; ++again) {
    turns = Measure(heavy, **light, 400);
  }
  const Waits first_come = Measure(std::vector<Client*>(kHeavyClients, light->get()), **light, 9);
  std::cout << "in turns: p50 " << turns.p50 << ", p99 " << turns.p99
            << "; first come, first served: p50 " << first_come.p50 << "; a heavy request "
            << turns.heavy << '\n';
  // There and back is more than the wait in the node, which is what has this bound.
  EXPECT_LE(turns.p99, 2 * turns.heavy);
  EXPECT_LE(turns.p50, first_come.p50 / 10);
}

}  // namespace
}  // namespace embla
