// ZCH tables over real processes: the same training gives the same rows, slots and state under
// every sharding type and cluster shape, through the client as trainers use it.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::zch_cluster_test {
namespace {

using client::CallOptions;
using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;

constexpr std::uint32_t kDim = 12;
constexpr int kSteps = 8;
constexpr int kIdsPerStep = 400;

const char* const kTypes[] = {"table_wise", "row_wise", "table_row_wise"};

struct Training {
  std::string name;
  std::string table_fields;  // JSON fields beside name, rows and dim.
};

// 7 buckets of 64 rows: about half of the ids that come can have one.
const Training kTrainings[] = {
    {"lru", R"("zch":{"buckets":7},"optimizer":{"kind":"sgd","learning_rate":0.1})"},
    {"lfu", R"("zch":{"buckets":7,"policy":"lfu","admission":"count","admission_count":2},)"
            R"("dtype":"fp16","rounding":"stochastic","optimizer":{"kind":"adagrad"})"},
    {"shared", R"("zch":{"buckets":7,"reserved_lanes":4,"unseen":"default"},)"
               R"("optimizer":{"kind":"rowwise_adagrad","learning_rate":0.05})"},
    {"ttl", R"("zch":{"buckets":7,"policy":"ttl","ttl_steps":2,"unseen":"zero"},)"
            R"("dtype":"bf16","optimizer":{"kind":"adam","learning_rate":0.01})"},
};

// The observable results of a run.
struct Transcript {
  std::vector<std::vector<float>> lookups;  // Per step.
  std::vector<std::int64_t> rows;           // By id of AllIds, at the end; -1: none.
  std::vector<float> state;                 // State of the ids that have one.
  std::string exported;                     // The files, one after the other.

  bool operator==(const Transcript&) const = default;
};

std::vector<std::int64_t> AllIds() {
  std::vector<std::int64_t> ids = {0, -1, INT64_MIN, INT64_MAX};
  std::mt19937_64 random(5);
  while (ids.size() < 900) ids.push_back(static_cast<std::int64_t>(random()));
  return ids;
}

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class ZchClusterTest : public ::testing::Test {
 protected:
  static void Train(Client& client, const std::string& table, Transcript& transcript) {
    std::mt19937_64 random(20261122);
    const std::vector<std::int64_t> all = AllIds();
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<std::int64_t> ids;
      std::vector<float> gradients;
      for (int i = 0; i < kIdsPerStep; ++i) {
        ids.push_back(all[i % 2 == 0 ? random() % 50 : random() % all.size()]);
      }
      for (std::size_t i = 0; i < ids.size() * kDim; ++i) {
        gradients.push_back(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
      }
      CallOptions options;
      options.step = step;
      options.combine_duplicates = step % 2 == 0;
      std::vector<float> rows(ids.size() * kDim);
      const FeatureLookup lookup{.table = table, .ids = ids, .rows_out = rows};
      const absl::Status looked_up = client.Lookup({&lookup, 1}, options);
      ASSERT_THAT(looked_up, IsOk()) << table;
      transcript.lookups.push_back(rows);
      const FeatureGradient gradient{.table = table, .ids = ids, .gradients = gradients};
      const absl::Status updated = client.Update({&gradient, 1}, options);
      ASSERT_THAT(updated, IsOk()) << table;
    }
  }

  static void Inspect(Client& client, const std::string& table, Transcript& transcript) {
    std::vector<std::int64_t> residents;
    for (const std::int64_t id : AllIds()) {
      const auto found = client.ExplainId(table, id);
      ASSERT_THAT(found, IsOk());
      transcript.rows.push_back(found->row.value_or(-1));
      if (found->row.has_value()) residents.push_back(id);
    }
    const auto floats = client.StateFloatsPerRow(table);
    ASSERT_THAT(floats, IsOk());
    transcript.state.resize(residents.size() * *floats);
    const absl::Status read = client.ReadState(table, residents, transcript.state);
    ASSERT_THAT(read, IsOk());
    const std::vector<std::int64_t> nobody = {424242};
    std::vector<float> state(*floats);
    EXPECT_EQ(client.ReadState(table, nobody, state).code(), absl::StatusCode::kOutOfRange);
    const std::string path =
        std::filesystem::path(::testing::TempDir()) / absl::StrCat(table, ".npy");
    const absl::Status exported = client.ExportTable(table, path);
    ASSERT_THAT(exported, IsOk());
    transcript.exported = Contents(path) + Contents(path + ".ids.npy");
    std::filesystem::remove(path);
    std::filesystem::remove(path + ".ids.npy");
    const std::size_t bytes = residents.size() * (kDim * sizeof(float) + sizeof(std::int64_t));
    EXPECT_EQ(transcript.exported.size(), 2 * 128 + bytes);
  }

  // Every training under `type`, by name. Table ids are the same in all runs.
  static std::map<std::string, Transcript> RunAll(int nodes, int devices, const char* type) {
    auto cluster = ProcessCluster::Start({.nodes = nodes, .devices_per_node = devices});
    EXPECT_THAT(cluster, IsOk());
    if (!cluster.ok()) return {};
    auto admin = (*cluster)->ConnectAdmin();
    auto client = (*cluster)->Connect();
    EXPECT_THAT(admin, IsOk());
    EXPECT_THAT(client, IsOk());
    if (!admin.ok() || !client.ok()) return {};
    std::map<std::string, Transcript> transcripts;
    for (const Training& training : kTrainings) {
      const auto created = (*admin)->Call<v1::TableReply>(client::CreateTableRequest(
          absl::StrCat(R"({"name":")", training.name, R"(","rows":448,"dim":)", kDim,
                       R"(,"seed":7,)", training.table_fields, "}"),
          absl::StrCat(R"({"sharding":")", type, R"("})")));
      EXPECT_THAT(created, IsOk()) << training.name;
      if (!created.ok()) return transcripts;
      EXPECT_THAT((*client)->RefreshPlan(), IsOk());
      Transcript& transcript = transcripts[training.name];
      Train(**client, training.name, transcript);
      if (!HasFatalFailure()) Inspect(**client, training.name, transcript);
      if (HasFatalFailure()) ADD_FAILURE() << (*cluster)->LogTails();
    }
    return transcripts;
  }

  static const std::map<std::string, Transcript>& Reference() {
    static const auto* const reference =
        new std::map<std::string, Transcript>(RunAll(1, 1, "table_wise"));
    return *reference;
  }

  static void ExpectSameTraining(int nodes, int devices) {
    for (const char* type : kTypes) {
      const std::map<std::string, Transcript> got = RunAll(nodes, devices, type);
      ASSERT_EQ(got.size(), std::size(kTrainings));
      for (const auto& [name, transcript] : got) {
        EXPECT_TRUE(transcript == Reference().at(name))
            << name << " " << type << " on " << nodes << " nodes x " << devices << " devices";
      }
    }
  }
};

TEST_F(ZchClusterTest, TheReferenceLearnsAndSomeIdsHaveNoRow) {
  for (const auto& [name, transcript] : Reference()) {
    EXPECT_NE(transcript.lookups.front(), transcript.lookups.back()) << name;
    EXPECT_THAT(transcript.rows, ::testing::Contains(-1)) << name;
    EXPECT_FALSE(transcript.state.empty() && name != "lru") << name;
  }
}

TEST_F(ZchClusterTest, OneNodeFourDevices) { ExpectSameTraining(1, 4); }
TEST_F(ZchClusterTest, TwoNodesTwoDevices) { ExpectSameTraining(2, 2); }
TEST_F(ZchClusterTest, ThreeNodesOneDevice) { ExpectSameTraining(3, 1); }

TEST_F(ZchClusterTest, CutsThatAZchTableCannotHaveAreRefused) {
  auto cluster = ProcessCluster::Start({.nodes = 1, .devices_per_node = 2});
  ASSERT_THAT(cluster, IsOk());
  auto admin = (*cluster)->ConnectAdmin();
  ASSERT_THAT(admin, IsOk());
  for (const char* type : {"column_wise", "table_column_wise", "grid_shard", "data_parallel"}) {
    const auto created = (*admin)->Call<v1::TableReply>(
        client::CreateTableRequest(R"({"name":"t","rows":64,"dim":8,"zch":{"buckets":1}})",
                                   absl::StrCat(R"({"sharding":")", type, R"("})")));
    EXPECT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument) << type;
    EXPECT_THAT(std::string(created.status().message()), ::testing::HasSubstr("zch table")) << type;
  }
}

// Ids 0 to 299 live 5 steps, ids 300 to 349 live 50; ids 0 to 49 are touched again.
class ZchSweepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cluster = ProcessCluster::Start({.nodes = 3, .devices_per_node = 1});
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    auto admin = cluster_->ConnectAdmin();
    auto client = cluster_->Connect();
    ASSERT_THAT(admin, IsOk());
    ASSERT_THAT(client, IsOk());
    admin_ = *std::move(admin);
    client_ = *std::move(client);
    const auto created = admin_->Call<v1::TableReply>(client::CreateTableRequest(
        R"({"name":"users","rows":1024,"dim":4,"zch":{"buckets":16,"policy":"ttl","ttl_steps":5,)"
        R"("eviction_buffer_bytes":1000000}})",
        R"({"sharding":"row_wise"})"));
    ASSERT_THAT(created, IsOk());
    ASSERT_THAT(client_->RefreshPlan(), IsOk());
    Touch(0, 300, 1, 0);
    Touch(300, 350, 1, 50);
    Touch(0, 50, 3, 0);
  }

  void Touch(std::int64_t first, std::int64_t last, std::uint64_t step, std::uint32_t ttl_steps) {
    std::vector<std::int64_t> ids;
    for (std::int64_t id = first; id < last; ++id) ids.push_back(id);
    const std::vector<float> gradients(ids.size() * 4, 0.5f);
    const FeatureGradient gradient{
        .table = "users", .ids = ids, .gradients = gradients, .ttl_steps = ttl_steps};
    CallOptions options;
    options.step = step;
    const absl::Status updated = client_->Update({&gradient, 1}, options);
    ASSERT_THAT(updated, IsOk());
  }

  // Evictions at `step` that can be read now.
  std::size_t CountEvictions(std::uint64_t step) {
    std::size_t count = 0;
    const absl::Status read =
        client_->ReadEvictions("users", false, [&](const client::EvictedRow& row) {
          EXPECT_EQ(row.missed, 0u);
          count += row.step == step ? 1 : 0;
          return absl::OkStatus();
        });
    EXPECT_THAT(read, IsOk());
    return count;
  }
  void Drain(const std::string& node) {
    absl::StatusOr<v1::Job> job = client::CallForJob(*admin_, client::DrainRequest(node));
    ASSERT_THAT(job, IsOk());
    const auto is_over = [&, id = job->id()] {
      job = client::CallForJob(*admin_, client::GetJobRequest(id));
      return !job.ok() || client::IsOver(job->state());
    };
    AwaitFor(is_over, embla::testing::kAwaitMax, "the node is drained");
    ASSERT_THAT(job, IsOk());
    ASSERT_EQ(job->state(), v1::JOB_STATE_DONE);
    ASSERT_THAT(client_->RefreshPlan(), IsOk());
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::unique_ptr<Client> client_;
};

// docs/zch.md: evicted rows do not move, so they go with the last of the table on their node.
TEST_F(ZchSweepTest, EvictedRowsAreReadWhereTheyWereEvictedAndNotAfterTheirNodeGaveTheTableAway) {
  const auto swept = client_->SweepTable("users", {.at_step = 6});
  ASSERT_THAT(swept, IsOk());
  ASSERT_EQ(swept->evicted, 250u);
  EXPECT_EQ(CountEvictions(6), 250u);
  Drain("node0");
  const std::size_t left = CountEvictions(6);
  EXPECT_LT(left, 250u);
  EXPECT_GT(left, 0u);
  // Later evictions are read from the nodes that have the buckets then.
  const auto rest = client_->SweepTable("users", {.at_step = 1000});
  ASSERT_THAT(rest, IsOk());
  EXPECT_EQ(rest->evicted, 100u);
  EXPECT_EQ(CountEvictions(1000), 100u);
}

TEST_F(ZchSweepTest, ReachesEveryBucketWhileTheyMoveAndTheRowsCanBeFollowed) {
  std::map<std::int64_t, std::string> followed;
  absl::Status ended;
  std::thread reader([&] {
    ended = client_->ReadEvictions("users", true, [&](const client::EvictedRow& row) {
      EXPECT_EQ(row.weights.size(), 4u);
      EXPECT_EQ(row.step, 6u);
      EXPECT_EQ(row.missed, 0u);
      EXPECT_TRUE(followed.emplace(row.id, row.reason).second) << row.id;
      return followed.size() < 250 ? absl::OkStatus() : absl::CancelledError("enough");
    });
  });
  const auto started = client::CallForJob(*admin_, client::ReshardRequest("users", 2));
  EXPECT_THAT(started, IsOk());
  const auto swept = client_->SweepTable("users", {.at_step = 6});
  EXPECT_THAT(swept, IsOk()) << cluster_->LogTails();
  if (swept.ok()) {
    EXPECT_EQ(swept->evicted, 250u);
  }
  reader.join();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  for (std::int64_t id = 50; id < 300; ++id) EXPECT_EQ(followed[id], "expired") << id;
  const auto again = client_->SweepTable("users", {.at_step = 6});
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->evicted, 0u);
  const auto explained = client_->ExplainId("users", 60);
  ASSERT_THAT(explained, IsOk());
  EXPECT_FALSE(explained->row.has_value());
}

TEST_F(ZchSweepTest, SurveyAndSweepOfIdleIds) {
  const auto survey = client_->SurveyTable("users");
  ASSERT_THAT(survey, IsOk());
  EXPECT_EQ(survey->slots, 1024u);
  EXPECT_EQ(survey->residents, 350u);
  EXPECT_EQ(survey->latest_step, 3u);
  EXPECT_EQ(survey->oldest_age, 2u);
  EXPECT_EQ(survey->age_sum, 600u);
  const auto swept = client_->SweepTable("users", {.older_than_steps = 2});
  ASSERT_THAT(swept, IsOk());
  EXPECT_EQ(swept->at_step, 3u);
  EXPECT_EQ(swept->evicted, 300u);
  std::size_t kept = 0;
  const absl::Status read =
      client_->ReadEvictions("users", false, [&](const client::EvictedRow& row) {
        EXPECT_EQ(row.reason, "idle");
        ++kept;
        return absl::OkStatus();
      });
  EXPECT_THAT(read, IsOk());
  EXPECT_EQ(kept, 300u);
}

}  // namespace
}  // namespace embla::zch_cluster_test
