// Files of tables on a cluster of real processes: all of a file's tables come by one change or none
// does, also when the coordinator is killed in the middle. The CLI is the program itself.
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/process_cluster.h"

namespace embla::created_tables_test {
namespace {

using embla::testing::AwaitFor;
using embla::testing::IsOk;
using embla::testing::kAwaitMax;
using embla::testing::ProcessCluster;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class CreatedTablesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start({.nodes = 2, .devices_per_node = 2, .journals = true});
    ASSERT_THAT(started.status(), IsOk());
    cluster_ = *std::move(started);
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin.status(), IsOk());
    admin_ = *std::move(admin);
  }

  static Json Table(const std::string& name, std::int64_t rows = 1000) {
    return {{"name", name}, {"rows", rows}, {"dim", 8}, {"placement", {{"sharding", "row_wise"}}}};
  }
  // `count` tables t0, t1, ...
  static Json Tables(int count) {
    Json tables = Json::array();
    for (int i = 0; i < count; ++i) tables.push_back(Table(absl::StrCat("t", i)));
    return tables;
  }
  std::pair<std::string, int> Create(const Json& tables, const std::string& flags = "") const {
    const std::string file = ::testing::TempDir() + "created_tables.json";
    std::ofstream(file) << tables.dump();
    return cluster_->Embla(absl::StrCat("table create --file ", file, " ", flags));
  }
  Plan CurrentPlan() const {
    const auto plan = admin_->Call<v1::Plan>(v1::GetClusterPlanRequest());
    EXPECT_THAT(plan.status(), IsOk());
    return *PlanFromJson(plan->json());
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
};

TEST_F(CreatedTablesTest, AFileIsOneChangeAndCanBeRepeated) {
  const std::uint64_t before = ToInt(CurrentPlan().version());
  const auto [printed, code] = Create(Tables(300));
  ASSERT_EQ(code, 0) << printed;
  EXPECT_THAT(printed, HasSubstr(absl::StrCat("created 300 tables in plan ", before + 1)));
  EXPECT_EQ(CurrentPlan().tables().size(), 300u);
  const auto client = cluster_->Connect();
  ASSERT_THAT(client.status(), IsOk());
  EXPECT_EQ((*client)->Tables().size(), 300u);

  EXPECT_THAT(Create(Tables(301)).first, HasSubstr("there is already a table t0"));
  EXPECT_EQ(CurrentPlan().tables().size(), 300u);
  const auto [again, ok] = Create(Tables(301), "--if-not-exists");
  EXPECT_EQ(ok, 0) << again;
  EXPECT_THAT(again, HasSubstr("created 1 table in plan"));
  EXPECT_THAT(again, HasSubstr(", 300 existed"));
  Json other = Tables(302);
  other[7]["rows"] = 2000;
  other[9]["dim"] = 16;
  const auto [differs, refused] = Create(other, "--if-not-exists");
  EXPECT_NE(refused, 0);
  EXPECT_THAT(differs, AllOf(HasSubstr("table t7: "), HasSubstr("rows is 1000, asked for is 2000"),
                             HasSubstr("table t9: "), HasSubstr("dim is 8, asked for is 16")));
  EXPECT_EQ(CurrentPlan().tables().size(), 301u);
}

TEST_F(CreatedTablesTest, NothingIsMadeWhereOneTableHasNoRoom) {
  Json tables = Tables(3);
  tables.push_back(Table("huge", std::int64_t{1} << 36));
  const auto [printed, code] = Create(tables);
  EXPECT_NE(code, 0);
  EXPECT_THAT(printed, HasSubstr("table huge needs"));
  EXPECT_TRUE(CurrentPlan().tables().empty());
}

TEST_F(CreatedTablesTest, AKilledCoordinatorLeavesAllOrNothing) {
  cluster_->node(1).Signal(SIGSTOP);
  std::string printed;
  std::thread creator([&] { printed = Create(Tables(50)).first; });
  AwaitFor([&] { return CurrentPlan().tables().size() == 50; }, kAwaitMax, "the tables' plan");
  cluster_->KillCoordinator();
  creator.join();
  EXPECT_THAT(printed, HasSubstr("UNAVAILABLE"));
  cluster_->node(1).Signal(SIGCONT);
  ASSERT_THAT(cluster_->RestartCoordinator(), IsOk());
  // The creation goes on, and is over when its tables can be dropped.
  const v1::DropTableRequest drop = client::DropTableRequest("t49");
  AwaitFor([&] { return admin_->Call<v1::DropTableReply>(drop).ok(); }, kAwaitMax,
           "the end of the creation");
  EXPECT_EQ(CurrentPlan().tables().size(), 49u);
  const auto client = cluster_->Connect();
  ASSERT_THAT(client.status(), IsOk());
  EXPECT_EQ((*client)->Tables().size(), 49u);
}

}  // namespace
}  // namespace embla::created_tables_test
