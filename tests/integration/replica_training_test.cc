// 2D parallelism over real processes: trainers of two replica groups on two nodes of four devices.
// Groups with equal inputs stay equal bit for bit when they are averaged every step; groups with
// different inputs become their mean; each trainer touches its own group.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::replica_training_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 211;
constexpr std::uint32_t kDim = 24;

const char* const kTypes[] = {"table_wise", "column_wise",    "table_column_wise",
                              "row_wise",   "table_row_wise", "grid_shard"};
const char* const kOptimizers[] = {"sgd", "rowwise_adagrad", "adagrad", "adam"};

// The state that one group's trainer can read: all weights and all optimizer state.
struct Copy {
  std::vector<float> weights;
  std::vector<float> state;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class ReplicaTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start({.nodes = 2, .devices_per_node = 4});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    for (std::uint32_t group = 0; group < 2; ++group) {
      auto client = cluster_->Connect({.replica_group = group});
      ASSERT_THAT(client, IsOk());
      trainers_.push_back(*std::move(client));
    }
  }

  absl::Status Create(const std::string& name, const std::string& fields,
                      const std::string& sharding = "row_wise") {
    const auto created = admin_->Call<v1::TableReply>(client::CreateTableRequest(
        absl::StrCat(R"({"name":")", name, R"(","rows":)", kRows, R"(,"dim":)", kDim,
                     R"(,"seed":7,)", fields, "}"),
        absl::StrCat(R"({"sharding":")", sharding, R"(","min_partition":8})")));
    if (!created.ok()) return created.status();
    for (const auto& trainer : trainers_) {
      if (const absl::Status status = trainer->RefreshPlan(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Waits until every node has the plan.
  void AwaitPlan(std::uint64_t version) {
    const auto is_everywhere = [&] {
      const auto nodes = admin_->Call<v1::ListNodesReply>(v1::ListNodesRequest());
      EXPECT_THAT(nodes, IsOk());
      return nodes.ok() &&
             std::all_of(nodes->nodes().begin(), nodes->nodes().end(),
                         [&](const auto& node) { return node.plan_version() >= version; });
    };
    ASSERT_TRUE(AwaitFor(is_everywhere, embla::testing::kAwaitMax, "every node has the plan"))
        << version << cluster_->LogTails();
  }

  // A random gradient for every row: each step touches every node.
  absl::Status Update(Client& client, const std::string& table, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> gradients(kRows * kDim);
    for (float& value : gradients) value = normal(random);
    const std::vector<std::int64_t> ids = AllRows();
    const FeatureGradient feature{.table = table, .ids = ids, .gradients = gradients};
    return client.Update({&feature, 1}, {.step = seed});
  }

  static std::vector<std::int64_t> AllRows() {
    std::vector<std::int64_t> ids(kRows);
    for (std::int64_t row = 0; row < kRows; ++row) ids[row] = row;
    return ids;
  }

  static Copy Read(Client& client, const std::string& table) {
    Copy copy{std::vector<float>(kRows * kDim), {}};
    EXPECT_THAT(client.ReadRows(table, AllRows(), copy.weights), IsOk());
    copy.state.resize(kRows * client.StateFloatsPerRow(table).value_or(0));
    const absl::Status read = client.ReadState(table, AllRows(), copy.state);
    EXPECT_THAT(read, IsOk());
    return copy;
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::vector<std::unique_ptr<Client>> trainers_;  // By group.
};

TEST_F(ReplicaTrainingTest, GroupsWithEqualInputsStayEqualBitForBit) {
  for (const char* const optimizer : kOptimizers) {
    for (const char* const type : kTypes) {
      const char* const dtype = std::string(optimizer) == "adagrad" ? "fp16" : "fp32";
      const std::string name = absl::StrCat(optimizer, ".", type);
      SCOPED_TRACE(name);
      const std::string fields = absl::StrCat(R"("dtype":")", dtype, R"(","optimizer":{"kind":")",
                                              optimizer, R"(","learning_rate":0.05})");
      ASSERT_THAT(Create(name, absl::StrCat(R"("replica_groups":2,)", fields), type), IsOk());
      ASSERT_THAT(Create(name + ".alone", fields, type), IsOk());
      for (std::uint32_t step = 1; step <= 3; ++step) {
        ASSERT_THAT(Update(*trainers_[0], name, step), IsOk());
        ASSERT_THAT(Update(*trainers_[1], name, step), IsOk());
        ASSERT_THAT(Update(*trainers_[0], name + ".alone", step), IsOk());
        const auto synced = trainers_[step % 2]->Sync({name, name + ".alone"}, {});
        ASSERT_THAT(synced, IsOk());
        ASSERT_EQ(synced->size(), 2u);
        EXPECT_EQ(synced->front().divergence_max, 0.0);
        EXPECT_EQ(synced->back().replica_groups, 1u);
      }
      const Copy first = Read(*trainers_[0], name);
      const Copy second = Read(*trainers_[1], name);
      const Copy alone = Read(*trainers_[0], name + ".alone");
      EXPECT_TRUE(SameBits(first.weights, second.weights));
      EXPECT_TRUE(SameBits(first.state, second.state));
      EXPECT_TRUE(SameBits(first.weights, alone.weights));
      EXPECT_TRUE(SameBits(first.state, alone.state));
    }
  }
}

TEST_F(ReplicaTrainingTest, GroupsWithDifferentInputsBecomeTheirMean) {
  ASSERT_THAT(Create("t", R"("replica_groups":2,"optimizer":{"kind":"adagrad"})"), IsOk());
  ASSERT_THAT(Update(*trainers_[0], "t", 1), IsOk());
  const Copy untouched = Read(*trainers_[1], "t");
  ASSERT_THAT(Update(*trainers_[0], "t", 2), IsOk());
  const Copy still = Read(*trainers_[1], "t");
  EXPECT_TRUE(SameBits(untouched.weights, still.weights));
  ASSERT_THAT(Update(*trainers_[1], "t", 3), IsOk());
  const Copy before[] = {Read(*trainers_[0], "t"), Read(*trainers_[1], "t")};
  const auto synced = trainers_[0]->Sync({}, {});
  ASSERT_THAT(synced, IsOk());
  ASSERT_EQ(synced->size(), 1u);
  const Copy after = Read(*trainers_[0], "t");
  const Copy other = Read(*trainers_[1], "t");
  EXPECT_TRUE(SameBits(after.weights, other.weights));
  EXPECT_TRUE(SameBits(after.state, other.state));
  double squares = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < after.weights.size(); ++i) {
    const double mean = (double{before[0].weights[i]} + before[1].weights[i]) / 2;
    const double distance = std::abs(before[0].weights[i] - mean);
    EXPECT_NEAR(after.weights[i], mean, 1e-6);
    squares += 2 * distance * distance;
    largest = std::max(largest, distance);
  }
  for (std::size_t i = 0; i < after.state.size(); ++i) {
    const double mean = (double{before[0].state[i]} + before[1].state[i]) / 2;
    EXPECT_NEAR(after.state[i], mean, std::abs(mean) * 1e-6);
  }
  EXPECT_EQ(synced->front().table, "t");
  EXPECT_NEAR(synced->front().divergence_max, largest, 1e-6);
  EXPECT_NEAR(synced->front().divergence_rms,
              std::sqrt(squares / (2.0 * static_cast<double>(after.weights.size()))), 1e-6);
}

TEST_F(ReplicaTrainingTest, NodesAverageAfterEverySoManySteps) {
  ASSERT_THAT(Create("t", R"("replica_groups":2,"sync_every_steps":2)"), IsOk());
  for (std::uint32_t step = 1; step <= 4; ++step) {
    ASSERT_THAT(Update(*trainers_[0], "t", 2 * step), IsOk());
    ASSERT_THAT(Update(*trainers_[1], "t", 2 * step + 1), IsOk());
    const Copy first = Read(*trainers_[0], "t");
    const Copy second = Read(*trainers_[1], "t");
    EXPECT_EQ(SameBits(first.weights, second.weights), step % 2 == 0);
    EXPECT_EQ(SameBits(first.state, second.state), step % 2 == 0);
  }
  v1::SetTableRequest request;
  request.set_name("t");
  (*request.mutable_values())["sync_every_steps"] = "1";
  const auto set = admin_->Call<v1::TableReply>(request);
  ASSERT_THAT(set, IsOk());
  AwaitPlan(set->plan_version());
  ASSERT_THAT(Update(*trainers_[0], "t", 10), IsOk());
  ASSERT_THAT(Update(*trainers_[1], "t", 11), IsOk());
  EXPECT_TRUE(SameBits(Read(*trainers_[0], "t").weights, Read(*trainers_[1], "t").weights));
}

TEST_F(ReplicaTrainingTest, TheCoordinatorGivesTrainersGroupsInTurn) {
  ASSERT_THAT(Create("t", R"("replica_groups":2)"), IsOk());
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<int> trainers_of(2, 0);
  for (int i = 0; i < 4; ++i) {
    auto client = cluster_->Connect();
    ASSERT_THAT(client, IsOk());
    for (const client::TableInfo& table : (*client)->Tables()) {
      ASSERT_EQ(table.replica_groups, 2u);
      ++trainers_of[table.replica_group];
    }
    clients.push_back(*std::move(client));
  }
  EXPECT_THAT(trainers_of, ::testing::ElementsAre(2, 2));
}

TEST_F(ReplicaTrainingTest, WrongGroupsAreRefused) {
  const absl::Status three = Create("t", R"("replica_groups":3)");
  EXPECT_EQ(three.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(three.message()), HasSubstr("has 4 devices"));
  const absl::Status parallel = Create("t", R"("replica_groups":2)", "data_parallel");
  EXPECT_EQ(parallel.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_THAT(Create("t", R"("replica_groups":2)"), IsOk());
  auto lost = cluster_->Connect({.replica_group = 5});
  ASSERT_THAT(lost, IsOk());
  const absl::Status update = Update(**lost, "t", 1);
  EXPECT_EQ(update.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(update.message()), HasSubstr("groups 0 to 1, not 5"));
  EXPECT_EQ((*lost)->Sync({"none"}, {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ReplicaTrainingTest, ADeadNodeIsNamedAndSyncGoesOnWhenItIsBack) {
  ASSERT_THAT(Create("t", R"("replica_groups":2)"), IsOk());
  ASSERT_THAT(Update(*trainers_[0], "t", 1), IsOk());
  cluster_->KillNode(1);
  const absl::Status dead = trainers_[0]->Sync({"t"}, {.timeout = absl::Seconds(2)}).status();
  EXPECT_THAT(std::string(dead.message()),
              AllOf(HasSubstr(absl::StrCat("node ", cluster_->node_name(1))),
                    HasSubstr(cluster_->node_address(1))));
  ASSERT_THAT(cluster_->RestartNode(1), IsOk()) << cluster_->LogTails();
  const auto synced = trainers_[1]->Sync({"t"}, {.timeout = absl::Seconds(20)});
  ASSERT_THAT(synced, IsOk());
  EXPECT_TRUE(SameBits(Read(*trainers_[0], "t").weights, Read(*trainers_[1], "t").weights));
}

}  // namespace
}  // namespace embla::replica_training_test
