#include "tools/embla/plan_view.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;

NodeSpec MakeNode(std::uint32_t id, std::string name) {
  NodeSpec node;
  node.id = NodeId{id};
  node.name = std::move(name);
  node.address = "127.0.0.1:7000";
  node.devices.assign(2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 30});
  return node;
}

TableSpec MakeSpec(std::uint32_t id, std::string name, std::int64_t rows, std::uint32_t dim) {
  TableSpec spec;
  spec.id = TableId{id};
  spec.name = std::move(name);
  spec.rows = rows;
  spec.dim = dim;
  spec.SetDefaults();
  return spec;
}

Slice MakeSlice(std::pair<std::int64_t, std::int64_t> rows,
                std::pair<std::uint32_t, std::uint32_t> columns, std::uint32_t node,
                std::uint32_t device) {
  return {rows.first, rows.second, columns.first, columns.second, {NodeId{node}, device}};
}

// clicks row_wise over 2 x 2 devices, user column_wise over 2, city on every node.
Plan MakePlan() {
  TablePlan clicks;
  clicks.spec = MakeSpec(1, "clicks", 1'000'000, 64);
  clicks.sharding = ShardingType::kRowWise;
  clicks.replicas = {{MakeSlice({0, 250'000}, {0, 64}, 1, 0),
                      MakeSlice({250'000, 500'000}, {0, 64}, 1, 1),
                      MakeSlice({500'000, 750'000}, {0, 64}, 2, 0),
                      MakeSlice({750'000, 1'000'000}, {0, 64}, 2, 1)}};
  TablePlan user;
  user.spec = MakeSpec(2, "user", 1000, 64);
  user.spec.dtype = DType::kFloat16;
  user.sharding = ShardingType::kColumnWise;
  user.replicas = {{MakeSlice({0, 1000}, {0, 32}, 1, 0), MakeSlice({0, 1000}, {32, 64}, 2, 1)}};
  TablePlan city;
  city.spec = MakeSpec(3, "city", 10, 4);
  city.spec.optimizer.kind = OptimizerKind::kSgd;
  city.sharding = ShardingType::kDataParallel;
  city.replicas = {{MakeSlice({0, 10}, {0, 4}, 1, 1)}, {MakeSlice({0, 10}, {0, 4}, 2, 0)}};
  return Plan(PlanVersion{7}, "cluster", {MakeNode(1, "n0"), MakeNode(2, "n1")},
              {std::move(clicks), std::move(user), std::move(city)});
}

constexpr char kPlanText[] =
    R"(plan version 7: 3 tables on 2 nodes

clicks: 1,000,000 rows x 64 columns fp32, rowwise_adagrad, 248 MiB
  row_wise: 4 slices on 4 devices of 2 nodes
  node  device     rows  row range       columns  column range     bytes
  n0         0  250,000  0..249999            64  0..63         62.0 MiB
  n0         1  250,000  250000..499999       64  0..63         62.0 MiB
  n1         0  250,000  500000..749999       64  0..63         62.0 MiB
  n1         1  250,000  750000..999999       64  0..63         62.0 MiB

user: 1,000 rows x 64 columns fp16, rowwise_adagrad, 133 KiB
  column_wise: 2 slices on 2 devices of 2 nodes
  node  device   rows  row range  columns  column range     bytes
  n0         0  1,000  0..999          32  0..31         66.4 KiB
  n1         1  1,000  0..999          32  32..63        66.4 KiB

city: 10 rows x 4 columns fp32, sgd, 320 B
  data_parallel: 2 slices on 2 devices of 2 nodes
  node  device  rows  row range  columns  column range  bytes  copy
  n0         1    10  0..9             4  0..3          160 B  primary
  n1         0    10  0..9             4  0..3          160 B  replica

node  device  kind    memory   planned  share  slices
n0         0  cpu   1.00 GiB  62.1 MiB   6.1%       2
n0         1  cpu   1.00 GiB  62.0 MiB   6.1%       2
n1         0  cpu   1.00 GiB  62.0 MiB   6.1%       2
n1         1  cpu   1.00 GiB  62.1 MiB   6.1%       2
)";

TEST(PlanView, TextTellsRowsColumnsAndBytesOfEveryDevice) {
  ASSERT_THAT(MakePlan().Validate(), IsOk());
  EXPECT_EQ(PlanText(MakePlan()), kPlanText);
}

TEST(PlanView, ShowsTheReplicaGroupOfEverySlice) {
  TablePlan table;
  table.spec = MakeSpec(1, "clicks", 1000, 64);
  table.spec.replica_groups = 2;
  table.spec.sync_every_steps = 10;
  table.sharding = ShardingType::kTableWise;
  table.replicas = {{MakeSlice({0, 1000}, {0, 64}, 1, 0)}, {MakeSlice({0, 1000}, {0, 64}, 1, 1)}};
  const Plan plan(PlanVersion{1}, "cluster", {MakeNode(1, "n0")}, {table});
  ASSERT_THAT(plan.Validate(), IsOk());
  EXPECT_EQ(TableText(plan, table),
            R"(clicks: 1,000 rows x 64 columns fp32, rowwise_adagrad, 508 KiB
  table_wise: 2 slices on 2 devices of 1 node, in 2 replica groups, averaged every 10 updates
  node  device   rows  row range  columns  column range    bytes  group
  n0         0  1,000  0..999          64  0..63         254 KiB      0
  n0         1  1,000  0..999          64  0..63         254 KiB      1
)");
  const Json view = TableView(plan, table);
  EXPECT_EQ(view["replica_groups"], 2);
  EXPECT_EQ(view["slices"][1]["replica"], 1);
}

TEST(PlanView, ShowsSynchronousStepsTheirMembersAndAnOpenChange) {
  TablePlan table;
  table.spec = MakeSpec(1, "clicks", 1000, 64);
  table.spec.sync = SyncSpec();
  table.sharding = ShardingType::kTableWise;
  table.replicas = {{MakeSlice({0, 1000}, {0, 64}, 1, 0)}};
  const Plan plan(PlanVersion{1}, "cluster", {MakeNode(1, "n0")}, {table});
  ASSERT_THAT(plan.Validate(), IsOk());
  const auto text = [&] { return TableText(plan, table); };
  using ::testing::HasSubstr;
  EXPECT_THAT(text(), HasSubstr(R"(
  synchronous steps: made without ranks that are silent for 30s; up to 8 steps ahead
  members: none yet
  node )"));
  table.spec.sync->on_silence = OnSilence::kFail;
  table.steps.members = {{.first_step = 7, .ranks = {Rank{0}, Rank{1}, Rank{2}, Rank{5}}}};
  table.steps.changes = 2;
  table.steps.open =
      MemberChange{.number = 2, .kind = MemberChange::Kind::kFail, .step = 9, .ranks = {Rank{1}}};
  EXPECT_THAT(text(), HasSubstr(R"(
  synchronous steps: they fail when ranks are silent for 30s; up to 8 steps ahead
  members: ranks 0-2, 5 from step 7 on
  change 2 is open: steps to fail without rank 1; no step is made until all nodes have answered
)"));
  const Json view = TableView(plan, table);
  EXPECT_EQ(view["sync"]["on_silence"], "fail");
  EXPECT_EQ(view["steps"]["members"][0]["ranks"][3], 5);
  EXPECT_EQ(view["steps"]["open"]["kind"], "fail");
  table.steps.open.reset();
  table.steps.members.push_back({.first_step = 9});
  EXPECT_THAT(text(), HasSubstr("members: none from step 9 on, until ranks join"));
}

TEST(PlanView, JsonHasTheSameFacts) {
  const Json view = PlanView(MakePlan());
  EXPECT_EQ(view["plan_version"], 7);
  EXPECT_EQ(view["tables"][0]["slices"][3].dump(),
            R"({"node":"n1","device":1,"replica":0,"row_begin":750000,"row_end":1000000,)"
            R"("rows":250000,"column_begin":0,"column_end":64,"columns":64,"bytes":65000000})");
  EXPECT_EQ(view["tables"][2]["slices"][1]["replica"], 1);
  EXPECT_EQ(view["devices"][0].dump(),
            R"({"node":"n0","device":0,"kind":"cpu","memory_bytes":1073741824,)"
            R"("planned_bytes":65068000,"slices":2})");
}

TEST(PlanView, BytesOfDevicesAndOfTablesAreTheSameSum) {
  const Json view = PlanView(MakePlan());
  std::int64_t tables = 0;
  for (const Json& table : view["tables"]) tables += table["bytes"].get<std::int64_t>();
  std::int64_t devices = 0;
  for (const Json& device : view["devices"]) devices += device["planned_bytes"].get<std::int64_t>();
  EXPECT_EQ(tables, devices);
}

TEST(PlanView, EmptyPlanSaysSo) {
  EXPECT_EQ(PlanText(Plan()), "plan version 0: 0 tables on 0 nodes\n");
}

TEST(PlanView, NodeOutsideThePlanIsShownByItsNumber) {
  const std::string text = TableText(Plan(), MakePlan().tables()[2]);
  EXPECT_NE(text.find("node 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace embla::cli
