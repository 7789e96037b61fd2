#include "core/plan/zch_spec.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/plan/id_rows.h"
#include "core/plan/plan.h"
#include "core/plan/plan_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

TableSpec Table(std::int64_t capacity = 1000, const ZchSpec& zch = {.buckets = 4}) {
  TableSpec spec;
  spec.name = "users";
  spec.rows = capacity;
  spec.dim = 10;
  spec.zch = zch;
  spec.SetDefaults();
  return spec;
}

TEST(ZchSpecDefaults, RoundTheCapacityUpAndMakeBucketsTheRowGranules) {
  const TableSpec spec = Table();
  EXPECT_EQ(spec.rows, 1024);
  EXPECT_EQ(spec.row_granules, 4u);
  EXPECT_EQ(spec.column_granules(), 1u);
  EXPECT_THAT(spec.Validate(), IsOk());
  EXPECT_EQ(Table(1, {}).rows, 768 * 64);
}

TEST(ZchSpecValidate, NamesTheFieldAndWhatIsAllowed) {
  struct Case {
    std::function<void(TableSpec&)> change;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](TableSpec& t) { t.rows = 1000; }, "multiples of 64 x buckets (4): 1024"},
      {[](TableSpec& t) { t.row_granules = 2; }, "one per bucket: 4"},
      {[](TableSpec& t) { t.column_granule_width = 4; }, "columns are never cut"},
      {[](TableSpec& t) { t.replica_groups = 2; }, "no replica groups"},
      {[](TableSpec& t) { t.zch->buckets = 0; }, "zch buckets is 0"},
      {[](TableSpec& t) { t.zch->policy = zch::Policy::kTtl; }, "needs at least 1"},
      {[](TableSpec& t) { t.zch->ttl_steps = 5; }, "only policy ttl"},
      {[](TableSpec& t) { t.zch->distance_exponent = 3; }, "allowed is 1 to 2"},
      {[](TableSpec& t) { t.zch->admission_count = 0; }, "admission_count is 0"},
      {[](TableSpec& t) { t.zch->admission_probability = std::numeric_limits<float>::quiet_NaN(); },
       "admission_probability"},
      {[](TableSpec& t) { t.zch->reserved_lanes = 64; }, "allowed is 0 to 63"},
      {[](TableSpec& t) { t.zch->reserved_lanes = 1; }, "unseen must be default"},
      {[](TableSpec& t) { t.zch->unseen = zch::Unseen{9}; }, "unknown value 9"},
  };
  for (const Case& c : cases) {
    TableSpec spec = Table();
    c.change(spec);
    EXPECT_EQ(spec.Validate().code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(Message(spec.Validate()), HasSubstr(c.message));
  }
}

TEST(ZchSpecSharding, RowsStayWholeAndThereIsOneCopy) {
  const TableSpec spec = Table();
  for (const ShardingType type :
       {ShardingType::kTableWise, ShardingType::kRowWise, ShardingType::kTableRowWise}) {
    EXPECT_THAT(CheckShardingFits(spec, type), IsOk());
  }
  for (const ShardingType type : {ShardingType::kDataParallel, ShardingType::kColumnWise,
                                  ShardingType::kTableColumnWise, ShardingType::kGridShard}) {
    EXPECT_THAT(Message(CheckShardingFits(spec, type)), HasSubstr("use table_wise"));
  }
  TablePlan plan{spec, ShardingType::kTableWise, {{{0, 1024, 0, 10, {NodeId{1}, 0}}}}};
  EXPECT_THAT(plan.Validate(), IsOk());
  plan.replicas.push_back({{0, 1024, 0, 10, {NodeId{2}, 0}}});
  EXPECT_THAT(Message(plan.Validate()), HasSubstr("one copy"));
}

TEST(ZchSpecJson, RoundTripsAndRefusesWhatItDoesNotKnow) {
  TableSpec spec = Table();
  spec.zch = {.buckets = 4,
              .policy = zch::Policy::kTtl,
              .distance_exponent = 2,
              .ttl_steps = 7,
              .evict_unexpired = true,
              .admission = zch::Admission::kProbability,
              .admission_count = 3,
              .admission_probability = 0.3f,
              .reserved_lanes = 2,
              .unseen = zch::Unseen::kDefault};
  const absl::StatusOr<TableSpec> read = TableSpecFromJson(TableSpecToJson(spec));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, spec);
  const auto wrong =
      TableSpecFromJson(R"({"name": "t", "rows": 5, "dim": 3, "zch": {"bucket": 4}})");
  EXPECT_THAT(Message(wrong.status()), HasSubstr("zch has the unknown field \"bucket\""));
}

TEST(SliceBytesOfZch, CountTheSlots) {
  TableSpec spec = Table();
  const Slice all{0, 1024, 0, 10, {}};
  const std::int64_t with_slots = SliceBytes(spec, all);
  spec.zch.reset();
  EXPECT_EQ(with_slots - SliceBytes(spec, all), 1024 * 21);
}

TEST(IdRows, AnIdStandsAtTheFirstRowOfItsBucket) {
  const IdRows plain;
  EXPECT_EQ(plain.RowOf(RowId{-7}), -7);
  const TableSpec spec = Table();
  const IdRows rows(spec);
  for (std::int64_t id = -50; id < 50; ++id) {
    const zch::Place place = zch::PlaceOf(RowId{id}, 4, 4);
    EXPECT_EQ(rows.RowOf(RowId{id}), place.bucket * 256);
    EXPECT_TRUE(spec.IsRowBorder(rows.RowOf(RowId{id})));
  }
}

}  // namespace
}  // namespace embla
