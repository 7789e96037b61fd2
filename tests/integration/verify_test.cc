// `embla verify` against real processes: where all is well it says so, and damage that is planted
// into a shard server is named, unit by unit and node by node, with exit code 1.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::verify_test {
namespace {

using client::FeatureGradient;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::int64_t kRows = 40;
constexpr std::uint32_t kDim = 8;

class VerifyTest : public ::testing::Test {
 protected:
  // A table of 4 units of 10 rows on two nodes.
  void Start(const ProcessCluster::Options& options, const std::string& sharding,
             const std::string& fields = "") {
    auto started = ProcessCluster::Start(options);
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    const auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    const auto created = (*admin)->Call<v1::TableReply>(
        client::CreateTableRequest(absl::StrCat(R"({"name":"t","rows":)", kRows, R"(,"dim":)", kDim,
                                                R"(,"row_granules":4)", fields, "}"),
                                   absl::StrCat(R"({"sharding":")", sharding, R"("})")));
    ASSERT_THAT(created, IsOk());
  }

  std::unique_ptr<client::Client> Connect(const client::ConnectOptions& options = {}) {
    auto client = cluster_->Connect(options);
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }
  // One row of each unit.
  void Train(client::Client& client) {
    const std::vector<std::int64_t> ids = {1, 11, 21, 31};
    const std::vector<float> gradients(ids.size() * kDim, 1.0f);
    const FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
    const absl::Status updated = client.Update({&feature, 1}, {});
    ASSERT_THAT(updated, IsOk()) << cluster_->LogTails();
  }
  std::pair<std::string, int> Verify(const std::string& flags = "") {
    return cluster_->Embla("verify --table t " + flags);
  }
  // Moves unit 0 from node 0 to node 1.
  void MoveFirstUnit() {
    const std::string target = cluster_->node_name(1);
    const auto moved =
        cluster_->Embla(absl::StrCat("move --table t --granules 0-0 --to ", target, ":0 --wait"));
    ASSERT_EQ(moved.second, 0) << moved.first << cluster_->LogTails();
  }
  std::string Node(int node) const { return absl::StrCat("node ", cluster_->node_name(node)); }

  std::unique_ptr<ProcessCluster> cluster_;
};

TEST_F(VerifyTest, FindsNothingWhereUnitsMovedAndChangedDevices) {
  Start({.nodes = 2, .devices_per_node = 2}, "row_wise");
  Train(*Connect());
  EXPECT_THAT(Verify(), Pair(HasSubstr("4 units, 40 rows"), 0));
  for (const char* const shards : {"1", "2", "4", "3"}) {
    const auto done = cluster_->Embla(absl::StrCat("reshard --table t --wait --shards ", shards));
    ASSERT_EQ(done.second, 0) << done.first << cluster_->LogTails();
    EXPECT_THAT(Verify(), Pair(HasSubstr("all well"), 0));
  }
}

TEST_F(VerifyTest, NamesAUnitThatIsLost) {
  Start({.nodes = 2,
         .devices_per_node = 1,
         .failpoints = {{1, "units.lose=error"}},
         .plants_damage = true},
        "row_wise");
  MoveFirstUnit();
  EXPECT_THAT(Verify(), Pair(HasSubstr(absl::StrCat("unit 0 of table t (rows 0-9, columns 0-7) is "
                                                    "served by nobody; the plan says ",
                                                    Node(1))),
                             1));
}

TEST_F(VerifyTest, NamesBothOwnersOfAUnit) {
  Start({.nodes = 2,
         .devices_per_node = 1,
         .failpoints = {{0, "units.keep=error"}},
         .plants_damage = true},
        "row_wise");
  MoveFirstUnit();
  EXPECT_THAT(Verify(), Pair(HasSubstr(absl::StrCat("unit 0 of table t (rows 0-9, columns 0-7) is "
                                                    "served by ",
                                                    Node(0), " and by ", Node(1))),
                             1));
}

TEST_F(VerifyTest, NamesACopyThatDiffers) {
  Start({.nodes = 2,
         .devices_per_node = 1,
         .failpoints = {{1, "update.double=error"}},
         .plants_damage = true},
        "data_parallel");
  EXPECT_THAT(Verify(), Pair(HasSubstr("all well"), 0));
  Train(*Connect());
  EXPECT_THAT(Verify(), Pair(AllOf(HasSubstr("unit 3 of table t (rows 30-39, columns 0-7) is not "
                                             "the same on "),
                                   HasSubstr(Node(0)), HasSubstr(Node(1))),
                             1));
}

TEST_F(VerifyTest, ComparesReplicaGroupsThatWereAveraged) {
  Start({.nodes = 2, .devices_per_node = 2}, "row_wise", R"(,"replica_groups":2)");
  EXPECT_THAT(Verify("--synced"), Pair(HasSubstr("8 units, 80 rows"), 0));
  const auto client = Connect({.replica_group = 1});
  Train(*client);
  EXPECT_THAT(Verify(), Pair(HasSubstr("all well"), 0));
  EXPECT_THAT(Verify("--synced"),
              Pair(AllOf(HasSubstr("unit 3 of table t (rows 30-39, columns 0-7) is not the same in "
                                   "replica group 0 on "),
                         HasSubstr("and in replica group 1 on ")),
                   1));
  ASSERT_THAT(client->Sync({"t"}, {}), IsOk());
  EXPECT_THAT(Verify("--synced"), Pair(HasSubstr("all well"), 0));
}

}  // namespace
}  // namespace embla::verify_test
