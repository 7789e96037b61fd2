// Refusals of a shard node, which change nothing; plans; exactly-once; limits. Results of accepted
// requests are the subject of shard_node_oracle_test.
#include "server/shard/shard_node.h"

#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/table_inspector.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::shard_node_test {
namespace {

using ::embla::testing::Await;
using ::embla::testing::AwaitFor;
using ::embla::testing::EncodeRows;
using ::embla::testing::IsOk;
using ::embla::testing::LocalCluster;
using ::embla::testing::LookupPartData;
using ::embla::testing::Pack;
using ::embla::testing::UpdatePartData;
using ::testing::Each;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

TableSpec Spec(std::uint32_t id, std::int64_t rows = 100, std::uint32_t dim = 4) {
  TableSpec spec;
  spec.id = TableId{id};
  spec.name = absl::StrCat("t", id);
  spec.rows = rows;
  spec.dim = dim;
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1.0f;
  spec.init = {InitKind::kConstant, 0.0f, 0.0f};
  spec.SetDefaults();
  return spec;
}

TablePlan Place(const LocalCluster& cluster, const TableSpec& spec, ShardingType type,
                std::vector<std::string> nodes = {}) {
  PlacementRequest request;
  request.sharding = type;
  request.nodes = std::move(nodes);
  request.min_partition = 4;
  const absl::StatusOr<TablePlan> plan = PlaceTable(spec, request, cluster.specs(), {});
  EXPECT_THAT(plan, IsOk());
  return *plan;
}

std::vector<RowId> Ids(std::initializer_list<std::int64_t> values) {
  std::vector<RowId> ids;
  for (const std::int64_t value : values) ids.push_back(RowId{value});
  return ids;
}

LookupPartData Rows(const TableSpec& spec, std::vector<RowId> ids) {
  LookupPartData data;
  data.part.table = spec.id;
  data.part.column_end = spec.dim;
  data.ids = std::move(ids);
  return data;
}

// The same gradient for every column of every id.
UpdatePartData Gradients(const TableSpec& spec, std::vector<RowId> ids, float gradient) {
  UpdatePartData data;
  data.part.table = spec.id;
  data.part.column_end = spec.dim;
  data.gradients =
      EncodeRows(std::vector<float>(ids.size() * spec.dim, gradient), spec.dim, DType::kFloat32);
  data.ids = std::move(ids);
  return data;
}

UpdateBatch Header(std::uint64_t seq, std::uint64_t session = 1) {
  UpdateBatch header;
  header.plan_version = PlanVersion{1};
  header.session = SessionId{session};
  header.seq = UpdateSeq{seq};
  header.first_incomplete = UpdateSeq{1};
  header.step = seq;
  return header;
}

constexpr NodeId kFirst{1};

class ShardNodeTest : public ::testing::Test {
 protected:
  void Start(std::uint32_t devices, std::vector<std::pair<TableSpec, ShardingType>> tables) {
    LocalCluster::Options options;
    options.devices_per_node = devices;
    cluster_ = std::make_unique<LocalCluster>(options);
    std::vector<TablePlan> plans;
    for (const auto& [spec, type] : tables) plans.push_back(Place(*cluster_, spec, type));
    ASSERT_THAT(cluster_->Install(std::move(plans)), IsOk());
  }

  absl::StatusOr<LookupResult> Lookup(std::vector<LookupPartData> parts, LookupBatch header = {},
                                      std::size_t frame_bytes = 0) {
    return cluster_->Lookup(kFirst, Pack(header, parts), frame_bytes);
  }
  absl::StatusOr<UpdateResult> Update(const UpdateBatch& header,
                                      std::vector<UpdatePartData> parts) {
    return cluster_->Update(kFirst, Pack(header, parts));
  }

  // All weights of the row are equal in these tests.
  float Value(const TableSpec& spec, std::int64_t row) {
    const absl::StatusOr<LookupResult> result = Lookup({Rows(spec, {RowId{row}})});
    EXPECT_THAT(result, IsOk());
    const std::span<const float> values = result->rows.As<float>();
    EXPECT_THAT(values, Each(values[0]));
    return values[0];
  }

  std::unique_ptr<LocalCluster> cluster_;
};

TEST_F(ShardNodeTest, UnknownTableIsNotFound) {
  Start(1, {{Spec(1), ShardingType::kTableWise}});
  EXPECT_EQ(Lookup({Rows(Spec(404), Ids({1}))}).status().code(), Code::kNotFound);
  EXPECT_EQ(Update(Header(1), {Gradients(Spec(404), Ids({1}), 1)}).status().code(),
            Code::kNotFound);
}

TEST_F(ShardNodeTest, APlanThatTheNodeDoesNotHaveYetIsUnavailable) {
  Start(1, {});
  LookupBatch header;
  header.plan_version = PlanVersion{9};
  const absl::Status status = Lookup({Rows(Spec(1), Ids({1}))}, header).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node n0 at plan 1"));
}

TEST_F(ShardNodeTest, AnIdOutsideTheTableFailsALookupThatIsSentInFrames) {
  Start(2, {{Spec(1), ShardingType::kRowWise}});
  std::vector<RowId> ids(64, RowId{1});
  ids[40] = RowId{-3};
  const absl::Status status = Lookup({Rows(Spec(1), ids)}, {}, /*frame_bytes=*/64).status();
  EXPECT_EQ(status.code(), Code::kOutOfRange);
}

TEST_F(ShardNodeTest, AnEmptyBatchIsAnsweredEmpty) {
  Start(2, {{Spec(1), ShardingType::kRowWise}});
  EXPECT_EQ(Lookup({})->rows.size(), 0u);
  EXPECT_THAT(Update(Header(1), {}), IsOk());
  EXPECT_EQ(Lookup({Rows(Spec(1), {})})->rows.size(), 0u);
  EXPECT_THAT(Update(Header(1), {Gradients(Spec(1), {}, 0)}), IsOk());
}

TEST_F(ShardNodeTest, AnIdOutsideTheTableIsOutOfRangeAndChangesNothing) {
  for (const std::uint32_t devices : {1, 3}) {
    Start(devices, {{Spec(1), ShardingType::kRowWise}, {Spec(2), ShardingType::kRowWise}});
    for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{100}, INT64_MAX, INT64_MIN}) {
      const absl::Status status = Lookup({Rows(Spec(1), {RowId{5}, RowId{bad}})}).status();
      EXPECT_EQ(status.code(), Code::kOutOfRange);
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("got id ", bad)));
      EXPECT_EQ(Update(Header(1), {Gradients(Spec(1), Ids({5}), 1),
                                   Gradients(Spec(2), {RowId{6}, RowId{bad}}, 1)})
                    .status()
                    .code(),
                Code::kOutOfRange);
    }
    EXPECT_EQ(Value(Spec(1), 5), 0);
    EXPECT_EQ(Value(Spec(2), 6), 0);
    // The refused seq is still new.
    EXPECT_FALSE(Update(Header(1), {Gradients(Spec(1), Ids({5}), 1)})->duplicate);
    EXPECT_EQ(Value(Spec(1), 5), -1);
  }
}

TEST_F(ShardNodeTest, BoundsModeIgnoreReadsZerosAndDropsGradients) {
  TableSpec spec = Spec(1);
  spec.bounds = BoundsMode::kIgnore;
  spec.init = {InitKind::kConstant, 2.0f, 0.0f};
  Start(2, {{spec, ShardingType::kRowWise}});
  const absl::StatusOr<LookupResult> rows = Lookup({Rows(spec, Ids({-1, 3, 100}))});
  ASSERT_THAT(rows, IsOk());
  EXPECT_THAT(rows->rows.As<float>(), ::testing::ElementsAre(0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0));
  LookupPartData mean = Rows(spec, Ids({-1, 3}));
  mean.part.pooling = Pooling::kMean;
  mean.lengths = {2};
  EXPECT_THAT(Lookup({mean})->rows.As<float>(), Each(1.0f));
  EXPECT_THAT(Update(Header(1), {Gradients(spec, Ids({-1, 3, 100}), 1)}), IsOk());
  EXPECT_EQ(Value(spec, 3), 1);
}

TEST_F(ShardNodeTest, RowsAndColumnsOfOtherNodesAreFailedPrecondition) {
  LocalCluster::Options options;
  options.nodes = 2;
  cluster_ = std::make_unique<LocalCluster>(options);
  const TableSpec by_row = Spec(1), by_column = Spec(2, 100, 8);
  ASSERT_THAT(cluster_->Install({Place(*cluster_, by_row, ShardingType::kRowWise),
                                 Place(*cluster_, by_column, ShardingType::kColumnWise)}),
              IsOk());
  const absl::Status row = Lookup({Rows(by_row, Ids({0, 99}))}).status();
  EXPECT_EQ(row.code(), Code::kFailedPrecondition);
  EXPECT_THAT(
      std::string(row.message()),
      HasSubstr("node n0 at plan 1: table t1 row 99 column 0 is not on this node; refresh"));
  EXPECT_EQ(Update(Header(1), {Gradients(by_row, Ids({0, 99}), 1)}).status().code(),
            Code::kFailedPrecondition);
  const absl::Status column = Lookup({Rows(by_column, Ids({0}))}).status();
  EXPECT_EQ(column.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(column.message()), HasSubstr("table t2 column 4"));
  EXPECT_EQ(Value(by_row, 0), 0);
}

TEST_F(ShardNodeTest, GradientsOfAPartOfTheStoredColumnsAreFailedPrecondition) {
  Start(1, {{Spec(1, 100, 8), ShardingType::kTableWise}});
  UpdatePartData part = Gradients(Spec(1), Ids({1}), 1);
  EXPECT_EQ(Update(Header(1), {part}).status().code(), Code::kFailedPrecondition);
}

TEST_F(ShardNodeTest, NonFiniteGradientsAreRefusedAsAWhole) {
  for (const std::uint32_t devices : {1, 4}) {
    TableSpec allows = Spec(2);
    allows.nan_policy = NanPolicy::kAllow;
    Start(devices, {{Spec(1), ShardingType::kRowWise}, {allows, ShardingType::kRowWise}});
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const absl::Status status =
          Update(Header(1), {Gradients(allows, Ids({1}), 1), Gradients(Spec(1), Ids({1, 2}), bad)})
              .status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr("nan_policy"));
    }
    EXPECT_EQ(Value(allows, 1), 0);
    ASSERT_THAT(Update(Header(1), {Gradients(allows, Ids({1}), NAN)}), IsOk());
    const absl::StatusOr<LookupResult> row = Lookup({Rows(allows, Ids({1}))});
    EXPECT_TRUE(std::isnan(row->rows.As<float>()[0]));
  }
}

TEST_F(ShardNodeTest, MalformedPartsAreInvalidArgument) {
  Start(2, {{Spec(1), ShardingType::kRowWise}});
  std::vector<LookupPartData> lookups(6, Rows(Spec(1), Ids({1, 2})));
  lookups[0].part.column_end = 5;
  lookups[1].part.column_begin = 4;
  lookups[2].lengths = {2};
  lookups[3].part.pooling = Pooling::kSum;
  lookups[3].lengths = {1, 2};
  lookups[4].part.pooling = Pooling::kMean;
  lookups[4].lengths = {2};
  lookups[4].weights = {1, 1};
  lookups[5].part.pooling = Pooling{9};
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    EXPECT_EQ(Lookup({lookups[i]}).status().code(), Code::kInvalidArgument) << i;
  }
  std::vector<UpdatePartData> updates(7, Gradients(Spec(1), Ids({1, 2}), 1));
  updates[0].gradients.pop_back();
  updates[1].gradients.resize(1);
  updates[2].weights = {1, 1};
  updates[3].part.form = UpdatePart::Form::kBags;
  updates[3].part.pooling = Pooling::kNone;
  updates[3].lengths = {1, 1};
  updates[4].part.form = UpdatePart::Form::kBags;
  updates[4].lengths = {1, 0xffffffff};
  updates[5].row_sum_squares = {1};
  updates[6].part.form = UpdatePart::Form{4};
  for (std::size_t i = 0; i < updates.size(); ++i) {
    EXPECT_EQ(Update(Header(1), {updates[i]}).status().code(), Code::kInvalidArgument) << i;
  }
  LookupBatch unknown_dtype;
  unknown_dtype.wire_dtype = DType{77};
  EXPECT_EQ(Lookup({Rows(Spec(1), Ids({1}))}, unknown_dtype).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Value(Spec(1), 1), 0);
}

// Images of `ids` with every number `value`.
UpdatePartData Images(const TableSpec& spec, std::vector<RowId> ids, float value,
                      std::uint32_t state_floats) {
  UpdatePartData data = Gradients(spec, std::move(ids), value);
  data.part.form = UpdatePart::Form::kImages;
  data.part.state_floats = state_floats;
  const std::vector<float> values(data.ids.size() * data.part.image_floats(), value);
  data.gradients = EncodeRows(values, data.part.image_floats(), DType::kFloat32);
  return data;
}

TEST_F(ShardNodeTest, ImagesThatDoNotFitAreNamedAndWriteNothing) {
  TableSpec adam = Spec(2);
  adam.optimizer.kind = OptimizerKind::kAdam;
  adam.SetDefaults();
  Start(1, {{Spec(1), ShardingType::kTableWise}, {adam, ShardingType::kTableWise}});
  const std::uint32_t state = 1 + 2 * adam.dim;
  struct Case {
    UpdatePartData part;
    const char* why;
  };
  std::vector<Case> cases = {
      {Images(Spec(1), Ids({3, 5, 3}), 1, 0), "id 3 occurs 2 times"},
      {Images(Spec(1), Ids({1}), 1, 2), "2 floats of state per row"},
      {Images(adam, Ids({1}), 1, state - 1), "but its optimizer has"},
      {Images(Spec(1), Ids({1}), NAN, 0), "written number is NaN"},
      {Images(adam, Ids({1}), INFINITY, state), "written number is NaN or infinite"},
      {Images(Spec(1), Ids({1}), 1, 0), "images with what belongs to gradients"},
      {Images(Spec(1), Ids({1}), 1, 0), "images with what belongs to gradients"},
      {Images(Spec(1), Ids({1}), 1, 0), "images of 0 floats"},
  };
  cases[5].part.part.clipped = true;
  cases[6].part.part.learning_rate = 0.5f;
  cases[7].part.part.state_only = true;
  for (const Case& each : cases) {
    const absl::Status status = Update(Header(1), {each.part}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << each.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.why));
  }
  const absl::Status mixed =
      Update(Header(1), {Images(Spec(1), Ids({1}), 1, 0), Gradients(Spec(1), Ids({2}), 1)})
          .status();
  EXPECT_THAT(std::string(mixed.message()), HasSubstr("not all images"));
  UpdateBatch narrow = Header(1);
  narrow.wire_dtype = DType::kFloat16;
  EXPECT_EQ(Update(narrow, {Images(Spec(1), Ids({1}), 1, 0)}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Value(Spec(1), 1), 0);
  ASSERT_THAT(Update(Header(1), {Images(Spec(1), Ids({1}), 7, 0)}), IsOk());
  EXPECT_EQ(Value(Spec(1), 1), 7);
}

TEST_F(ShardNodeTest, LearningRatesOfUpdatesAreChecked) {
  Start(1, {{Spec(1), ShardingType::kTableWise}});
  UpdatePartData part = Gradients(Spec(1), Ids({1}), 1);
  for (const float bad : {-1.0f, NAN, INFINITY}) {
    part.part.learning_rate = bad;
    const absl::Status status = Update(Header(1), {part}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("learning_rate"));
  }
  part.part.learning_rate = 0.5f;
  UpdatePartData other = part;
  other.part.learning_rate.reset();
  EXPECT_THAT(std::string(Update(Header(1), {part, other}).status().message()),
              HasSubstr("learning_rate"));
  ASSERT_THAT(Update(Header(1), {part}), IsOk());
  EXPECT_EQ(Value(Spec(1), 1), -0.5f);
}

TEST_F(ShardNodeTest, UpdateIdsAreChecked) {
  Start(1, {{Spec(1), ShardingType::kTableWise}});
  std::vector<UpdateBatch> headers(3, Header(5));
  headers[0].session = SessionId{0};
  headers[1].seq = UpdateSeq{0};
  headers[2].first_incomplete = UpdateSeq{6};
  for (const UpdateBatch& header : headers) {
    EXPECT_EQ(Update(header, {Gradients(Spec(1), Ids({1}), 1)}).status().code(),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(Update(Header(257), {Gradients(Spec(1), Ids({1}), 1)}).status().code(),
            Code::kResourceExhausted);
}

TEST_F(ShardNodeTest, AReplyOverTheLimitIsInvalidArgumentBeforeItIsAllocated) {
  Start(1, {{Spec(1, 100, 1024), ShardingType::kTableWise}});
  LookupPartData pooled = Rows(Spec(1, 100, 1024), {});
  pooled.part.pooling = Pooling::kSum;
  pooled.lengths.resize(100'000);
  EXPECT_EQ(Lookup({pooled}).status().code(), Code::kInvalidArgument);
}

TEST_F(ShardNodeTest, RowStatisticsNeedWholeRowsOrSumsOfSquares) {
  LocalCluster::Options options;
  options.nodes = 2;
  cluster_ = std::make_unique<LocalCluster>(options);
  TableSpec spec = Spec(1, 100, 8);
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  ASSERT_THAT(cluster_->Install({Place(*cluster_, spec, ShardingType::kColumnWise)}), IsOk());
  UpdatePartData part = Gradients(Spec(1), Ids({3, 3}), 1);  // Columns 0 to 3.
  EXPECT_THAT(std::string(Update(Header(1), {part}).status().message()),
              HasSubstr("need row_sum_squares"));
  part.row_sum_squares = {8, 8};
  const absl::Status twice = Update(Header(1), {part}).status();
  EXPECT_EQ(twice.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("id 3 occurs 2 times"));
  part = Gradients(Spec(1), Ids({3}), 1);
  part.row_sum_squares = {NAN};
  UpdateBatch header = Header(1);
  header.gradients_are_finite = true;  // These are not gradients.
  EXPECT_EQ(Update(header, {part}).status().code(), Code::kInvalidArgument);
  part.row_sum_squares = {8};
  EXPECT_THAT(Update(Header(1), {part}), IsOk());
  LookupPartData row = Rows(Spec(1), Ids({3}));
  EXPECT_THAT(Lookup({row})->rows.As<float>(), Each(::testing::FloatEq(-1.0f)));
}

TEST_F(ShardNodeTest, PartsOfOneTableThatDisagreeAreInvalidArgument) {
  Start(1, {{Spec(1), ShardingType::kTableWise}});
  UpdatePartData clipped = Gradients(Spec(1), Ids({1}), 1);
  clipped.part.clipped = true;
  EXPECT_EQ(Update(Header(1), {Gradients(Spec(1), Ids({1}), 1), clipped}).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ShardNodeTest, ASeqTakesEffectOncePerSession) {
  for (const std::uint32_t devices : {1, 2}) {
    Start(devices, {{Spec(1), ShardingType::kRowWise}});
    const auto update = [&](std::uint64_t seq, std::uint64_t session) {
      return Update(Header(seq, session), {Gradients(Spec(1), Ids({0, 99}), 1)})->duplicate;
    };
    EXPECT_FALSE(update(2, 1));
    EXPECT_TRUE(update(2, 1));
    EXPECT_FALSE(update(1, 1));  // Out of order is fine.
    EXPECT_FALSE(update(2, 2));
    EXPECT_TRUE(update(1, 1));
    EXPECT_EQ(Value(Spec(1), 0), -3);
    EXPECT_EQ(Value(Spec(1), 99), -3);
  }
}

// After a move a newer plan sends rows of an update to a node that had others of it before.
TEST_F(ShardNodeTest, ASeqIsNoRepetitionForRowsThatAreElsewhere) {
  LocalCluster::Options options;
  options.nodes = 2;
  cluster_ = std::make_unique<LocalCluster>(options);
  ASSERT_THAT(cluster_->Install({Place(*cluster_, Spec(1), ShardingType::kRowWise)}), IsOk());
  ASSERT_THAT(Update(Header(1), {Gradients(Spec(1), Ids({5}), 1)}), IsOk());
  EXPECT_EQ(Update(Header(1), {Gradients(Spec(1), Ids({99}), 1)}).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(Update(Header(1), {Gradients(Spec(1), Ids({5, 99}), 1)}).status().code(),
            Code::kFailedPrecondition);
  EXPECT_TRUE(Update(Header(1), {Gradients(Spec(1), Ids({5}), 1)})->duplicate);
}

TEST_F(ShardNodeTest, OnlyTheTablesThatLackAnUpdateTakeIt) {
  Start(1, {{Spec(1), ShardingType::kTableWise}, {Spec(2), ShardingType::kTableWise}});
  ASSERT_THAT(Update(Header(1), {Gradients(Spec(1), Ids({1}), 1)}), IsOk());
  const absl::StatusOr<UpdateResult> both =
      Update(Header(1), {Gradients(Spec(1), Ids({1}), 1), Gradients(Spec(2), Ids({1}), 1)});
  EXPECT_FALSE(both->duplicate);
  EXPECT_EQ(Value(Spec(1), 1), -1);
  EXPECT_EQ(Value(Spec(2), 1), -1);
}

TEST_F(ShardNodeTest, RetriesThatRaceTakeEffectOnce) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Start(3, {{Spec(1), ShardingType::kRowWise}, {Spec(2), ShardingType::kTableWise}});
  constexpr int kThreads = 4, kUpdates = 60;
  std::vector<std::thread> threads;
  std::atomic<int> applied = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      for (std::uint64_t seq = 1; seq <= kUpdates; ++seq) {
        std::vector<UpdatePartData> parts = {Gradients(Spec(1), Ids({0, 50, 99}), 1)};
        if (seq % 2 == 0) parts.push_back(Gradients(Spec(2), Ids({7}), 1));
        const absl::StatusOr<UpdateResult> result = Update(Header(seq), parts);
        ASSERT_THAT(result, IsOk());
        if (!result->duplicate) ++applied;
        const std::int64_t row = random() % 2 == 0 ? 1 : 98;
        ASSERT_THAT(Lookup({Rows(Spec(1), {RowId{row}})}), IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(applied, kUpdates);
  for (const std::int64_t row : {0, 50, 99}) EXPECT_EQ(Value(Spec(1), row), -kUpdates);
  EXPECT_EQ(Value(Spec(2), 7), -kUpdates / 2);
}

TEST_F(ShardNodeTest, ExpiredRequestsAreDroppedFromTheQueue) {
  for (const std::uint32_t devices : {1, 2}) {
    Start(devices, {{Spec(1), ShardingType::kRowWise}});
    const auto late = cluster_->Update(
        kFirst, Pack(Header(1), {Gradients(Spec(1), Ids({1, 98}), 1)}), -absl::Seconds(1));
    EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
    EXPECT_EQ(Value(Spec(1), 1), 0);
  }
}

TEST_F(ShardNodeTest, FullQueuesAreResourceExhaustedAndEverybodyIsAnswered) {
  ShardNodeOptions options;
  options.name = "n0";
  options.devices = {{DeviceKind::kCpu, 1 << 30}};
  options.queued_requests_max_per_device = 4;
  BufferPool pool;
  const std::unique_ptr<ShardNode> node = *ShardNode::Create(options, pool);
  LocalCluster placer({});
  const auto plan = std::make_shared<const Plan>(
      PlanVersion{1}, "c", placer.specs(),
      std::vector<TablePlan>{Place(placer, Spec(1), ShardingType::kTableWise)});
  ASSERT_THAT(node->InstallPlan(plan, kFirst), IsOk());
  std::atomic<int> answered = 0, refused = 0;
  Mutex mu;
  CondVar changed;
  bool hold = true;
  constexpr int kRequests = 50;
  for (int i = 0; i < kRequests; ++i) {
    auto request = Pack(LookupBatch{}, {Rows(Spec(1), Ids({1}))});
    node->Lookup(std::move(request), absl::InfiniteFuture(), LookupFrames{},
                 [&](const absl::StatusOr<LookupResult>& result) {
                   ++answered;
                   if (result.ok()) {
                     MutexLock lock(mu);
                     while (hold) changed.Wait(mu);  // Keeps the device busy.
                   } else {
                     EXPECT_EQ(result.status().code(), Code::kResourceExhausted);
                     ++refused;
                   }
                 });
  }
  EXPECT_GE(refused, kRequests - 6);
  {
    MutexLock lock(mu);
    hold = false;
    changed.NotifyAll();
  }
  EXPECT_TRUE(AwaitFor([&] { return answered == kRequests; }, absl::Seconds(30), "all answers"));
}

// int8 rows of cut columns are gathered as fp32 first, 3,200 bytes beside a reply of 1,600.
TEST_F(ShardNodeTest, StagedRowsCountAmongTheBytesThatAreQueued) {
  ShardNodeOptions options;
  options.name = "n0";
  options.devices.assign(2, {DeviceKind::kCpu, 1 << 30});
  options.queued_bytes_max = 4500;
  BufferPool pool;
  const std::unique_ptr<ShardNode> node = *ShardNode::Create(options, pool);
  LocalCluster placer({.devices_per_node = 2});
  const TableSpec cut = Spec(1, 100, 8);
  const TableSpec whole = Spec(2, 100, 8);
  const auto plan = std::make_shared<const Plan>(
      PlanVersion{1}, "c", placer.specs(),
      std::vector<TablePlan>{Place(placer, cut, ShardingType::kColumnWise),
                             Place(placer, whole, ShardingType::kTableWise)});
  ASSERT_THAT(node->InstallPlan(plan, kFirst), IsOk());
  const auto lookup = [&](const TableSpec& spec) {
    LookupBatch header;
    header.wire_dtype = DType::kInt8Rowwise;
    auto request = Pack(header, {Rows(spec, std::vector<RowId>(100, RowId{1}))});
    std::promise<absl::Status> done;
    node->Lookup(
        std::move(request), absl::InfiniteFuture(), LookupFrames{},
        [&](const absl::StatusOr<LookupResult>& result) { done.set_value(result.status()); });
    return done.get_future().get();
  };
  EXPECT_EQ(lookup(whole), absl::OkStatus());
  EXPECT_EQ(lookup(cut).code(), Code::kResourceExhausted);
}

TEST_F(ShardNodeTest, ReadRowsGivesRangesAndIds) {
  Start(3, {{Spec(1, 1000), ShardingType::kRowWise}});
  const auto read = [&](ShardNode::RowsQuery query) {
    std::vector<std::int64_t> rows;
    const absl::Status status = cluster_->node(0).ReadRows(query, [&](Buffer encoded) {
      const absl::StatusOr<RowBlock> block = DecodeRowBlock(encoded.bytes());
      for (const RowId row : block->rows) rows.push_back(ToInt(row));
      EXPECT_EQ(block->shape.state_floats, 0u);
      return absl::OkStatus();
    });
    return std::make_pair(status.code(), rows);
  };
  EXPECT_EQ(read({TableId{1}, 0, 1000, {}, false}).second.size(), 1000u);
  EXPECT_THAT(read({TableId{1}, 332, 335, {}, false}).second,
              ::testing::UnorderedElementsAre(332, 333, 334));
  EXPECT_THAT(read({TableId{1}, 0, 0, Ids({999, 3}), true}).second,
              ::testing::UnorderedElementsAre(3, 999));
  EXPECT_EQ(read({TableId{1}, 0, 1001, {}, false}).first, Code::kInvalidArgument);
  EXPECT_EQ(read({TableId{1}, 5, 4, {}, false}).first, Code::kInvalidArgument);
  EXPECT_EQ(read({TableId{1}, 0, 0, Ids({1000}), false}).first, Code::kOutOfRange);
  EXPECT_EQ(read({TableId{9}, 0, 1, {}, false}).first, Code::kNotFound);
}

TEST_F(ShardNodeTest, ReadRowsStopsAtTheSinksError) {
  Start(2, {{Spec(1), ShardingType::kRowWise}});
  int blocks = 0;
  EXPECT_EQ(cluster_->node(0)
                .ReadRows({TableId{1}, 0, 100, {}, false},
                          [&](Buffer) {
                            ++blocks;
                            return absl::CancelledError("gone");
                          })
                .code(),
            Code::kCancelled);
  EXPECT_EQ(blocks, 1);
}

TEST_F(ShardNodeTest, InspectTableSaysWhatIsHereAndNothingOfATableThatIsElsewhere) {
  cluster_ = std::make_unique<LocalCluster>(LocalCluster::Options{.nodes = 2});
  ASSERT_THAT(cluster_->Install({Place(*cluster_, Spec(1), ShardingType::kTableWise,
                                       {cluster_->specs()[0].name})}),
              IsOk());
  std::int64_t rows = 0;
  const auto here = cluster_->node(0).InspectTable(TableId{1}, nullptr);
  ASSERT_THAT(here, IsOk());
  for (const UnitContent& unit : *here) rows += unit.rows;
  EXPECT_EQ(rows, 100);
  const auto elsewhere = cluster_->node(1).InspectTable(TableId{1}, nullptr);
  ASSERT_THAT(elsewhere, IsOk());
  EXPECT_TRUE(elsewhere->empty());
  EXPECT_EQ(cluster_->node(0).InspectTable(TableId{9}, nullptr).status().code(), Code::kNotFound);
}

// A decision about row 1 of `specs`, in that order, as a journal gives it back.
DecidedUpdate Decided(std::uint64_t seq, const std::vector<TableSpec>& specs, float gradient) {
  std::vector<UpdatePartData> parts;
  DecidedUpdate decided;
  for (const TableSpec& spec : specs) {
    parts.push_back(Gradients(spec, Ids({1}), gradient));
    decided.tables.push_back({.table = spec.id, .replica_group = 0, .units = {}});
  }
  decided.batch = Pack(Header(seq), parts);
  return decided;
}

absl::Status ApplyDecided(ShardNode& node, DecidedUpdate decided) {
  return Await<Applied>([&](AppliedDone done) { node.Apply(std::move(decided), std::move(done)); })
      .status();
}

TEST_F(ShardNodeTest, ADecisionIsAppliedAgainToTheTablesThatAreLeft) {
  for (const std::uint32_t devices : {1, 3}) {
    Start(devices, {{Spec(1), ShardingType::kRowWise}, {Spec(3), ShardingType::kRowWise}});
    DecidedUpdate decided = Decided(1, {Spec(1), Spec(2), Spec(3)}, 1);
    EXPECT_THAT(ApplyDecided(cluster_->node(0), std::move(decided)), IsOk());
    EXPECT_EQ(Value(Spec(1), 1), -1);
    EXPECT_EQ(Value(Spec(3), 1), -1);
    decided = Decided(2, {Spec(2)}, 1);
    EXPECT_THAT(ApplyDecided(cluster_->node(0), std::move(decided)), IsOk());
  }
}

TEST_F(ShardNodeTest, ADecisionAboutOtherTablesThanItsPartsIsDataLoss) {
  Start(2, {{Spec(1), ShardingType::kRowWise}, {Spec(2), ShardingType::kRowWise}});
  for (const int damage : {0, 1, 2}) {
    DecidedUpdate decided = Decided(1, {Spec(1), Spec(2)}, 1);
    if (damage == 0) decided.tables.pop_back();
    if (damage == 1) std::swap(decided.tables[0], decided.tables[1]);
    if (damage == 2) decided.tables[1].replica_group = 1;
    EXPECT_EQ(ApplyDecided(cluster_->node(0), std::move(decided)).code(), Code::kDataLoss);
  }
  EXPECT_EQ(Value(Spec(1), 1), 0);
  EXPECT_EQ(Value(Spec(2), 1), 0);
}

TEST_F(ShardNodeTest, WhatWasDecidedIsNotCheckedForNanAgain) {
  Start(1, {{Spec(1), ShardingType::kTableWise}});
  DecidedUpdate decided = Decided(1, {Spec(1)}, NAN);
  EXPECT_THAT(ApplyDecided(cluster_->node(0), std::move(decided)), IsOk());
  EXPECT_TRUE(std::isnan(Lookup({Rows(Spec(1), Ids({1}))})->rows.As<float>()[0]));
}

// Tables of one update are decided and stepped by several threads at once.
TEST_F(ShardNodeTest, ManyTablesOfOneUpdateAreAppliedOnceEach) {
  LocalCluster::Options options;
  options.devices_per_node = 2;
  options.threads_per_device = 3;
  cluster_ = std::make_unique<LocalCluster>(options);
  std::vector<TableSpec> specs;
  std::vector<TablePlan> plans;
  for (std::uint32_t t = 0; t < 120; ++t) {
    specs.push_back(Spec(t + 1, 100, 8));
    const ShardingType type = t % 3 == 0   ? ShardingType::kTableWise
                              : t % 3 == 1 ? ShardingType::kRowWise
                                           : ShardingType::kColumnWise;
    plans.push_back(Place(*cluster_, specs.back(), type));
  }
  ASSERT_THAT(cluster_->Install(std::move(plans)), IsOk());
  std::vector<RowId> ids;
  for (std::int64_t row = 0; row < 40; ++row) ids.push_back(RowId{row});
  for (const std::uint64_t seq : {1, 2, 2, 3}) {
    std::vector<UpdatePartData> parts;
    for (const TableSpec& spec : specs) {
      parts.push_back(Gradients(spec, ids, static_cast<float>(ToInt(spec.id))));
    }
    ASSERT_THAT(Update(Header(seq), std::move(parts)), IsOk());
  }
  for (const TableSpec& spec : specs) {
    EXPECT_EQ(Value(spec, 39), -3 * static_cast<float>(ToInt(spec.id))) << ToInt(spec.id);
  }
}

TEST(ShardNodeCreate, OptionsAreChecked) {
  BufferPool pool;
  const auto code = [&](const std::function<void(ShardNodeOptions&)>& change) {
    ShardNodeOptions options;
    options.devices = {{DeviceKind::kCpu, 1 << 20}};
    change(options);
    return ShardNode::Create(options, pool).status().code();
  };
  EXPECT_EQ(code([](ShardNodeOptions&) {}), Code::kOk);
  EXPECT_EQ(code([](ShardNodeOptions& o) { o.devices.clear(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](ShardNodeOptions& o) { o.devices[0].memory_bytes = 0; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](ShardNodeOptions& o) { o.devices[0].kind = DeviceKind::kGpu; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](ShardNodeOptions& o) { o.devices.resize(65, o.devices[0]); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](ShardNodeOptions& o) { o.threads_per_device = 0; }), Code::kInvalidArgument);
}

}  // namespace
}  // namespace embla::shard_node_test
