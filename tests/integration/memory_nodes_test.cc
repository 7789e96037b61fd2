// A node without a data directory: its log of hand-overs is memory, and gone with its process. When
// a process dies that has taken units over which the coordinator has not heard of, and whose source
// has dropped them, the next one is refused without --accept-loss, by the names of its tables. When
// the source of a job dies, units that the target has taken over stay with it, with all updates.
//
// EMBLA_TEST_SEED: which updates there are.
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/clock.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/counted_rows.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::memory_nodes_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::kCountedDim;
using ::embla::testing::kCountedRows;
using ::embla::testing::kCountedTable;
using ::embla::testing::kCountedUnits;
using ::embla::testing::MetricsText;
using ::embla::testing::ProcessCluster;
using ::testing::HasSubstr;

constexpr std::int64_t kRowsOfUnit = kCountedRows / kCountedUnits;
constexpr std::uint64_t kRate = 150'000;  // Bytes per second: a job takes some two seconds.
constexpr absl::Duration kStallAfter = absl::Seconds(30);  // Then a move is cancelled.

std::int64_t FirstRow(std::size_t unit) { return static_cast<std::int64_t>(unit) * kRowsOfUnit; }

class MemoryNodesTest : public ::testing::Test {
 protected:
  // Two nodes; all rows of the table are on the first.
  void Start() {
    ProcessCluster::Options options{.nodes = 2, .devices_per_node = 1};
    options.accepts_loss = false;
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    v1::CreateTableRequest table = testing::CountedTableRequest();
    table.set_placement_json(R"({"sharding": "row_wise", "nodes": ["node0"]})");
    ASSERT_THAT(admin_->Call<v1::TableReply>(table), IsOk());
    auto client = cluster_->Connect({.timeout = kAwaitMax});
    ASSERT_THAT(client, IsOk());
    client_ = *std::move(client);
  }

  // Each row gets one update; then some get more.
  void Write(std::mt19937_64& random, int updates) {
    std::vector<std::int64_t> ids(kCountedRows);
    for (std::int64_t id = 0; id < kCountedRows; ++id) ids[static_cast<std::size_t>(id)] = id;
    const std::vector<float> gradients(ids.size() * kCountedDim, -1.0f);
    const client::FeatureGradient feature{
        .table = kCountedTable, .ids = ids, .gradients = gradients};
    ASSERT_THAT(client_->Update({&feature, 1}, {}), IsOk()) << cluster_->LogTails();
    for (auto& acked : counts_.acked) ++acked;
    for (int i = 0; i < updates; ++i) {
      ASSERT_NO_FATAL_FAILURE(
          testing::CountedWrite(*client_, i % testing::kCountingWriters, random, counts_));
    }
  }

  absl::StatusOr<v1::Job> StartMoves(int node) {
    v1::StartJobRequest request =
        client::MoveRequest(kCountedTable, 0, kCountedUnits, cluster_->node_name(node), 0);
    request.set_bytes_per_second(kRate);
    request.set_units_in_flight(4);
    return client::CallForJob(*admin_, request);
  }
  v1::JobState AwaitEnd(std::uint64_t id) {
    v1::Job last;
    AwaitFor(
        [&] {
          const auto job = client::CallForJob(*admin_, client::GetJobRequest(id));
          if (job.ok()) last = *job;
          return client::IsOver(last.state());
        },
        3 * kAwaitMax, "the job is over");
    return last.state();
  }

  // The first weight of the unit's first row; none: nobody answers.
  std::optional<float> FirstWeight(std::size_t unit, absl::Duration timeout) {
    const std::int64_t id = FirstRow(unit);
    std::vector<float> row(kCountedDim);
    const client::FeatureLookup feature{.table = kCountedTable, .ids = {&id, 1}, .rows_out = row};
    client::CallOptions call;
    call.timeout = timeout;
    if (!client_->Lookup({&feature, 1}, call).ok()) return std::nullopt;
    return row[0];
  }
  float Acked(std::size_t unit) const {
    return static_cast<float>(counts_.acked[static_cast<std::size_t>(FirstRow(unit))]);
  }

  // Units that came to `node`, or left it ("received", "sent"), in the life of its process.
  int Moves(int node, const std::string& outcome) const {
    return static_cast<int>(
        MetricsText::Of(cluster_->node_metrics_address(node))
            .Value(absl::StrCat("embla_moves_total{outcome=\"", outcome, "\"}")));
  }

  // Without the flag the process ends, and says which rows only its predecessor had.
  void ExpectRefusal(int node) {
    ASSERT_THAT(cluster_->StartNode(node), IsOk());
    EXPECT_EQ(cluster_->AwaitNodeEnd(node), 1);
    EXPECT_THAT(cluster_->LogTails(), HasSubstr(absl::StrCat("table ", kCountedTable)));
    EXPECT_THAT(cluster_->LogTails(), HasSubstr("--accept-loss"));
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::unique_ptr<client::Client> client_;
  testing::RowCounts counts_;
};

// By the plan the target had nothing; the records say that units were on their way to it.
TEST_F(MemoryNodesTest, WhatATargetHadTakenOverUnheardIsNotGivenUpUnsaid) {
  ASSERT_NO_FATAL_FAILURE(Start());
  std::mt19937_64 random(testing::TestSeed());
  ASSERT_NO_FATAL_FAILURE(Write(random, 100));
  const auto job = StartMoves(1);
  ASSERT_THAT(job, IsOk());
  AwaitFor([&] { return Moves(1, "received") > 0; }, kAwaitMax, "units move");
  cluster_->KillCoordinator();  // Before it has a plan for them, which takes a second.
  // A unit whose target was not told of its move stays as it is; others are there within 50 ms.
  int received = 0;
  absl::Time changed = Clock::Real().Now();
  const auto is_covered = [&] {
    const MetricsText source = MetricsText::Of(cluster_->node_metrics_address(0));
    const int before = std::exchange(received, Moves(1, "received"));
    const bool is_dropped = source.Value("embla_units_moving{state=\"frozen\"}") == 0 &&
                            source.Value("embla_units_moving{state=\"retained\"}") == 0;
    if (received != before || !is_dropped) changed = Clock::Real().Now();
    return Clock::Real().Now() - changed > absl::Seconds(1);
  };
  AwaitFor(is_covered, kAwaitMax, "the source has dropped what it handed over");
  cluster_->KillNode(1);
  ASSERT_THAT(cluster_->StartCoordinator(), IsOk());
  ASSERT_NO_FATAL_FAILURE(ExpectRefusal(1));
  ASSERT_THAT(cluster_->StartNode(1, {"--accept-loss"}), IsOk());
  AwaitEnd(job->id());
  ASSERT_THAT(cluster_->AwaitPlan(), IsOk()) << cluster_->LogTails();
  // Units that nobody has are answered by nobody, or begin at initial values; the others are there.
  int lost = 0;
  for (std::size_t unit = 0; unit < kCountedUnits; ++unit) {
    const float weight = FirstWeight(unit, absl::Milliseconds(500)).value_or(0);
    if (weight == 0) ++lost;
    EXPECT_TRUE(weight == 0 || weight == Acked(unit)) << "unit " << unit << ": " << weight;
  }
  EXPECT_EQ(lost, received);
}

// The target keeps what it has taken over, also what no plan says yet; the rest begins anew, and
// the job goes on.
TEST_F(MemoryNodesTest, WhatASourceHadNotHandedOverBeginsAnewAndTheJobGoesOn) {
  ASSERT_NO_FATAL_FAILURE(Start());
  std::mt19937_64 random(testing::TestSeed());
  ASSERT_NO_FATAL_FAILURE(Write(random, 100));
  const auto job = StartMoves(1);
  ASSERT_THAT(job, IsOk());
  AwaitFor([&] { return Moves(1, "received") > 0; }, kAwaitMax, "units move");
  cluster_->KillCoordinator();  // Before it has a plan for them, which takes a second.
  const int received = Moves(1, "received");
  cluster_->KillNode(0);
  ASSERT_THAT(cluster_->StartCoordinator(), IsOk());
  ASSERT_NO_FATAL_FAILURE(ExpectRefusal(0));
  ASSERT_THAT(cluster_->StartNode(0, {"--accept-loss"}), IsOk());
  const absl::Time begun = Clock::Real().Now();
  EXPECT_EQ(AwaitEnd(job->id()), v1::JOB_STATE_DONE) << cluster_->LogTails();
  EXPECT_LT(Clock::Real().Now() - begun, kStallAfter)
      << "moves of the process that died were waited for:" << cluster_->LogTails();
  ASSERT_THAT(cluster_->AwaitPlan(), IsOk()) << cluster_->LogTails();
  int kept = 0;
  for (std::size_t unit = 0; unit < kCountedUnits; ++unit) {
    const std::optional<float> weight = FirstWeight(unit, kAwaitMax);
    ASSERT_TRUE(weight.has_value()) << "nobody answers for unit " << unit;
    EXPECT_TRUE(weight == 0 || weight == Acked(unit)) << "unit " << unit << ": " << *weight;
    if (weight != 0) ++kept;
  }
  EXPECT_GE(kept, received);
  EXPECT_LT(kept, static_cast<int>(kCountedUnits));
}

}  // namespace
}  // namespace embla::memory_nodes_test
