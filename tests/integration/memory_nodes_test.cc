// Nodes without a data directory: their log of hand-overs is memory, and gone with their process.
// docs/migration.md promises of them all the same, when a process dies that has handed over
// units, and the coordinator has not heard of it:
//
// - a unit that another node has taken over stays with that node, with every acknowledged update;
// - what the process had is lost as a whole, and only where the operator has said that it may be:
//   without --accept-loss the next process is refused, by the names of its tables;
// - no lookup in between is answered by initial values of a unit that was handed over;
// - no update is applied twice.
//
// EMBLA_TEST_SEED: when processes die.
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
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/counted_rows.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla {
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

class MemoryNodesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ProcessCluster::Options options{.nodes = 2, .devices_per_node = 1};
    options.accepts_loss = false;
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    ASSERT_THAT(admin_->Call<v1::TableReply>(testing::CountedTableRequest()), IsOk());
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

  // Units that came to `node`, or left it ("received", "sent"), in the life of its process.
  int Moves(int node, const std::string& outcome) const {
    return static_cast<int>(
        MetricsText::Of(cluster_->node_metrics_address(node))
            .Value(absl::StrCat("embla_moves_total{outcome=\"", outcome, "\"}")));
  }

  std::vector<float> ReadAll() {
    std::vector<std::int64_t> ids(kCountedRows);
    for (std::int64_t id = 0; id < kCountedRows; ++id) ids[static_cast<std::size_t>(id)] = id;
    std::vector<float> rows(ids.size() * kCountedDim);
    EXPECT_THAT(client_->ReadRows(kCountedTable, ids, rows), IsOk()) << cluster_->LogTails();
    std::vector<float> first(ids.size());
    for (std::size_t id = 0; id < ids.size(); ++id) first[id] = rows[id * kCountedDim];
    return first;
  }

  // Whether each unit has all its updates; else it has none.
  std::vector<bool> WhatIsKept() {
    std::vector<bool> kept(kCountedUnits);
    const std::vector<float> rows = ReadAll();
    for (std::size_t unit = 0; unit < kCountedUnits; ++unit) {
      const std::size_t begin = unit * kRowsOfUnit;
      kept[unit] = rows[begin] != 0;
      for (std::size_t row = begin; row < begin + kRowsOfUnit; ++row) {
        const auto acked = static_cast<float>(counts_.acked[row]);
        EXPECT_EQ(rows[row], kept[unit] ? acked : 0.0f) << "row " << row << " of unit " << unit;
      }
    }
    return kept;
  }

  // Without the flag the process ends, and says which rows only its predecessor had.
  void ExpectRefusal(int node) {
    ASSERT_THAT(cluster_->StartNode(node), IsOk());
    EXPECT_EQ(cluster_->AwaitNodeEnd(node), 1);
    EXPECT_THAT(cluster_->LogTails(), HasSubstr(absl::StrCat("table ", kCountedTable)));
    EXPECT_THAT(cluster_->LogTails(), HasSubstr("--accept-loss"));
  }

  // By an old plan the process made rows, at initial values, of units that are another node's. They
  // are kept aside until the operator gives them up.
  void DropLeftovers(int node) {
    const std::string table = absl::StrCat(" --table ", kCountedTable);
    const auto [dropped, dropped_code] = cluster_->Embla(
        absl::StrCat("table drop-leftovers", table, " --node ", cluster_->node_name(node)));
    EXPECT_EQ(dropped_code, 0) << dropped;
    AwaitFor([&] { return cluster_->Embla(absl::StrCat("verify", table)).second == 0; }, kAwaitMax,
             "plan, records and nodes agree");
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::unique_ptr<client::Client> client_;
  testing::RowCounts counts_;
};

// Reads until it is over; calls that no node answers in time are nothing.
class ImpatientReader {
 public:
  ImpatientReader(std::unique_ptr<client::Client> client, const testing::RowCounts& counts)
      : client_(std::move(client)), counts_(counts), missed_(kCountedUnits) {
    thread_ = std::thread([this] { Run(); });
  }
  ~ImpatientReader() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // By unit: whether a lookup missed an acknowledged update.
  const std::vector<bool>& Stop() {
    is_over_ = true;
    thread_.join();
    return missed_;
  }

 private:
  void Run() {
    std::mt19937_64 random(1);
    std::vector<float> row(kCountedDim);
    while (!is_over_) {
      const auto id = static_cast<std::int64_t>(random() % kCountedRows);
      const auto acked = static_cast<float>(counts_.acked[static_cast<std::size_t>(id)]);
      const client::FeatureLookup feature{.table = kCountedTable, .ids = {&id, 1}, .rows_out = row};
      client::CallOptions call;
      call.timeout = absl::Milliseconds(50);
      if (!client_->Lookup({&feature, 1}, call).ok()) continue;
      if (row[0] < acked) missed_[static_cast<std::size_t>(id / kRowsOfUnit)] = true;
    }
  }

  const std::unique_ptr<client::Client> client_;
  const testing::RowCounts& counts_;
  std::vector<bool> missed_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

TEST_F(MemoryNodesTest, WhatASourceHadHandedOverIsItsNewOwnersWhenItComesBack) {
  constexpr int kRounds = 2;
  const std::uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  int unrecorded = 0;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round, " seed ", seed));
    const int source = round % 2;
    const int target = 1 - source;
    ASSERT_NO_FATAL_FAILURE(Write(random, 100));
    auto reading = cluster_->Connect({.timeout = kAwaitMax});
    ASSERT_THAT(reading, IsOk());
    ImpatientReader reader(*std::move(reading), counts_);
    const int received_before = Moves(target, "received");
    const auto job = StartMoves(target);
    ASSERT_THAT(job, IsOk()) << cluster_->LogTails();
    const auto at_target = static_cast<int>(kCountedUnits - job->units_total());
    // In every other round the coordinator dies before it has a plan for them, which takes a
    // second.
    const bool is_away = round % 2 == 0;
    const auto wanted = static_cast<int>(1 + random() % (is_away ? 8 : job->units_total() / 2));
    AwaitFor([&] { return Moves(target, "received") >= received_before + wanted; }, kAwaitMax,
             "units move");
    const auto seen = client::CallForJob(*admin_, client::GetJobRequest(job->id()));
    ASSERT_THAT(seen, IsOk());
    if (is_away) cluster_->KillCoordinator();
    cluster_->KillNode(source);
    const int received = Moves(target, "received") - received_before;
    if (is_away) unrecorded += received - static_cast<int>(seen->units_moved());
    if (is_away) {
      ASSERT_THAT(cluster_->StartCoordinator(), IsOk());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectRefusal(source));
    ASSERT_THAT(cluster_->StartNode(source, {"--accept-loss"}), IsOk());
    EXPECT_EQ(AwaitEnd(job->id()), v1::JOB_STATE_DONE) << cluster_->LogTails();
    ASSERT_THAT(cluster_->AwaitPlan(), IsOk()) << cluster_->LogTails();

    const std::vector<bool> kept = WhatIsKept();
    const auto kept_count = static_cast<int>(std::ranges::count(kept, true));
    EXPECT_GE(kept_count, at_target + received) << "what was taken over";
    EXPECT_LT(kept_count, static_cast<int>(kCountedUnits)) << "nothing was lost: no case";
    const std::vector<bool>& missed = reader.Stop();
    for (std::size_t unit = 0; unit < kCountedUnits; ++unit) {
      EXPECT_FALSE(kept[unit] && missed[unit]) << "a lookup of unit " << unit << " was stale";
    }
    ASSERT_NO_FATAL_FAILURE(DropLeftovers(source));
    for (std::size_t row = 0; row < kCountedRows; ++row) {
      if (!kept[row / kRowsOfUnit]) counts_.acked[row] = 0;
    }
  }
  std::cout << "rounds=" << kRounds << " seed=" << seed << " unrecorded=" << unrecorded << '\n';
  EXPECT_GT(unrecorded, 0);
  ASSERT_NO_FATAL_FAILURE(Write(random, 100));
  testing::ExpectRowsAreCounted(*client_, counts_);
}

}  // namespace
}  // namespace embla
