// Sessions that are closed on a node: nothing of theirs takes effect any more, whenever it was
// sent.
#include <memory>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/migration/session_set.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/unit_moves.h"

namespace embla {
namespace {

using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::StatusIs;
using ::embla::testing::UpdatePartData;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr NodeId kNode{1};
constexpr SessionId kClosed{4};
constexpr SessionId kOpen{5};

ClosedSessions Closed(bool is_settled) {
  ClosedSessions closed;
  closed.refused.Insert(kClosed);
  if (is_settled) closed.settled.Insert(kClosed);
  return closed;
}

class ClosedSessionsTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    LocalCluster::Options options;
    options.devices_per_node = GetParam();
    cluster_ = std::make_unique<LocalCluster>(options);
    spec_.id = TableId{1};
    spec_.name = "t";
    spec_.rows = 64;
    spec_.dim = 4;
    spec_.optimizer.kind = OptimizerKind::kSgd;
    spec_.optimizer.learning_rate = 1.0f;
    spec_.init = {InitKind::kConstant, 0.0f, 0.0f};
    spec_.SetDefaults();
    const auto plan =
        PlaceTable(spec_, {.sharding = ShardingType::kRowWise}, cluster_->specs(), {});
    ASSERT_THAT(plan, IsOk());
    ASSERT_THAT(cluster_->Install({*plan}), IsOk());
    for (std::int64_t row = 0; row < spec_.rows; ++row) ids_.push_back(RowId{row});
  }

  // Adds 1 to every weight.
  absl::StatusOr<UpdateResult> AddOne(SessionId session, std::uint64_t seq) {
    UpdatePartData data;
    data.part.table = spec_.id;
    data.part.column_end = spec_.dim;
    data.ids = ids_;
    data.gradients =
        EncodeRows(std::vector<float>(ids_.size() * spec_.dim, -1.0f), spec_.dim, DType::kFloat32);
    UpdateBatch header;
    header.plan_version = cluster_->plan()->version();
    header.session = session;
    header.seq = UpdateSeq{seq};
    header.first_incomplete = UpdateSeq{seq > 100 ? seq : 1};
    header.step = seq;
    return cluster_->Update(kNode, Pack(header, {data}));
  }
  void ExpectWeights(float value) {
    LookupPartData data;
    data.part.table = spec_.id;
    data.part.column_end = spec_.dim;
    data.ids = ids_;
    const absl::StatusOr<LookupResult> rows = cluster_->Lookup(kNode, Pack(LookupBatch(), {data}));
    ASSERT_THAT(rows, IsOk());
    EXPECT_THAT(rows->rows.As<float>(), Each(value));
  }

  std::unique_ptr<LocalCluster> cluster_;
  TableSpec spec_;
  std::vector<RowId> ids_;
};

TEST_P(ClosedSessionsTest, HaveNoEffectAnyMoreAndOthersGoOn) {
  ASSERT_THAT(AddOne(kClosed, 1), IsOk());
  ASSERT_THAT(cluster_->node(kNode).CloseSessions(Closed(false)), IsOk());
  const absl::Status refused = AddOne(kClosed, 2).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("session 4 is closed"));
  ASSERT_THAT(AddOne(kOpen, 1), IsOk());
  ExpectWeights(2);
}

TEST_P(ClosedSessionsTest, AreRefusedAlsoWhenTheirUpdatesAreForgotten) {
  ASSERT_THAT(AddOne(kClosed, 1), IsOk());
  ASSERT_THAT(cluster_->node(kNode).CloseSessions(Closed(true)), IsOk());
  EXPECT_TRUE(absl::IsPermissionDenied(AddOne(kClosed, 1).status()));
  ExpectWeights(1);
}

TEST_P(ClosedSessionsTest, AreForgottenByUnitsThatMovedToo) {
  ASSERT_THAT(AddOne(kClosed, 1), IsOk());
  ASSERT_THAT(AddOne(kOpen, 1), IsOk());
  UnitHost& units = cluster_->node(kNode).units();
  const UnitId unit{spec_.id, 0, 0};
  std::shared_ptr<testing::ScriptedGate> gate;
  testing::RunInOrder(units, spec_.id, [&] {
    gate = std::make_shared<testing::ScriptedGate>(units.WindowsOf(unit));
    units.SetGate(unit, gate);
  });
  ASSERT_THAT(cluster_->node(kNode).CloseSessions(Closed(true)), IsOk());
  testing::RunInOrder(units, spec_.id, [&] {
    for (const UnitWindows& windows : {gate->windows(), units.WindowsOf(unit)}) {
      ASSERT_EQ(windows.sessions().size(), 1u);
      EXPECT_EQ(windows.sessions()[0].session, kOpen);
    }
  });
}

TEST_P(ClosedSessionsTest, LeaveNoRecordHoweverManyTrainersStart) {
  constexpr std::uint64_t kFirst = 100;
  for (std::uint64_t start = 0; start < 5000; ++start) {
    const SessionId session{kFirst + start};
    ASSERT_THAT(AddOne(session, 1), IsOk()) << start;
    if (start % 500 != 499) continue;
    ClosedSessions ended;
    ended.refused.Insert({SessionId{kFirst}, session});
    ended.settled = ended.refused;
    ASSERT_THAT(cluster_->node(kNode).CloseSessions(ended), IsOk());
  }
  ExpectWeights(5000);
  UnitHost& units = cluster_->node(kNode).units();
  testing::RunInOrder(units, spec_.id, [&] {
    EXPECT_EQ(units.WindowsOf({spec_.id, 0, 0}).sessions().size(), 0u);
  });
}

TEST_P(ClosedSessionsTest, ADamagedCounterDoesNotLoseTheUpdatesThatFollow) {
  ASSERT_THAT(AddOne(kOpen, 1), IsOk());
  EXPECT_THAT(AddOne(kOpen, 1'000'000'000'000),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the last seq here was 1")));
  for (std::uint64_t seq = 2; seq <= 6; ++seq) {
    const absl::StatusOr<UpdateResult> result = AddOne(kOpen, seq);
    ASSERT_THAT(result, IsOk());
    EXPECT_FALSE(result->duplicate);
  }
  ExpectWeights(6);
}

INSTANTIATE_TEST_SUITE_P(Devices, ClosedSessionsTest, ::testing::Values(1u, 2u));

}  // namespace
}  // namespace embla
