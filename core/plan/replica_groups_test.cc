#include "core/plan/replica_groups.h"

#include <functional>
#include <string>

#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"
#include "core/plan/table_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

// 100 rows x 8 columns in two groups: rows over the two devices of a group, of one node of four.
TablePlan TwoGroups() {
  TablePlan table;
  table.spec.id = TableId{1};
  table.spec.name = "t";
  table.spec.rows = 100;
  table.spec.dim = 8;
  table.spec.replica_groups = 2;
  table.spec.sync_every_steps = 10;
  table.spec.SetDefaults();
  table.sharding = ShardingType::kRowWise;
  const NodeId node{1};
  table.replicas = {{{0, 50, 0, 8, {node, 0}}, {50, 100, 0, 8, {node, 1}}},
                    {{0, 50, 0, 8, {node, 2}}, {50, 100, 0, 8, {node, 3}}}};
  return table;
}

Plan MakePlan(const TablePlan& table, std::uint32_t devices = 4) {
  const NodeSpec node{.id = NodeId{1},
                      .name = "n1",
                      .address = "h:1",
                      .devices = std::vector<DeviceSpec>(devices, {DeviceKind::kCpu, 1 << 20})};
  return Plan(PlanVersion{3}, "c", {node}, {table});
}

TEST(ReplicaGroups, AreNotReplicasOfAPrimary) {
  const TablePlan table = TwoGroups();
  EXPECT_TRUE(table.grouped());
  EXPECT_FALSE(table.replicated());
  EXPECT_THAT(MakePlan(table).Validate(), IsOk());
}

TEST(ReplicaGroups, AreValidatedWithThePlan) {
  const struct {
    const char* says;
    std::function<void(TablePlan&)> spoil;
  } bad[] = {
      {"replica_groups is 0", [](TablePlan& t) { t.spec.replica_groups = 0; }},
      {"replica_groups is 65", [](TablePlan& t) { t.spec.replica_groups = 65; }},
      {"2 copies for 3 replica groups", [](TablePlan& t) { t.spec.replica_groups = 3; }},
      {"only one replica group",
       [](TablePlan& t) {
         t.spec.replica_groups = 1;
         t.replicas.pop_back();
       }},
      {"data_parallel", [](TablePlan& t) { t.sharding = ShardingType::kDataParallel; }},
      {"on device 2 of that node",
       [](TablePlan& t) {
         t.replicas[1][0].device.index = 3;
         t.replicas[1][1].device.index = 2;
       }},
      {"on device 2 of that node",
       [](TablePlan& t) {
         t.replicas[1][0].row_end = 51;
         t.replicas[1][1].row_begin = 51;
       }},
      {"group 1 has 1",
       [](TablePlan& t) {
         t.replicas[1].pop_back();
         t.replicas[1][0].row_end = 100;
       }},
      {"in group 0", [](TablePlan& t) { std::swap(t.replicas[0], t.replicas[1]); }},
  };
  for (const auto& entry : bad) {
    TablePlan table = TwoGroups();
    entry.spoil(table);
    const absl::Status status = MakePlan(table).Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << entry.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(entry.says));
  }
}

TEST(ReplicaGroups, NeedNodesWhoseDevicesCanBeDivided) {
  EXPECT_EQ(*DevicesPerGroup("n1", 8, 4), 2u);
  const absl::Status status = DevicesPerGroup("n1", 6, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node n1 has 6 devices"));
  EXPECT_THAT(MakePlan(TwoGroups(), 5).Validate(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ReplicaGroups, AreGivenToSessionsInTurn) {
  TableSpec spec = TwoGroups().spec;
  spec.replica_groups = 3;
  EXPECT_EQ(GroupOfSession(spec, 0), 0u);
  EXPECT_EQ(GroupOfSession(spec, 4), 1u);
  EXPECT_THAT(CheckGroup(spec, 2), IsOk());
  EXPECT_THAT(std::string(CheckGroup(spec, 3).message()), HasSubstr("groups 0 to 2, not 3"));
}

TEST(ReplicaGroups, SurviveJsonAndAreLeftOutOfOtherTables) {
  const Plan plan = MakePlan(TwoGroups());
  const absl::StatusOr<Plan> back = PlanFromJson(PlanToJson(plan));
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(*back, plan);
  TableSpec alone = TwoGroups().spec;
  alone.replica_groups = 1;
  alone.sync_every_steps = 0;
  EXPECT_EQ(TableSpecToJson(alone).find("replica_groups"), std::string::npos);
}

TEST(ReplicaGroups, SyncIntervalCanBeSetLive) {
  TableSpec spec = TwoGroups().spec;
  ASSERT_THAT(SetTableOptions({{"sync_every_steps", "25"}}, &spec), IsOk());
  EXPECT_EQ(spec.sync_every_steps, 25u);
  EXPECT_THAT(SetTableOptions({{"sync_every_steps", "-1"}}, &spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sync_every_steps")));
  EXPECT_THAT(SetTableOptions({{"replica_groups", "4"}}, &spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("replica_groups")));
}

}  // namespace
}  // namespace embla
