// The planner on a cluster of real processes: a plan is solved on the live nodes, kept, applied and
// served from; `auto` places another table beside it; a restarted coordinator still has the plans
// and their history. The CLI is the program itself.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/process_cluster.h"

namespace embla::planned_tables_test {
namespace {

using client::FeatureLookup;
using ::embla::testing::IsOk;
using embla::testing::ProcessCluster;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class PlannedTablesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start({.nodes = 2, .devices_per_node = 2});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    tables_ = ::testing::TempDir() + "planned_tables.csv";
    std::ofstream(tables_) << "name,rows,dim,pooling\na,20000,64,20\nb,10000,32,10\nc,100,16,1\n";
  }

  std::pair<std::string, int> Embla(const std::string& arguments) const {
    return cluster_->Embla(arguments);
  }
  std::string Solve() const {
    const auto [printed, code] =
        Embla("plan solve --cluster --cost embla -o json --tables " + tables_);
    EXPECT_EQ(code, 0) << printed;
    return printed;
  }
  Plan CurrentPlan() const {
    const auto admin = cluster_->ConnectAdmin();
    EXPECT_THAT(admin, IsOk());
    const auto plan = (*admin)->Call<v1::Plan>(v1::GetClusterPlanRequest());
    EXPECT_THAT(plan, IsOk());
    return *PlanFromJson(plan->json());
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::string tables_;
};

TEST_F(PlannedTablesTest, APlanIsSolvedKeptAppliedAndServed) {
  const std::string solved = Solve();
  const std::string file = ::testing::TempDir() + "planned_tables.json";
  std::ofstream(file) << solved;
  ASSERT_THAT(Embla("plan apply " + file).first, HasSubstr("created 3 tables"));
  EXPECT_THAT(Embla("plan apply " + file).first, HasSubstr("created 0 tables, 3 are there"));

  // Every table lies where the solved plan says.
  const Plan plan = CurrentPlan();
  for (const Json& table : Json::parse(solved)["tables"]) {
    const TablePlan* const placed = plan.FindTable(std::string(table["name"]));
    ASSERT_NE(placed, nullptr);
    if (table["type"] != "table_wise") continue;
    const Slice& slice = placed->primary().front();
    EXPECT_EQ(absl::StrCat(plan.FindNode(slice.device.node)->name, ":", slice.device.index),
              table["targets"][0].get<std::string>());
  }
  const auto client = cluster_->Connect();
  ASSERT_THAT(client, IsOk());
  const std::vector<std::int64_t> ids = {0, 19'999, 7};
  std::vector<float> rows(ids.size() * 64);
  const FeatureLookup feature{.table = "a", .ids = ids, .rows_out = rows};
  const absl::Status looked_up = (*client)->Lookup({&feature, 1}, {});
  EXPECT_THAT(looked_up, IsOk());

  // The same inputs find the kept plan, also after a restart.
  cluster_->KillCoordinator();
  ASSERT_THAT(cluster_->RestartCoordinator(), IsOk());
  EXPECT_THAT(Embla("plan solve --cluster --cost embla --tables " + tables_).first,
              HasSubstr("kept from an earlier solve"));
}

TEST_F(PlannedTablesTest, AutoPlacesATableAndTheHistoryTellsIt) {
  const auto [created, code] = Embla(
      "table create --name hot --rows 100000 --dim 64 --sharding auto --lookups-per-sample 100");
  ASSERT_EQ(code, 0) << created;
  EXPECT_THAT(Embla("plan explain hot").first, HasSubstr("cluster: max load"));
  const std::uint64_t version = ToInt(CurrentPlan().version());
  ASSERT_EQ(Embla("table set hot learning_rate=0.5").second, 0);
  cluster_->KillCoordinator();
  ASSERT_THAT(cluster_->RestartCoordinator(), IsOk());
  EXPECT_THAT(Embla("plan history --limit 2").first, HasSubstr("table hot set"));
  const Json diff = Json::parse(Embla("plan diff -o json").first);
  EXPECT_EQ(diff["from"], version);
  EXPECT_EQ(diff["tables"][0]["change"], "set");
  EXPECT_EQ(Embla("plan diff 999 1000").second, 4);
}

}  // namespace
}  // namespace embla::planned_tables_test
