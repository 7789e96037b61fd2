// Clients on a node's host use its data sockets, and gRPC goes on where those break: no call fails,
// and every update counts once.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/failpoint.h"
#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "core/tls/testing/test_authority.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::data_sockets_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::IsOk;
using embla::testing::kAwaitMax;
using embla::testing::MetricsText;
using embla::testing::ProcessCluster;
using embla::testing::TestAuthority;

constexpr std::uint32_t kDim = 64;
constexpr std::int64_t kRows = 4000;

class DataSocketsTest : public ::testing::Test {
 protected:
  void Start(const ProcessCluster::Options& options) {
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    // A gradient of -1 adds one to each column.
    const auto created = (*admin)->Call<v1::TableReply>(client::CreateTableRequest(
        R"({"name":"counts","rows":4000,"dim":64,"init":{"kind":"constant","a":0.0},)"
        R"("optimizer":{"kind":"sgd","learning_rate":1.0}})",
        R"({"sharding":"row_wise"})"));
    ASSERT_THAT(created, IsOk());
  }

  void TearDown() override { ClearFailpoints(); }

  std::unique_ptr<Client> Connect(client::Transport transport = client::Transport::kAuto) {
    client::ConnectOptions options;
    options.transport = transport;
    options.timeout = kAwaitMax;
    // Each break fails several requests.
    options.retry_budget_ratio = 1;
    options.retry_budget_per_second = 1000;
    auto client = cluster_->Connect(std::move(options));
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Adds one to some rows, several times at once, and to `counts`.
  void Count(Client& client, std::mt19937_64& random, std::vector<float>& counts) {
    std::vector<std::vector<std::int64_t>> ids(4);
    std::vector<std::future<absl::Status>> updates;
    const std::vector<float> gradients(2000 * kDim, -1.0f);
    for (std::vector<std::int64_t>& each : ids) {
      each.resize(1 + random() % 2000);
      for (std::int64_t& id : each) {
        id = static_cast<std::int64_t>(random() % kRows);
        ++counts[static_cast<std::size_t>(id)];
      }
      auto done = std::make_shared<std::promise<absl::Status>>();
      updates.push_back(done->get_future());
      client.UpdateAsync({{.table = "counts",
                           .ids = each,
                           .gradients = std::span(gradients).first(each.size() * kDim)}},
                         {}, [done](absl::Status status) { done->set_value(std::move(status)); });
    }
    for (auto& update : updates) {
      const absl::Status updated = update.get();
      ASSERT_THAT(updated, IsOk()) << cluster_->LogTails();
    }
  }

  void ExpectCounts(Client& client, const std::vector<float>& counts) {
    std::vector<std::int64_t> ids(kRows);
    for (std::int64_t id = 0; id < kRows; ++id) ids[static_cast<std::size_t>(id)] = id;
    std::vector<float> rows(kRows * kDim);
    const FeatureLookup all[] = {{.table = "counts", .ids = ids, .rows_out = rows}};
    ASSERT_THAT(client.Lookup(all, {}), IsOk());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) wrong += rows[i] != counts[i / kDim];
    EXPECT_EQ(wrong, 0u);
  }

  double Metric(const std::string& name) const {
    double sum = 0;
    for (int node = 0; node < 2; ++node) {
      sum += MetricsText::Of(cluster_->node_metrics_address(node)).Value(name);
    }
    return sum;
  }

  const TestAuthority authority_;
  std::unique_ptr<ProcessCluster> cluster_;
};

struct Way {
  std::string name;
  client::Transport transport = client::Transport::kAuto;
  bool has_tls = false;
};

class DataSocketsByEachWay : public DataSocketsTest, public ::testing::WithParamInterface<Way> {
 protected:
  void StartWith(std::vector<std::string> shard_flags) {
    Start({.shard_flags = std::move(shard_flags),
           .authority = GetParam().has_tls ? &authority_ : nullptr});
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, DataSocketsByEachWay,
                         ::testing::Values(Way{"Unix", client::Transport::kAuto, false},
                                           Way{"Tcp", client::Transport::kTcp, false},
                                           Way{"Tls", client::Transport::kTcp, true}),
                         [](const ::testing::TestParamInfo<Way>& way) { return way.param.name; });

// A trainer has room at each node for a quarter of what it has in flight.
TEST_P(DataSocketsByEachWay, GradientsTravelOnceThoughMostUpdatesAreRefusedAtFirst) {
  const embla::testing::TempDirectory directory;
  const std::string quotas = directory.path() + "/quotas.json";
  ASSERT_THAT(AtomicWriteFile(quotas, R"({"*": {"rows_in_flight": 500}})"), IsOk());
  StartWith({"--trainer-quotas", quotas});
  std::mt19937_64 random(embla::testing::TestSeed());
  std::vector<float> counts(kRows);
  const std::unique_ptr<Client> client = Connect(GetParam().transport);
  ASSERT_NE(client, nullptr);
  for (int round = 0; round < 30; ++round) Count(*client, random, counts);
  ExpectCounts(*client, counts);
  const double rows = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double bytes = Metric(R"(embla_request_bytes_total{method="Update"})");
  const double refused =
      Metric(R"(embla_requests_total{code="RESOURCE_EXHAUSTED",method="Update"})");
  std::printf("%.0f refusals; %.2f times the bytes of what was taken\n", refused,
              bytes / (rows * (8 + 4 * kDim)));
  EXPECT_GT(refused, 30);
  // Rows that occur twice travel once, and small updates are sent without a question.
  EXPECT_LT(bytes, 1.1 * rows * (8 + 4 * kDim));
}

TEST_P(DataSocketsByEachWay, NoCallFailsWhenTheyBreak) {
  StartWith({});
  std::mt19937_64 random(embla::testing::TestSeed());
  std::vector<float> counts(kRows);
  const std::unique_ptr<Client> client = Connect(GetParam().transport);
  ASSERT_NE(client, nullptr);
  constexpr std::uint64_t kBreaks = 40;
  std::uint64_t broken = 0;
  for (int step = 0; step < 4000 && broken < kBreaks && !HasFatalFailure(); ++step) {
    const std::uint64_t uses = FailpointUses("frame_socket.receive");
    const std::uint64_t hit = 1 + random() % 60;
    SetFailpoint("frame_socket.receive", FailpointAction::kError, hit);
    Count(*client, random, counts);
    broken += FailpointUses("frame_socket.receive") - uses >= hit ? 1 : 0;
    ClearFailpoints();
  }
  EXPECT_GE(broken, kBreaks);
  ExpectCounts(*client, counts);
  // The streams have gone on: so many breaks had so many sockets.
  EXPECT_EQ(Metric("embla_streams"), 2);
  const std::unique_ptr<Client> another = Connect(GetParam().transport);
  ASSERT_NE(another, nullptr);
  for (int step = 0; step < 1000 && Metric("embla_data_sockets") < 2; ++step) {
    Count(*another, random, counts);
  }
  EXPECT_GE(Metric("embla_data_sockets"), 2);
  ExpectCounts(*client, counts);
}

// Their requests lie half read before nodes that stand still, by reference to memory that the
// caller has back: whatever becomes of them, no row sees what came into that memory.
TEST_F(DataSocketsTest, MemoryOfUpdatesThatAreGivenUpMayChange) {
  constexpr int kRounds = 10;
  constexpr int kUpdates = 4;
  Start({});
  const std::unique_ptr<Client> client = Connect();
  ASSERT_NE(client, nullptr);
  std::vector<std::int64_t> ids(2000);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> gradients(kUpdates * ids.size() * kDim);
  std::vector<float> rows(ids.size() * kDim);
  const FeatureLookup all[] = {{.table = "counts", .ids = ids, .rows_out = rows}};
  int given_up = 0;
  for (int round = 0; round < kRounds; ++round) {
    // Its connections are sockets again, and have nothing unread.
    ASSERT_THAT(client->Lookup(all, {}), IsOk());
    ASSERT_TRUE(embla::testing::AwaitFor([&] { return Metric("embla_data_sockets") >= 1; },
                                         kAwaitMax, "there is a data socket"));
    std::ranges::fill(gradients, -1.0f);
    for (int node = 0; node < 2; ++node) cluster_->node(node).Signal(SIGSTOP);
    std::vector<std::future<absl::Status>> updates;
    for (int i = 0; i < kUpdates; ++i) {
      auto done = std::make_shared<std::promise<absl::Status>>();
      updates.push_back(done->get_future());
      client->UpdateAsync(
          {{.table = "counts",
            .ids = ids,
            .gradients = std::span(gradients).subspan(i * ids.size() * kDim, ids.size() * kDim)}},
          {.timeout = absl::Milliseconds(100)},
          [done](absl::Status status) { done->set_value(std::move(status)); });
    }
    for (auto& update : updates) given_up += update.get().ok() ? 0 : 1;
    std::ranges::fill(gradients, -1000.0f);
    for (int node = 0; node < 2; ++node) cluster_->node(node).Signal(SIGCONT);
  }
  EXPECT_EQ(given_up, kRounds * kUpdates);
  // Behind all that was sent.
  std::ranges::fill(gradients, -1.0f);
  const FeatureGradient last{
      .table = "counts", .ids = ids, .gradients = std::span(gradients).first(ids.size() * kDim)};
  ASSERT_THAT(client->Update({&last, 1}, {}), IsOk());
  ASSERT_THAT(client->Lookup(all, {}), IsOk());
  std::size_t torn = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    torn += rows[i] != rows[i - i % kDim] || rows[i] < 1 || rows[i] > kRounds * kUpdates + 1;
  }
  EXPECT_EQ(torn, 0u);
}

TEST_F(DataSocketsTest, AreLeftAloneByWhoDoesNotWantThem) {
  Start({.shard_flags = {"--no-data-sockets"}});
  std::mt19937_64 random(embla::testing::TestSeed());
  std::vector<float> counts(kRows);
  const std::unique_ptr<Client> refused = Connect();
  ASSERT_NE(refused, nullptr);
  for (int step = 0; step < 5; ++step) Count(*refused, random, counts);
  EXPECT_EQ(Metric("embla_data_sockets"), 0);
  ExpectCounts(*refused, counts);
}

// A connection over TLS ends at its age, and so does the socket of each of its streams: who has
// lost a certificate has lost both.
TEST_P(DataSocketsByEachWay, EndWithTheAgeOfTheirConnection) {
  if (!GetParam().has_tls && GetParam().transport == client::Transport::kTcp) return;
  Start({.shard_flags = {"--connection-age", "1"}, .authority = &authority_});
  std::mt19937_64 random(embla::testing::TestSeed());
  std::vector<float> counts(kRows);
  const std::unique_ptr<Client> client = Connect(GetParam().transport);
  ASSERT_NE(client, nullptr);
  bool used = false;
  const absl::Time end = absl::Now() + absl::Seconds(8);
  while (absl::Now() < end && !HasFatalFailure()) {
    Count(*client, random, counts);
    used = used || Metric("embla_data_sockets") > 0;
  }
  EXPECT_TRUE(used);
  ExpectCounts(*client, counts);
}

}  // namespace
}  // namespace embla::data_sockets_test
