#include "tools/embla/unit_check.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::cli {
namespace {

using client::UnitOnNode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint32_t kGranules = 4;
constexpr std::int64_t kRows = 40;

// Table "t" of 4 units: two on node a, two on node b.
class CheckUnitsTest : public ::testing::Test {
 protected:
  CheckUnitsTest() {
    table_.spec.id = TableId{1};
    table_.spec.name = "t";
    table_.spec.rows = kRows;
    table_.spec.dim = 8;
    table_.spec.row_granules = kGranules;
    table_.spec.column_granule_width = 4;
    table_.replicas = {{SliceOf(0, 20, 1), SliceOf(20, 40, 2)}};
    evidence_.units[NodeId{1}] = {Served(0), Served(1)};
    evidence_.units[NodeId{2}] = {Served(2), Served(3)};
  }

  static Slice SliceOf(std::int64_t begin, std::int64_t end, std::uint32_t node) {
    Slice slice;
    slice.row_begin = begin;
    slice.row_end = end;
    slice.column_begin = 0;
    slice.column_end = 8;
    slice.device = {NodeId{node}, 0};
    return slice;
  }
  static UnitOnNode Served(std::uint32_t granule) {
    return {.row_granule = granule, .column_begin = 0, .column_end = 8, .rows = 10, .crc32c = 5};
  }
  TableVerdict Check() const {
    std::vector<NodeSpec> nodes(2);
    nodes[0].id = NodeId{1};
    nodes[0].name = "a";
    nodes[1].id = NodeId{2};
    nodes[1].name = "b";
    return CheckUnits(Plan(PlanVersion{3}, "c", nodes, {table_}), table_, evidence_);
  }
  // The one finding.
  std::string Finding() const {
    const TableVerdict verdict = Check();
    EXPECT_THAT(verdict.findings, SizeIs(1));
    if (verdict.findings.empty()) return "";
    EXPECT_FALSE(verdict.findings[0].remedy.empty());
    return verdict.findings[0].what;
  }

  TablePlan table_;
  TableEvidence evidence_;
};

TEST_F(CheckUnitsTest, CountsWhatIsWell) {
  const TableVerdict verdict = Check();
  EXPECT_THAT(verdict.findings, IsEmpty());
  EXPECT_EQ(verdict.units, 4u);
  EXPECT_EQ(verdict.rows, 40);
  EXPECT_EQ(verdict.digest, 20u);
}

TEST_F(CheckUnitsTest, NamesBothOwnersOfAUnit) {
  evidence_.units[NodeId{2}].push_back(Served(1));
  EXPECT_EQ(Finding(),
            "unit 1 of table t (rows 10-19, columns 0-7) is served by node a and by node b; the "
            "plan says node a");
  EXPECT_EQ(Check().several_owners, 1);
}

TEST_F(CheckUnitsTest, NamesAUnitThatNobodyServes) {
  evidence_.units[NodeId{2}].pop_back();
  EXPECT_THAT(Finding(), HasSubstr("unit 3 of table t (rows 30-39, columns 0-7) is served by "
                                   "nobody; the plan says node b"));
}

TEST_F(CheckUnitsTest, NamesAnOwnerThatThePlanDoesNotKnow) {
  std::swap(evidence_.units[NodeId{1}][0], evidence_.units[NodeId{2}][0]);
  EXPECT_THAT(Check().findings, SizeIs(2));
  EXPECT_THAT(Check().findings[0].what, HasSubstr("served by node b device 0; the plan says"));
}

TEST_F(CheckUnitsTest, FindsMissingRows) {
  evidence_.units[NodeId{1}][1].rows = 9;
  EXPECT_THAT(Finding(), HasSubstr("has 9 rows of 10 on node a"));
}

TEST_F(CheckUnitsTest, FindsKeptAndStagedRowsUnlessAJobRuns) {
  UnitOnNode kept = Served(0);
  kept.state = UnitOnNode::State::kRetained;
  UnitOnNode staged = Served(1);
  staged.state = UnitOnNode::State::kStaged;
  evidence_.units[NodeId{2}].push_back(kept);
  evidence_.units[NodeId{2}].push_back(staged);
  ASSERT_THAT(Check().findings, SizeIs(2));
  EXPECT_THAT(Check().findings[0].what, HasSubstr("has rows that are kept on node b"));
  EXPECT_THAT(Check().findings[0].remedy,
              HasSubstr("embla table drop-leftovers --table t --node b"));
  EXPECT_THAT(Check().findings[1].what, HasSubstr("has memory reserved on node b"));
  evidence_.job_runs = true;
  EXPECT_THAT(Check().findings, IsEmpty());
}

TEST_F(CheckUnitsTest, FindsARecordThatContradictsThePlan) {
  evidence_.owners = {{.row_granule = 2, .node = 1, .epoch = 2, .phase = "none"}};
  EXPECT_THAT(Finding(), HasSubstr("belongs to node a by its record, and to node b by the plan"));
}

TEST_F(CheckUnitsTest, FindsAMoveThatNoJobEnds) {
  evidence_.owners = {{.row_granule = 2, .node = 2, .epoch = 1, .phase = "open"}};
  EXPECT_THAT(Finding(), HasSubstr("has a move that is open, and no job runs"));
}

TEST_F(CheckUnitsTest, ComparesReplicaGroupsOnceTheyAreSynced) {
  table_.spec.replica_groups = 2;
  table_.replicas = {{SliceOf(0, 40, 1)}, {SliceOf(0, 40, 2)}};
  for (const std::uint32_t group : {0, 1}) {
    for (std::uint32_t granule = 0; granule < kGranules; ++granule) {
      UnitOnNode unit = Served(granule);
      unit.replica_group = group;
      if (granule == 0) evidence_.units[NodeId{group + 1}].clear();
      evidence_.units[NodeId{group + 1}].push_back(unit);
    }
  }
  evidence_.units[NodeId{2}][1].crc32c = 6;
  EXPECT_THAT(Check().findings, IsEmpty());
  EXPECT_EQ(Check().digest, 20u);
  evidence_.groups_synced = true;
  EXPECT_THAT(Finding(), HasSubstr("unit 1 of table t (rows 10-19, columns 0-7) is not the same in "
                                   "replica group 0 on node a device 0 and in replica group 1 on "
                                   "node b device 0"));
}

TEST_F(CheckUnitsTest, ComparesTheCopiesOfAReplicatedTable) {
  table_.replicas = {{SliceOf(0, 40, 1)}, {SliceOf(0, 40, 2)}};
  for (const std::uint32_t node : {1, 2}) {
    evidence_.units[NodeId{node}] = {Served(0), Served(1), Served(2), Served(3)};
  }
  EXPECT_THAT(Check().findings, IsEmpty());
  EXPECT_EQ(Check().digest, 20u);
  evidence_.units[NodeId{2}][2].crc32c = 6;
  EXPECT_THAT(Finding(), HasSubstr("unit 2 of table t (rows 20-29, columns 0-7) is not the same on "
                                   "node b and on node a, which has the primary copy"));
}

}  // namespace
}  // namespace embla::cli
