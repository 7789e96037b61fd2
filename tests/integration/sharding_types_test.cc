// One numerics contract: the same synchronous single-trainer run gives the same bits under all
// seven sharding types, on every cluster shape. The reference is table_wise on one node with one
// device.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::sharding_types_test {
namespace {

using client::CallOptions;
using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using client::Pooling;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;

constexpr std::int64_t kRows = 5003;  // A prime: granule borders fall unevenly.
constexpr std::uint32_t kDim = 24;
constexpr int kSteps = 6;
constexpr int kBags = 40;

const char* const kTypes[] = {"table_wise", "data_parallel",  "column_wise", "table_column_wise",
                              "row_wise",   "table_row_wise", "grid_shard"};

struct Training {
  std::string name;
  std::string table_fields;  // JSON fields beside name, rows, dim and seed.
};

const Training kTrainings[] = {
    {"sgd", R"("dtype":"fp32","optimizer":{"kind":"sgd","learning_rate":0.1})"},
    {"rowwise", R"("dtype":"fp32","optimizer":{"kind":"rowwise_adagrad","learning_rate":0.05,)"
                R"("weight_decay":0.01,"weight_decay_mode":"decoupled","gradient_clip":0.5})"},
    {"adagrad_fp16", R"("dtype":"fp16","rounding":"stochastic",)"
                     R"("optimizer":{"kind":"adagrad","learning_rate":0.05})"},
    {"adam_bf16",
     R"("dtype":"bf16","rounding":"stochastic","optimizer":{"kind":"adam","learning_rate":0.01})"},
};

struct Batch {
  std::vector<std::int64_t> ids;  // One per feature row.
  std::vector<float> gradients;   // ids x kDim.
  std::vector<std::int64_t> bag_ids;
  std::vector<std::uint32_t> bag_lengths;
};

std::vector<Batch> MakeBatches() {
  std::mt19937_64 random(20261121);
  std::vector<Batch> batches(kSteps);
  for (Batch& batch : batches) {
    for (int i = 0; i < 200; ++i) {
      // Half of the ids are hot, so that rows repeat within and across batches.
      batch.ids.push_back(static_cast<std::int64_t>(i % 2 == 0 ? random() % 50 : random() % kRows));
    }
    for (std::size_t i = 0; i < batch.ids.size() * kDim; ++i) {
      batch.gradients.push_back(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
    }
    for (int bag = 0; bag < kBags; ++bag) {
      const std::uint32_t length = static_cast<std::uint32_t>(random() % 9);  // 0 happens.
      batch.bag_lengths.push_back(length);
      for (std::uint32_t i = 0; i < length; ++i) {
        batch.bag_ids.push_back(static_cast<std::int64_t>(random() % kRows));
      }
    }
  }
  return batches;
}

// Everything a run shows, as the bits that clients received.
struct Transcript {
  std::vector<std::vector<float>> unpooled;  // Per step.
  std::vector<std::vector<float>> pooled;    // Per step: sums, then means.
  std::vector<float> weights;                // All rows at the end.
  std::vector<float> state;
};

class ShardingTypesTest : public ::testing::Test {
 protected:
  static std::string TableJson(const Training& training, const std::string& name) {
    return absl::StrCat(R"({"name":")", name, R"(","rows":)", kRows, R"(,"dim":)", kDim,
                        R"(,"seed":7,)", training.table_fields, "}");
  }

  static void Step(Client& client, const std::string& table, const Batch& batch,
                   const CallOptions& options, Transcript& transcript) {
    std::vector<float> rows(batch.ids.size() * kDim);
    std::vector<float> sums(kBags * kDim), means(kBags * kDim);
    const FeatureLookup lookups[] = {{.table = table, .ids = batch.ids, .rows_out = rows},
                                     {.table = table,
                                      .ids = batch.bag_ids,
                                      .lengths = batch.bag_lengths,
                                      .pooling = Pooling::kSum,
                                      .rows_out = sums},
                                     {.table = table,
                                      .ids = batch.bag_ids,
                                      .lengths = batch.bag_lengths,
                                      .pooling = Pooling::kMean,
                                      .rows_out = means}};
    const absl::Status looked_up = client.Lookup(lookups, options);
    ASSERT_THAT(looked_up, IsOk()) << table;
    transcript.unpooled.push_back(rows);
    sums.insert(sums.end(), means.begin(), means.end());
    transcript.pooled.push_back(sums);
    const FeatureGradient gradient{.table = table, .ids = batch.ids, .gradients = batch.gradients};
    const absl::Status updated = client.Update({&gradient, 1}, options);
    ASSERT_THAT(updated, IsOk()) << table;
  }

  static Transcript Run(Client& client, const std::string& table,
                        const std::vector<Batch>& batches) {
    Transcript transcript;
    for (int step = 0; step < kSteps; ++step) {
      CallOptions options;
      options.step = step + 1;
      options.combine_duplicates = step % 2 == 0;  // Combined by client and by server: same bits.
      Step(client, table, batches[step], options, transcript);
    }
    std::vector<std::int64_t> all(kRows);
    for (std::int64_t row = 0; row < kRows; ++row) all[row] = row;
    transcript.weights.resize(kRows * kDim);
    EXPECT_THAT(client.ReadRows(table, all, transcript.weights), IsOk());
    const auto state_floats = client.StateFloatsPerRow(table);
    EXPECT_THAT(state_floats, IsOk());
    transcript.state.resize(kRows * state_floats.value_or(0));
    const absl::Status read = client.ReadState(table, all, transcript.state);
    EXPECT_THAT(read, IsOk());
    return transcript;
  }

  // Every table of this cluster, by (training, type). With `only_type`, tables have the same names
  // and ids (stochastic rounding depends on the id) but that sharding type.
  static std::map<std::string, Transcript> RunAll(int nodes, int devices,
                                                  const char* only_type = nullptr) {
    auto cluster = ProcessCluster::Start({.nodes = nodes, .devices_per_node = devices});
    EXPECT_THAT(cluster, IsOk());
    if (!cluster.ok()) return {};
    auto admin = (*cluster)->ConnectAdmin();
    auto client = (*cluster)->Connect();
    EXPECT_THAT(admin, IsOk());
    EXPECT_THAT(client, IsOk());
    if (!admin.ok() || !client.ok()) return {};
    const std::vector<Batch> batches = MakeBatches();
    std::map<std::string, Transcript> transcripts;
    for (const Training& training : kTrainings) {
      for (const char* type : kTypes) {
        const std::string name = absl::StrCat(training.name, ".", type);
        const auto created = (*admin)->Call<v1::TableReply>(client::CreateTableRequest(
            TableJson(training, name),
            absl::StrCat(R"({"sharding":")", only_type != nullptr ? only_type : type,
                         R"(","min_partition":8})")));
        EXPECT_THAT(created, IsOk()) << name;
        if (!created.ok()) return transcripts;
        EXPECT_THAT((*client)->RefreshPlan(), IsOk());
        transcripts[name] = Run(**client, name, batches);
        if (HasFatalFailure()) ADD_FAILURE() << (*cluster)->LogTails();
      }
    }
    return transcripts;
  }

  static const std::map<std::string, Transcript>& Reference() {
    static const auto* const reference =
        new std::map<std::string, Transcript>(RunAll(1, 1, "table_wise"));
    return *reference;
  }

  static void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want,
                             const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << what;
  }

  // (L + n) * 2^-24 * sum |x|, doubled because both sides are rounded (docs/ARCHITECTURE.md). Rows
  // here are below 3 in magnitude and bags have at most 8 ids.
  static void ExpectWithinPooledBound(const std::vector<float>& got, const std::vector<float>& want,
                                      int partials, const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    const double bound = 2.0 * (8 + partials) * std::ldexp(1.0, -24) * 8 * 3;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], bound) << what << " element " << i;
    }
  }

  static void ExpectSameTraining(int nodes, int devices) {
    const std::map<std::string, Transcript> got = RunAll(nodes, devices);
    ASSERT_EQ(got.size(), std::size(kTypes) * std::size(kTrainings));
    for (const auto& [name, transcript] : got) {
      const Transcript& want = Reference().at(name);
      const std::string where = absl::StrCat(name, " on ", nodes, " nodes x ", devices, " devices");
      ASSERT_EQ(transcript.unpooled.size(), want.unpooled.size()) << where;
      for (int step = 0; step < kSteps; ++step) {
        const std::string what = absl::StrCat(where, ", step ", step);
        ExpectSameBits(transcript.unpooled[step], want.unpooled[step], what);
        ExpectWithinPooledBound(transcript.pooled[step], want.pooled[step], nodes * devices, what);
      }
      ExpectSameBits(transcript.weights, want.weights, where + ", final weights");
      ExpectSameBits(transcript.state, want.state, where + ", final state");
    }
  }
};

TEST_F(ShardingTypesTest, TheReferenceLearnsSomething) {
  const Transcript& run = Reference().at("sgd.table_wise");
  EXPECT_NE(run.unpooled.front(), run.unpooled.back());
}

TEST_F(ShardingTypesTest, OneNodeOneDevice) { ExpectSameTraining(1, 1); }
TEST_F(ShardingTypesTest, OneNodeFourDevices) { ExpectSameTraining(1, 4); }
TEST_F(ShardingTypesTest, TwoNodesTwoDevices) { ExpectSameTraining(2, 2); }
TEST_F(ShardingTypesTest, ThreeNodesOneDevice) { ExpectSameTraining(3, 1); }
TEST_F(ShardingTypesTest, ThreeNodesFourDevices) { ExpectSameTraining(3, 4); }

}  // namespace
}  // namespace embla::sharding_types_test
