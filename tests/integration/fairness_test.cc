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
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::fairness_test {
namespace {

using client::Client;
using client::ConnectOptions;
using client::FeatureLookup;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::MetricsText;
using ::embla::testing::Observations;
using ::embla::testing::ProcessCluster;

constexpr int kHeavyClients = 50;
constexpr std::size_t kHeavyIds = 100'000;
constexpr std::size_t kLightIds = 10;
constexpr int kLookups = 400;  // Lookups of the light client.
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
  absl::Duration p50, p99;    // Times of the light client's lookups, there and back.
  absl::Duration heavy;       // How long the node works on one request of the heavy ones.
  MetricsText before, after;  // Metrics of the node.
};

// `clients`: the heavy ones; several may be the same. `node`: where its metrics are.
Waits Measure(const std::vector<Client*>& clients, Client& light, int lookups,
              const std::string& node) {
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
  const MetricsText before = MetricsText::Of(node);
  const absl::Time began = absl::Now();
  std::vector<absl::Duration> waits;
  for (int i = 0; i < lookups; ++i) {
    const absl::Time asked = absl::Now();
    EXPECT_THAT(LookUp(light, kLightIds), IsOk());
    waits.push_back(absl::Now() - asked);
  }
  const absl::Duration heavy = (absl::Now() - began) / std::max(1, answered - answered_before);
  const MetricsText after = MetricsText::Of(node);
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(waits);
  return {.p50 = waits[waits.size() / 2],
          .p99 = waits[waits.size() * 99 / 100],
          .heavy = heavy,
          .before = before,
          .after = after};
}

// Waits counted by the node.
struct WaitsInNode {
  // From arrival to start, of all requests. Each heavy one waits for those of the 49 others, so the
  // light client's are the shortest.
  Observations all;
  double heavy_seconds = 0;  // The device's time for one heavy request: all are alike.
  double light_p99 = 0;      // At least: buckets double.

  WaitsInNode(const Waits& waits, int lookups)
      : all(waits.before, waits.after, "embla_request_wait_seconds") {
    constexpr char kBusy[] = "embla_device_busy_seconds_total{device=\"0\"}";
    heavy_seconds =
        (waits.after.Value(kBusy) - waits.before.Value(kBusy)) / (all.count() - lookups);
    light_p99 = all.SmallestAtLeast(0.99 * lookups);
  }
};

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

  const std::string& node = (*cluster)->node_metrics_address(0);
  Waits turns = Measure(heavy, **light, kLookups, node);
  WaitsInNode in_node(turns, kLookups);
  // Other work of the machine only adds to it.
  for (int again = 0; again < 2 && in_node.light_p99 > 2 * in_node.heavy_seconds; ++again) {
    turns = Measure(heavy, **light, kLookups, node);
    in_node = WaitsInNode(turns, kLookups);
  }
  const Waits first_come =
      Measure(std::vector<Client*>(kHeavyClients, light->get()), **light, 9, node);
  std::cout << "in turns: p50 " << turns.p50 << ", p99 " << turns.p99
            << "; first come, first served: p50 " << first_come.p50 << "; a heavy request "
            << turns.heavy << "\nin the node: p99 " << in_node.all.Smallest(0.99 * kLookups)
            << " s of the light, p50 "
            << in_node.all.Smallest(kLookups + (in_node.all.count() - kLookups) / 2)
            << " s of the heavy ones; the device takes " << in_node.heavy_seconds
            << " s for a heavy request\n";
  EXPECT_LE(in_node.light_p99, 2 * in_node.heavy_seconds);
  EXPECT_LE(turns.p50, first_come.p50 / 10);
  // The light client's requests are told from the others: these wait much longer.
  EXPECT_GE(in_node.all.Smallest(1.1 * kLookups), 4 * in_node.heavy_seconds);
}

}  // namespace
}  // namespace embla::fairness_test
