// Sweeps, TTLs of features and errors of ZCH tables, each by its example. zch_tables_oracle_test.cc
// covers their contents.
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/planner/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/testing/gpu_kernels.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/unit_moves.h"

namespace embla::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One node with a ZCH table of four buckets, on a CPU device or on a GPU.
class ZchTableTest : public ::testing::TestWithParam<bool> {
 protected:
  void Install(const ZchSpec& zch) {
    spec_.id = TableId{1};
    spec_.name = "users";
    spec_.rows = 256;
    spec_.dim = 4;
    spec_.zch = zch;
    spec_.zch->buckets = 4;
    const auto table =
        PlaceTable(spec_, {.sharding = ShardingType::kTableWise}, cluster_.specs(), {});
    ASSERT_THAT(table, IsOk());
    ASSERT_THAT(cluster_.Install({*table}), IsOk());
    spec_ = table->spec;
  }

  absl::StatusOr<UpdateResult> Touch(std::int64_t first, std::int64_t last, std::uint64_t step,
                                     std::uint32_t ttl_steps = 0) {
    UpdatePartData data;
    data.part.table = spec_.id;
    data.part.column_end = spec_.dim;
    data.part.ttl_steps = ttl_steps;
    for (std::int64_t id = first; id < last; ++id) data.ids.push_back(RowId{id});
    data.gradients = EncodeRows(std::vector<float>(data.ids.size() * spec_.dim, 0.5f), spec_.dim,
                                DType::kFloat32);
    return Send(data, step);
  }

  absl::StatusOr<UpdateResult> Send(const UpdatePartData& data, std::uint64_t step) {
    UpdateBatch header;
    header.plan_version = cluster_.plan()->version();
    header.session = SessionId{7};
    header.seq = header.first_incomplete = UpdateSeq{++seq_};
    header.step = step;
    header.wire_dtype = DType::kFloat32;
    return cluster_.Update(NodeId{1}, Pack(header, {data}));
  }

  void WriteIdsThatAreNotAdmitted() {
    ASSERT_THAT(Touch(0, 10, 1), IsOk());
    EXPECT_EQ(Survey(1).residents, 0u);
    UpdatePartData data;
    data.part.table = spec_.id;
    data.part.form = UpdatePart::Form::kImages;
    data.part.column_end = spec_.dim;
    data.ids = {RowId{-9}, RowId{3}, RowId{4'000'000'000}};
    data.gradients = EncodeRows({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 4, DType::kFloat32);
    ASSERT_THAT(Send(data, 2), IsOk());
    EXPECT_EQ(Survey(2).residents, 3u);
    LookupPartData rows;
    rows.part.table = spec_.id;
    rows.part.column_end = spec_.dim;
    rows.ids = data.ids;
    LookupBatch header;
    header.plan_version = cluster_.plan()->version();
    const auto result = cluster_.Lookup(NodeId{1}, Pack(header, {rows}));
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(std::memcmp(result->rows.data(), data.gradients.data(), data.gradients.size()), 0);
  }

  absl::StatusOr<SweepResult> Sweep(const ZchSweep& sweep) {
    return Await<SweepResult>([&](SweepDone done) {
      cluster_.node(NodeId{1}).SweepTable({spec_.id, sweep, {{0, spec_.rows}}},
                                          absl::InfiniteFuture(), std::move(done));
    });
  }
  zch::Survey Survey(std::uint64_t step) {
    return *Await<zch::Survey>([&](SurveyDone done) {
      cluster_.node(NodeId{1}).SurveyTable(spec_.id, step, std::move(done));
    });
  }

  LocalCluster cluster_{{.nodes = 1,
                         .devices_per_node = 2,
                         .is_gpu = [](std::uint32_t, std::uint32_t) { return GetParam(); },
                         .gpu_kernels = GpuKernels()}};
  TableSpec spec_;
  std::uint64_t seq_ = 0;
};

TEST_P(ZchTableTest, SweepLeavesBucketsOnTheMoveAndTakesThemLater) {
  Install({});
  ASSERT_THAT(Touch(0, 100, 1), IsOk());
  UnitHost& host = cluster_.node(NodeId{1}).units();
  const auto gate = std::make_shared<ScriptedGate>(UnitWindows());
  gate->Freeze();
  RunInOrder(host, spec_.id, [&] { host.SetGate({spec_.id, 2, 0}, gate); });
  const ZchSweep sweep{ZchSweep::Rule::kIdle, 5, 5};
  auto result = Sweep(sweep);
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->swept, ::testing::ElementsAre(RowInterval{0, 128}, RowInterval{192, 256}));
  const std::uint64_t left = Survey(5).residents;
  EXPECT_GT(left, 0u);
  EXPECT_EQ(result->evicted, 100 - left);
  RunInOrder(host, spec_.id, [&] { gate->Unfreeze(); });
  result = Sweep(sweep);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->evicted, left);
  EXPECT_EQ(Survey(5).residents, 0u);
  EXPECT_EQ(Sweep(sweep)->evicted, 0u);
}

TEST_P(ZchTableTest, WrittenIdsGetRowsThatHaveNotBeenSeenOftenEnough) {
  Install({.admission = zch::Admission::kCount, .admission_count = 3});
  WriteIdsThatAreNotAdmitted();
}

TEST_P(ZchTableTest, WrittenIdsGetRowsWithoutADraw) {
  Install({.admission = zch::Admission::kProbability, .admission_probability = 0.0f});
  WriteIdsThatAreNotAdmitted();
}

TEST_P(ZchTableTest, SweepByTtlNeedsThePolicy) {
  Install({});
  const auto result = Sweep({ZchSweep::Rule::kExpired, 5, 0});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(result.status()), HasSubstr("no TTLs"));
  const auto update = Touch(0, 1, 1, /*ttl_steps=*/9);
  EXPECT_EQ(update.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(update.status()), HasSubstr("policy ttl"));
  const auto log = cluster_.node(NodeId{1}).Evictions(spec_.id);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(ZchTableTest, IdsOfAFeatureLiveAsLongAsItSays) {
  Install({.policy = zch::Policy::kTtl, .ttl_steps = 10});
  ASSERT_THAT(Touch(0, 20, 1, /*ttl_steps=*/3), IsOk());
  ASSERT_THAT(Touch(10, 30, 1), IsOk());
  EXPECT_EQ(Sweep({ZchSweep::Rule::kExpired, 3, 0})->evicted, 0u);
  EXPECT_EQ(Sweep({ZchSweep::Rule::kExpired, 4, 0})->evicted, 10u);
  const zch::Survey survey = Survey(4);
  EXPECT_EQ(survey.residents, 20u);
  EXPECT_EQ(survey.latest_step, 1u);
  EXPECT_EQ(survey.oldest_age, 3u);
  EXPECT_EQ(Sweep({ZchSweep::Rule::kExpired, 11, 0})->evicted, 20u);
}

// A trainer with a broken counter must not keep ids for ever.
TEST_P(ZchTableTest, AStepFarBeyondTheTablesIsRefusedAndASweepOfAllBeginsAnew) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  Install({});
  EXPECT_THAT(Touch(0, 10, kMost), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("table users: step 18446744073709551615")));
  EXPECT_THAT(Touch(0, 10, 5'000'000'000), IsOk()) << "the first one begins anywhere";
  EXPECT_THAT(Touch(0, 10, 1), IsOk());
  EXPECT_THAT(Touch(0, 10, 6'000'000'000),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("step 6000000000"), HasSubstr("5000000000"))));
  EXPECT_THAT(Sweep({ZchSweep::Rule::kIdle, kMost, kMost}), IsOk());
  EXPECT_EQ(Survey(1).residents, 0u);
  EXPECT_THAT(Touch(0, 10, 7), IsOk());
  EXPECT_THAT(Touch(0, 10, 5'000'000'000), StatusIs(absl::StatusCode::kInvalidArgument));
}

INSTANTIATE_TEST_SUITE_P(OnGpu, ZchTableTest, ::testing::Bool(),
                         ::testing::PrintToStringParamName());

TEST(ZchTablesUnseen, ErrorNamesTheIdAndTheTable) {
  LocalCluster cluster({.nodes = 1});
  TableSpec spec;
  spec.id = TableId{1};
  spec.name = "users";
  spec.rows = 64;
  spec.dim = 4;
  spec.zch = ZchSpec{.buckets = 1, .unseen = zch::Unseen::kError};
  const auto table = PlaceTable(spec, {.sharding = ShardingType::kTableWise}, cluster.specs(), {});
  ASSERT_THAT(table, IsOk());
  ASSERT_THAT(cluster.Install({*table}), IsOk());
  for (const Pooling pooling : {Pooling::kNone, Pooling::kSum}) {
    LookupPartData data;
    data.part.table = spec.id;
    data.part.column_end = spec.dim;
    data.part.pooling = pooling;
    data.ids = {RowId{-5}};
    if (pooling == Pooling::kSum) data.lengths = {1};
    LookupBatch header;
    header.wire_dtype = DType::kFloat32;
    const auto result = cluster.Lookup(NodeId{1}, Pack(header, {data}));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(Message(result.status()), HasSubstr("users has no row for id -5"));
  }
}

}  // namespace
}  // namespace embla::testing
