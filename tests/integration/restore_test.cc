// A coordinator whose state directory is put back from an older backup, and nodes whose directories
// are put back from older copies, while real processes have gone on: no acknowledged update is lost
// silently, no unit has two owners, `embla verify` finds nothing or names what is kept aside.
//
// Backups and restores are what docs/runbook.md says, word for word (tests/house/runbook_test.py).
// RestoreTest.Loop does both, one after the other and at once, EMBLA_RESTORES times (2 unless it is
// set), drawn from EMBLA_RESTORE_SEED, and prints what came of it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_cluster.h"

namespace embla::restore_test {
namespace {

namespace fs = std::filesystem;
using client::FeatureGradient;
using client::FeatureLookup;
using embla::testing::AwaitFor;
using embla::testing::IsOk;
using embla::testing::ProcessCluster;
using embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr std::int64_t kRows = 40;
constexpr std::uint32_t kDim = 4;

class RestoreTest : public ::testing::Test {
 protected:
  void Start(int nodes = 2) {
    auto started = ProcessCluster::Start({.nodes = nodes, .devices_per_node = 1, .journals = true});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
  }
  // Four units; SGD at rate 1 from `value`: each update takes 1 from the rows that it names.
  void Create(const std::string& table, int value = 0) {
    const auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    ASSERT_THAT(
        (*admin)->Call<v1::TableReply>(client::CreateTableRequest(
            absl::StrCat(R"({"name":")", table, R"(","rows":)", kRows, R"(,"dim":)", kDim,
                         R"(,"row_granules":4,"optimizer":{"kind":"sgd","learning_rate":1.0},)",
                         R"("init":{"kind":"constant","a":)", value, R"(.0,"b":0.0}})"),
            R"({"sharding":"row_wise"})")),
        IsOk())
        << cluster_->LogTails();
    acknowledged_[table] = std::vector<int>(kRows, 0);
    first_[table] = value;
  }
  std::unique_ptr<client::Client> Connect() {
    auto client = cluster_->Connect();
    EXPECT_THAT(client, IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }
  void Train(client::Client& client, const std::string& table, int updates) {
    const std::vector<std::int64_t> ids = {1, 11, 21, 31};
    const std::vector<float> gradients(ids.size() * kDim, 1.0f);
    const FeatureGradient feature{.table = table, .ids = ids, .gradients = gradients};
    for (int i = 0; i < updates; ++i) {
      ASSERT_THAT(client.Update({&feature, 1}, {}), IsOk()) << cluster_->LogTails();
      for (const std::int64_t id : ids) ++acknowledged_[table][static_cast<std::size_t>(id)];
    }
  }
  // Rows of the table that do not have exactly what was acknowledged.
  int WrongRows(client::Client& client, const std::string& table) {
    std::vector<std::int64_t> ids(kRows);
    for (std::int64_t row = 0; row < kRows; ++row) ids[static_cast<std::size_t>(row)] = row;
    std::vector<float> rows(kRows * kDim);
    const FeatureLookup feature{.table = table, .ids = ids, .rows_out = rows};
    const absl::Status found = client.Lookup({&feature, 1}, {});
    EXPECT_THAT(found, IsOk()) << cluster_->LogTails();
    if (!found.ok()) return static_cast<int>(kRows);
    int wrong = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto want = static_cast<float>(first_[table] - acknowledged_[table][row]);
      if (rows[row * kDim] == want) continue;
      ++wrong;
      std::printf("row %zu of table %s is %g, and should be %g\n", row, table.c_str(),
                  static_cast<double>(rows[row * kDim]), static_cast<double>(want));
    }
    return wrong;
  }

  std::string backup() const { return cluster_->state_directory() + ".backup"; }
  // While everything runs.
  void BackUp() {
    fs::remove_all(backup());
    ExpectDone(absl::StrCat("cluster backup --state-dir ", cluster_->state_directory(), " --to ",
                            backup()));
  }
  // The coordinator stops; nodes and trainers do not. Nodes hear of a plan after the caller that
  // made it: a change that no node has heard of would go with the newer state.
  void Restore() {
    ASSERT_THAT(cluster_->AwaitPlan(), IsOk());
    cluster_->StopCoordinator();
    fs::remove_all(cluster_->state_directory());
    ExpectDone(absl::StrCat("cluster restore --from ", backup(), " --state-dir ",
                            cluster_->state_directory()));
    ASSERT_THAT(cluster_->RestartCoordinator(), IsOk()) << cluster_->LogTails();
  }
  // The node's directory is put back from a copy of it that was made when the node was stopped
  // last: its program ends with the reason, and comes back with what it had.
  void ExpectOlderCopyIsRefused(int node) {
    const std::string directory = cluster_->data_directory(node);
    cluster_->KillNode(node);
    Copy(directory, directory + ".now");
    Copy(directory + ".copy", directory);
    ASSERT_THAT(cluster_->StartNode(node), IsOk());
    EXPECT_GT(cluster_->AwaitNodeEnd(node), 0) << cluster_->LogTails();
    EXPECT_THAT(cluster_->LogTails(), HasSubstr("older copy"));
    Copy(directory + ".now", directory);
    ASSERT_THAT(cluster_->RestartNode(node), IsOk()) << cluster_->LogTails();
  }
  // The line that `node` keeps of others.
  std::string TestimonyOf(int node) {
    std::ifstream identity(cluster_->data_directory(node) + "/identity");
    for (std::string line; std::getline(identity, line);) {
      if (line.starts_with("testimony ")) return line;
    }
    return "";
  }
  // The coordinator and the node are stopped, both are put back from copies that were made before
  // the node's last process, and begin again: the node's program ends with the reason, as another
  // node knows better, and comes back with what it had.
  void ExpectOlderCopyIsRefusedByAnOlderCoordinator(int node, int witness, client::Client& client) {
    const std::string before = TestimonyOf(witness);
    ASSERT_TRUE(AwaitFor(
        [&] {
          Train(client, "a", 1);
          return TestimonyOf(witness) != before;
        },
        absl::Seconds(60), "another node was told"));
    const std::string directory = cluster_->data_directory(node);
    cluster_->StopCoordinator();
    cluster_->KillNode(node);
    Copy(directory, directory + ".now");
    Copy(directory + ".copy", directory);
    fs::remove_all(cluster_->state_directory());
    ExpectDone(absl::StrCat("cluster restore --from ", backup(), " --state-dir ",
                            cluster_->state_directory()));
    ASSERT_THAT(cluster_->StartNode(node), IsOk());
    ASSERT_THAT(cluster_->StartCoordinator(), IsOk());
    EXPECT_GT(cluster_->AwaitNodeEnd(node), 0) << cluster_->LogTails();
    EXPECT_THAT(cluster_->LogTails(), HasSubstr("older copy"));
    Copy(directory + ".now", directory);
    ASSERT_THAT(cluster_->RestartNode(node), IsOk()) << cluster_->LogTails();
  }
  void CopyDirectory(int node) {
    cluster_->StopNode(node);
    Copy(cluster_->data_directory(node), cluster_->data_directory(node) + ".copy");
    ASSERT_THAT(cluster_->RestartNode(node), IsOk()) << cluster_->LogTails();
  }
  static void Copy(const std::string& from, const std::string& to) {
    fs::remove_all(to);
    fs::copy(from, to, fs::copy_options::recursive);
  }

  std::pair<std::string, int> Verify(const std::string& table) {
    return cluster_->Embla("verify --table " + table);
  }
  void ExpectDone(const std::string& arguments) {
    EXPECT_THAT(cluster_->Embla(arguments), Pair(::testing::_, 0)) << cluster_->LogTails();
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::map<std::string, std::vector<int>> acknowledged_;  // Updates, by row.
  std::map<std::string, int> first_;                      // Value of all rows.
};

TEST_F(RestoreTest, ATableMadeAfterTheCopyIsKeptAsideAndNoOtherHasItsRows) {
  Start();
  Create("a");
  BackUp();
  Create("b", 7);
  Train(*Connect(), "b", 3);
  Restore();
  Create("c", 3);
  const auto client = Connect();
  EXPECT_EQ(WrongRows(*client, "c"), 0);
  Train(*client, "c", 5);
  EXPECT_EQ(WrongRows(*client, "c"), 0);
  EXPECT_THAT(Verify("c"), Pair(HasSubstr("all well"), 0));
  EXPECT_THAT(cluster_->Embla("table ls"), Pair(HasSubstr("1 more are kept aside"), 0));
  EXPECT_THAT(cluster_->Embla("table ls --aside"), Pair(HasSubstr("b (2)"), 0));
  EXPECT_THAT(cluster_->Embla("cluster status"),
              Pair(HasSubstr("the state has gone back in time"), 0));
  const FeatureGradient none{.table = "b", .ids = {}, .gradients = {}};
  EXPECT_THAT(client->Update({&none, 1}, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("embla table adopt b")));
  ExpectDone("table adopt b");
  EXPECT_EQ(WrongRows(*Connect(), "b"), 0);
  EXPECT_THAT(Verify("b"), Pair(HasSubstr("all well"), 0));
}

TEST_F(RestoreTest, ATableKeptAsideStaysSoWhenNodesAndCoordinatorRestart) {
  Start();
  BackUp();
  Create("b", 7);
  Train(*Connect(), "b", 3);
  Restore();
  cluster_->KillNode(0);
  ASSERT_THAT(cluster_->RestartNode(0), IsOk()) << cluster_->LogTails();
  cluster_->StopCoordinator();
  ASSERT_THAT(cluster_->RestartCoordinator(), IsOk()) << cluster_->LogTails();
  ExpectDone("table adopt b");
  EXPECT_EQ(WrongRows(*Connect(), "b"), 0);
  ExpectDone("table drop b --yes");
}

TEST_F(RestoreTest, ATableDroppedAfterTheCopyDoesNotComeBackWithFirstValues) {
  Start();
  Create("a");
  BackUp();
  ExpectDone("table drop a --yes");
  Restore();
  EXPECT_THAT(cluster_->Embla("table describe a"), Pair(Not(HasSubstr("learning_rate")), Not(0)));
  EXPECT_THAT(cluster_->Embla("plan history"), Pair(HasSubstr("table a was dropped"), 0));
}

TEST_F(RestoreTest, UnitsThatMovedAfterTheCopyAreWhereTheyWent) {
  Start();
  Create("a");
  BackUp();
  Train(*Connect(), "a", 2);
  ExpectDone("reshard --table a --shards 1 --wait");
  Train(*Connect(), "a", 2);
  Restore();
  EXPECT_THAT(Verify("a"), Pair(HasSubstr("all well"), 0));
  const auto client = Connect();
  EXPECT_EQ(WrongRows(*client, "a"), 0);
  Train(*client, "a", 3);
  ExpectDone("reshard --table a --shards 2 --wait");
  EXPECT_EQ(WrongRows(*client, "a"), 0);
  EXPECT_THAT(Verify("a"), Pair(HasSubstr("all well"), 0));
}

// Its rows of units that moved away later are kept aside until the operator gives them up.
TEST_F(RestoreTest, ANodeOlderThanAMoveDoesNotServeWhatItHasNotAnyMore) {
  Start();
  Create("a");
  Train(*Connect(), "a", 2);
  CopyDirectory(0);
  ExpectDone("node drain node0 --wait");
  Train(*Connect(), "a", 2);
  cluster_->StopNode(0);
  Copy(cluster_->data_directory(0) + ".copy", cluster_->data_directory(0));
  ASSERT_THAT(cluster_->RestartNode(0), IsOk()) << cluster_->LogTails();
  ASSERT_TRUE(AwaitFor(
      [&] {
        return Verify("a").first.find("drop-leftovers --table a --node node0") != std::string::npos;
      },
      absl::Seconds(60), "node0 has let go of what is not its own"));
  EXPECT_THAT(Verify("a"), Pair(AllOf(HasSubstr("rows that are kept on node node0"),
                                      Not(HasSubstr("is served by"))),
                                1));
  EXPECT_EQ(WrongRows(*Connect(), "a"), 0);
  cluster_->KillNode(0);
  ASSERT_THAT(cluster_->RestartNode(0), IsOk()) << cluster_->LogTails();
  EXPECT_THAT(Verify("a"), Pair(HasSubstr("rows that are kept on node node0"), 1));
  ExpectDone("table drop-leftovers --table a --node node0");
  EXPECT_TRUE(AwaitFor([&] { return Verify("a").second == 0; }, absl::Seconds(60), "all well"))
      << Verify("a").first;
  EXPECT_EQ(WrongRows(*Connect(), "a"), 0);
}

TEST_F(RestoreTest, ANodeOlderThanOthersKnowIsRefusedByACoordinatorThatIsOlderToo) {
  Start(3);
  Create("a");
  const auto client = Connect();
  Train(*client, "a", 2);
  BackUp();
  CopyDirectory(0);
  Train(*client, "a", 2);
  ExpectOlderCopyIsRefusedByAnOlderCoordinator(0, 1, *client);
  EXPECT_EQ(WrongRows(*client, "a"), 0);
  EXPECT_THAT(Verify("a"), Pair(HasSubstr("all well"), 0));
}

TEST_F(RestoreTest, Loop) {
  const char* const wanted = std::getenv("EMBLA_RESTORES");
  const int restores = wanted == nullptr ? 2 : std::atoi(wanted);
  Start(3);
  Create("a");
  const char* const seed = std::getenv("EMBLA_RESTORE_SEED");
  std::mt19937 random(seed == nullptr ? 7 : std::strtoul(seed, nullptr, 10));
  int lost = 0;
  int two_owners = 0;
  int aside = 0;
  int refused = 0;
  for (int round = 0; round < restores; ++round) {
    const int older = static_cast<int>(random() % 3);
    const bool at_once = round % 2 == 1;
    if (!at_once) CopyDirectory(older);
    BackUp();
    if (at_once) CopyDirectory(older);
    const std::string young = absl::StrCat("young", round);
    Create(young, round);
    Train(*Connect(), young, 2);
    Train(*Connect(), "a", 2);
    ExpectDone(absl::StrCat("reshard --table a --wait --shards ", 1 + random() % 3));
    if (round % 2 == 1) {
      const int node = static_cast<int>(random() % 3);
      cluster_->KillNode(node);
      ASSERT_THAT(cluster_->RestartNode(node), IsOk()) << cluster_->LogTails();
    }
    Train(*Connect(), "a", 2);
    if (at_once) {
      ExpectOlderCopyIsRefusedByAnOlderCoordinator(older, (older + 1) % 3, *Connect());
    } else {
      Restore();
    }
    Train(*Connect(), "a", 2);
    ExpectDone("table adopt " + young);
    ++aside;
    if (!at_once) ExpectOlderCopyIsRefused(older);
    refused += HasFailure() ? 0 : 1;
    for (const std::string& table : {std::string("a"), young}) {
      lost += WrongRows(*Connect(), table);
      const auto [text, code] = Verify(table);
      EXPECT_EQ(code, 0) << text << cluster_->LogTails();
      two_owners += code == 0 ? 0 : 1;
    }
    ExpectDone("table drop " + young + " --yes");
  }
  std::printf(
      "restores %d, of nodes refused %d, rows without their acknowledged updates %d, tables with "
      "units that verify names %d, tables kept aside and adopted %d\n",
      restores, refused, lost, two_owners, aside);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(two_owners, 0);
}

}  // namespace
}  // namespace embla::restore_test
