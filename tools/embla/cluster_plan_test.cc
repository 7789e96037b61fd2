// The planner on a cluster, end to end: a coordinator with live nodes, and the verbs.
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "client/include/embla/testing/unimplemented_client.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"
#include "core/planner/cluster/auto_placement.h"
#include "core/planner/placement_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/embla/cluster_plan_cmd.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// A coordinator of a few lines: `nodes` nodes of two devices, all of them live but one if asked.
class FakeCluster final : public client::testing::FakeAdmin {
 public:
  explicit FakeCluster(std::uint32_t nodes) {
    for (std::uint32_t n = 0; n < nodes; ++n) {
      nodes_.push_back({NodeId{n + 1},
                        "n" + std::to_string(n),
                        "h:1",
                        {2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 30}}});
    }
    Keep();
    AnswerForTables();
    AnswerForPlans();
  }

  const std::vector<TablePlan>& tables() const { return tables_; }
  std::size_t solved() const { return solved_.size(); }

 private:
  void AnswerForTables() {
    On<v1::ListNodesRequest, v1::ListNodesReply>([this](const auto&, auto& reply) {
      for (const NodeSpec& node : nodes_) {
        v1::NodeStatus& status = *reply.add_nodes();
        status.set_node_json(NodeSpecToJson(node));
        status.set_live(true);
      }
      return absl::OkStatus();
    });
    On<v1::CreateTablesRequest, v1::CreateTablesReply>(
        [this](const auto& request, auto& reply) -> absl::Status {
          for (const v1::CreateTableRequest& asked : request.tables()) {
            TableSpec spec = *TableSpecFromJson(asked.table_json());
            spec.id = TableId{static_cast<std::uint32_t>(tables_.size() + 1)};
            const auto table = planner::PlaceOrChoose(
                spec, *PlacementRequestFromJson(asked.placement_json()), nodes_, tables_);
            if (!table.ok()) return table.status();
            tables_.push_back(*table);
          }
          Keep();
          reply.set_plan_version(version_);
          return absl::OkStatus();
        });
  }

  void AnswerForPlans() {
    On<v1::GetClusterPlanRequest, v1::Plan>([this](const auto&, auto& reply) {
      reply.set_json(plans_.rbegin()->second);
      return absl::OkStatus();
    });
    On<v1::GetPlanAtRequest, v1::Plan>([this](const auto& request, auto& reply) -> absl::Status {
      const auto it = plans_.find(request.version());
      if (it == plans_.end()) return absl::NotFoundError("no such version");
      reply.set_json(it->second);
      return absl::OkStatus();
    });
    On<v1::GetPlanHistoryRequest, v1::PlanHistory>([](const auto&, auto& reply) {
      v1::PlanChange& change = *reply.add_changes();
      change.set_version(3);
      change.set_unix_ms(7000);
      change.set_cause("table a created");
      return absl::OkStatus();
    });
    On<v1::SolvedPlan, v1::PutSolvedPlanReply>([this](const auto& plan, auto&) {
      solved_[plan.inputs().SerializeAsString()] = plan;
      return absl::OkStatus();
    });
    On<v1::PlanInputs, v1::SolvedPlan>([this](const auto& inputs, auto& reply) -> absl::Status {
      const auto it = solved_.find(inputs.SerializeAsString());
      if (it == solved_.end()) return absl::NotFoundError("none");
      reply = it->second;
      return absl::OkStatus();
    });
  }

  void Keep() {
    ++version_;
    plans_[version_] = PlanToJson(Plan(PlanVersion{version_}, "c", nodes_, tables_));
  }

  std::vector<NodeSpec> nodes_;
  std::vector<TablePlan> tables_;
  std::uint64_t version_ = 0;
  std::map<std::uint64_t, std::string> plans_;
  std::map<std::string, v1::SolvedPlan> solved_;
};

class ClusterPlanTest : public ::testing::Test {
 protected:
  ClusterPlanTest() {
    flags_.input.tables = Write("tables.csv",
                                "name,rows,dim,pooling\n"
                                "a,100000,64,20\nb,50000,64,10\nc,1000,16,1\nd,2000000,32,4\n");
    flags_.input.cost = "embla";
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = ::testing::TempDir() + "cluster_plan_" + name;
    std::ofstream(path) << text;
    return path;
  }
  absl::Status Create(const TableSpec& spec, const std::string& placement) {
    v1::CreateTablesRequest request;
    *request.add_tables() = client::CreateTableRequest(TableSpecToJson(spec), placement);
    return cluster_.Call<v1::CreateTablesReply>(request).status();
  }
  std::string Solve(client::Admin& admin) {
    EXPECT_THAT(PlanSolveOnClusterVerb(
                    admin, flags_, [] { return 0.0; }, json_),
                IsOk());
    return Printed();
  }
  std::string Printed() {
    const std::string printed = out_.str();
    out_.str("");
    return printed;
  }

  FakeCluster cluster_{2};
  PlanSolveFlags flags_;
  std::ostringstream out_;
  const Output text_{false, out_};
  const Output json_{true, out_};
};

TEST_F(ClusterPlanTest, ASolvedPlanIsKeptAndApplied) {
  const std::string plan = Solve(cluster_);
  EXPECT_EQ(cluster_.solved(), 1u);
  EXPECT_EQ(Json::parse(Solve(cluster_))["plan_hash"], Json::parse(plan)["plan_hash"]);
  ASSERT_THAT(PlanSolveOnClusterVerb(
                  cluster_, flags_, [] { return 0.0; }, text_),
              IsOk());
  EXPECT_THAT(Printed(), HasSubstr("kept from an earlier solve"));

  const PlanApplyFlags apply{.plan = Write("plan.json", plan)};
  ASSERT_THAT(PlanApplyVerb(cluster_, {.plan = apply.plan, .dry_run = true}, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("would create 4 tables"));
  EXPECT_TRUE(cluster_.tables().empty());
  const absl::Status applied = PlanApplyVerb(cluster_, apply, text_);
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Printed(), HasSubstr("created 4 tables, 0 are there already"));
  EXPECT_EQ(cluster_.tables().size(), 4u);
  ASSERT_THAT(PlanApplyVerb(cluster_, apply, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("created 0 tables, 4 are there already"));
}

TEST_F(ClusterPlanTest, APlanForAnotherTopologyOrPlaceIsRefused) {
  const std::string plan = Write("plan.json", Solve(cluster_));
  FakeCluster smaller(1);
  const absl::Status missing = PlanApplyVerb(smaller, {.plan = plan}, text_);
  EXPECT_TRUE(absl::IsFailedPrecondition(missing));
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("topology changed, there is no live node n1"));

  TableSpec spec{.name = "d", .rows = 2'000'000, .dim = 32};
  spec.SetDefaults();
  ASSERT_THAT(Create(spec, R"({"sharding": "column_wise", "min_partition": 4})"), IsOk());
  const absl::Status elsewhere = PlanApplyVerb(cluster_, {.plan = plan}, text_);
  EXPECT_TRUE(absl::IsFailedPrecondition(elsewhere));
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("table d is there, but elsewhere"));
  EXPECT_EQ(cluster_.tables().size(), 1u);
}

TEST_F(ClusterPlanTest, OtherTablesKeepTheirMemory) {
  // 256 MB on each of the four devices of 1 GiB.
  TableSpec spec{.name = "other", .rows = 4'000'000, .dim = 64};
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.SetDefaults();
  ASSERT_THAT(Create(spec, R"({"sharding": "row_wise"})"), IsOk());
  const Json plan = Json::parse(Solve(cluster_));
  const std::int64_t gib = std::int64_t{1} << 30;
  EXPECT_LE(plan["devices"][0]["bytes_max"].get<std::int64_t>(), gib - 256'000'000);
}

TEST_F(ClusterPlanTest, ExplainsATableAsItIs) {
  ASSERT_THAT(PlanApplyVerb(cluster_, {.plan = Write("plan.json", Solve(cluster_))}, text_),
              IsOk());
  Printed();
  const absl::Status status = PlanExplainVerb(cluster_, "a", text_);
  ASSERT_THAT(status, IsOk());
  EXPECT_THAT(Printed(), HasSubstr("cluster: max load"));
  ASSERT_THAT(PlanExplainVerb(cluster_, "a", json_), IsOk());
  const Json view = Json::parse(Printed());
  EXPECT_GE(view["max_load_ms"], view["lower_bound_ms"]);
  EXPECT_TRUE(absl::IsNotFound(PlanExplainVerb(cluster_, "zz", text_)));
}

TEST_F(ClusterPlanTest, DiffsVersions) {
  ASSERT_THAT(PlanApplyVerb(cluster_, {.plan = Write("plan.json", Solve(cluster_))}, text_),
              IsOk());
  Printed();
  ASSERT_THAT(PlanDiffVerb(cluster_, 1, 0, json_), IsOk());
  const Json all = Json::parse(Printed());
  EXPECT_EQ(all["tables"].size(), 4u);
  EXPECT_EQ(all["tables"][0]["change"], "created");
  EXPECT_EQ(all["moved_bytes"], 0);
  ASSERT_THAT(PlanDiffVerb(cluster_, 0, 0, text_), IsOk());
  EXPECT_THAT(Printed(), HasSubstr("plan 1 -> 2\n"));
}

TEST_F(ClusterPlanTest, ListsTheHistory) {
  ASSERT_THAT(PlanHistoryVerb(cluster_, 0, text_), IsOk());
  EXPECT_EQ(Printed(),
            "version  time                      cause\n"
            "      3  1970-01-01T00:00:07.000Z  table a created\n");
}

}  // namespace
}  // namespace embla::cli
