#include "core/plan/table_spec.h"

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/plan/names.h"
#include "core/plan/table_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

TableSpec Spec(std::int64_t rows = 1000, std::uint32_t dim = 16) {
  TableSpec spec;
  spec.name = "clicks";
  spec.rows = rows;
  spec.dim = dim;
  spec.SetDefaults();
  return spec;
}

TEST(TableSpecSetDefaults, GivesOneGranulePerRowUpTo4096) {
  EXPECT_EQ(Spec(7).row_granules, 7u);
  EXPECT_EQ(Spec(1'000'000).row_granules, 4096u);
  EXPECT_EQ(Spec().column_granule_width, 4u);
}

TEST(TableSpecGranules, CoverTheTableWithoutGapsAndDifferByOneRow) {
  for (const std::int64_t rows : {1L, 4095L, 4097L, 1'000'003L, std::int64_t{kRowsMax}}) {
    const TableSpec spec = Spec(rows);
    EXPECT_EQ(spec.RowGranuleBegin(0), 0);
    EXPECT_EQ(spec.RowGranuleBegin(spec.row_granules), rows);
    for (std::uint32_t i = 0; i < spec.row_granules; ++i) {
      const std::int64_t size = spec.RowGranuleBegin(i + 1) - spec.RowGranuleBegin(i);
      ASSERT_GE(size, rows / spec.row_granules);
      ASSERT_LE(size, rows / spec.row_granules + 1);
      ASSERT_TRUE(spec.IsRowBorder(spec.RowGranuleBegin(i)));
    }
  }
}

TEST(TableSpecGranules, OnlyGranuleBeginsAndTheEndAreBorders) {
  TableSpec spec = Spec(10, 10);
  spec.row_granules = 3;  // 0, 3, 6, 10.
  std::vector<std::int64_t> borders;
  for (std::int64_t row = -1; row <= 11; ++row) {
    if (spec.IsRowBorder(row)) borders.push_back(row);
  }
  EXPECT_THAT(borders, ::testing::ElementsAre(0, 3, 6, 10));
  EXPECT_EQ(spec.column_granules(), 3u);
  EXPECT_EQ(spec.ColumnGranuleBegin(3), 10u);
  EXPECT_TRUE(spec.IsColumnBorder(8));
  EXPECT_TRUE(spec.IsColumnBorder(10));
  EXPECT_FALSE(spec.IsColumnBorder(9));
  EXPECT_FALSE(spec.IsColumnBorder(12));
}

TEST(TableSpecBytes, CountWeightsAndFp32State) {
  TableSpec spec = Spec(10, 10);
  spec.dtype = DType::kFloat16;
  EXPECT_EQ(spec.WeightBytesPerRow(), 20);
  EXPECT_EQ(spec.StateBytesPerRow(), 4);
  spec.optimizer.kind = OptimizerKind::kAdam;
  EXPECT_EQ(spec.StateBytesPerRow(), 4 + 80);
  spec.optimizer.kind = OptimizerKind::kSgd;
  EXPECT_EQ(spec.StateBytesPerRow(), 0);
  EXPECT_EQ(RowBytes(DType::kInt8Rowwise, 10), 18u);
}

struct BadField {
  const char* names;
  std::function<void(TableSpec&)> spoil;
};

TEST(TableSpecValidate, RefusesEveryFieldOutOfRangeByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const BadField bad[] = {
      {"rows", [](TableSpec& s) { s.rows = 0; }},
      {"rows", [](TableSpec& s) { s.rows = kRowsMax + 1; }},
      {"dim", [](TableSpec& s) { s.dim = 0; }},
      {"dim", [](TableSpec& s) { s.dim = kDimMax + 1; }},
      {"row_granules", [](TableSpec& s) { s.row_granules = 0; }},
      {"row_granules", [](TableSpec& s) { s.row_granules = 1001; }},
      {"column_granule_width", [](TableSpec& s) { s.column_granule_width = 6; }},
      {"dtype", [](TableSpec& s) { s.dtype = DType::kInt8Rowwise; }},
      {"rounding", [](TableSpec& s) { s.rounding = static_cast<Rounding>(9); }},
      {"learning_rate", [=](TableSpec& s) { s.optimizer.learning_rate = nan; }},
      {"learning_rate", [](TableSpec& s) { s.optimizer.learning_rate = -1.0f; }},
      {"eps", [=](TableSpec& s) { s.optimizer.eps = inf; }},
      {"beta1", [](TableSpec& s) { s.optimizer.beta1 = 1.0f; }},
      {"beta2", [=](TableSpec& s) { s.optimizer.beta2 = nan; }},
      {"weight_decay_mode", [](TableSpec& s) { s.optimizer.weight_decay = 0.1f; }},
      {"gradient_clip", [](TableSpec& s) { s.optimizer.gradient_clip = -0.1f; }},
      {"init", [](TableSpec& s) { s.init = {.kind = InitKind::kUniform, .a = 1.0f, .b = 1.0f}; }},
      {"init", [](TableSpec& s) { s.init = {.kind = InitKind::kNormal, .a = 0.0f, .b = -1.0f}; }},
      {"init", [=](TableSpec& s) { s.init = {.kind = InitKind::kConstant, .a = inf, .b = 0}; }},
  };
  ASSERT_THAT(Spec().Validate(), IsOk());
  for (const BadField& field : bad) {
    TableSpec spec = Spec();
    field.spoil(spec);
    const absl::Status status = spec.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field.names;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field.names));
    EXPECT_THAT(std::string(status.message()), HasSubstr("table clicks"));
  }
}

TEST(ValidateName, AcceptsWhatIsSafeAsAFileName) {
  for (const char* const good : {"a", "user_id.v2-x", "_", "-"}) {
    EXPECT_THAT(ValidateName("table name", good), IsOk()) << good;
  }
  for (const std::string& bad : {std::string(), std::string("."), std::string("..hidden"),
                                 std::string("a/b"), std::string("a b"), std::string("\xc3\xa4"),
                                 std::string("a\0b", 3), std::string(129, 'x')}) {
    EXPECT_THAT(ValidateName("table name", bad),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("table name")))
        << bad;
  }
}

TEST(NamesFromName, ReadsBackEveryNameAndListsThemForAnUnknownOne) {
  for (const auto type :
       {ShardingType::kDataParallel, ShardingType::kTableWise, ShardingType::kColumnWise,
        ShardingType::kTableColumnWise, ShardingType::kRowWise, ShardingType::kTableRowWise,
        ShardingType::kGridShard}) {
    EXPECT_EQ(*FromName<ShardingType>(NameOf(type)), type);
  }
  const auto unknown = FromName<DType>("fp33");
  EXPECT_EQ(unknown.status().message(), "dtype \"fp33\" is not one of fp32, fp16, bf16, int8");
  EXPECT_EQ(NameOf(static_cast<Rounding>(77)), "");
}

TEST(TableOptionsSet, ChangesEveryOption) {
  TableSpec spec = Spec();
  ASSERT_THAT(SetTableOptions({{"learning_rate", "0.05"},
                               {"eps", "1e-6"},
                               {"beta1", "0.8"},
                               {"beta2", "0.99"},
                               {"weight_decay", "0.001"},
                               {"weight_decay_mode", "decoupled"},
                               {"gradient_clip", "2"},
                               {"bias_correction", "step"},
                               {"rounding", "stochastic"},
                               {"bounds", "ignore"},
                               {"nan_policy", "allow"},
                               {"durability", "synced"}},
                              &spec),
              IsOk());
  EXPECT_EQ(spec.optimizer.learning_rate, 0.05f);
  EXPECT_EQ(spec.optimizer.weight_decay_mode, WeightDecayMode::kDecoupled);
  EXPECT_EQ(spec.optimizer.bias_correction, BiasCorrection::kStep);
  EXPECT_EQ(spec.optimizer.gradient_clip, 2.0f);
  EXPECT_EQ(spec.rounding, Rounding::kStochastic);
  EXPECT_EQ(spec.bounds, BoundsMode::kIgnore);
  EXPECT_EQ(spec.nan_policy, NanPolicy::kAllow);
  EXPECT_EQ(spec.durability, TableDurability::kSynced);
  ASSERT_THAT(SetTableOptions({{"durability", "node"}}, &spec), IsOk());
  EXPECT_EQ(spec.durability, TableDurability::kNode);
}

// A record has all tables of an update: none can be left out of it.
TEST(TableOptionsSet, NoTableKeepsItsUpdatesOutOfTheJournal) {
  TableSpec spec = Spec();
  EXPECT_THAT(SetTableOptions({{"durability", "none"}}, &spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"none\" is not one of node, queued, written, synced")));
}

TEST(TableOptionsSet, LeavesTheShapeAsItIs) {
  TableSpec before = Spec();
  before.optimizer.weight_decay = 0.1f;
  before.optimizer.weight_decay_mode = WeightDecayMode::kL2;
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"learning_rate", "0.5"},
                                          {"eps", "0.5"},
                                          {"beta1", "0.5"},
                                          {"beta2", "0.5"},
                                          {"weight_decay", "0.5"},
                                          {"weight_decay_mode", "decoupled"},
                                          {"gradient_clip", "0.5"},
                                          {"bias_correction", "step"},
                                          {"rounding", "stochastic"},
                                          {"bounds", "ignore"},
                                          {"nan_policy", "allow"},
                                          {"durability", "synced"},
                                          {"callers", "t0"},
                                          {"lookups_per_sample", "3"}}) {
    TableSpec after = before;
    ASSERT_THAT(SetTableOptions({{key, value}}, &after), IsOk()) << key;
    EXPECT_NE(after, before) << key;
    EXPECT_TRUE(SameShape(before, after)) << key;
  }
  TableSpec other = before;
  other.seed = 77;
  EXPECT_FALSE(SameShape(before, other));
  other = before;
  other.optimizer.kind = OptimizerKind::kAdam;
  EXPECT_FALSE(SameShape(before, other));
}

TEST(TableOptionsSet, CallersAreNamesWithCommasBetweenThem) {
  TableSpec spec = Spec();
  ASSERT_THAT(SetTableOptions({{"callers", "t0,t1"}}, &spec), IsOk());
  EXPECT_THAT(spec.callers, ::testing::ElementsAre("t0", "t1"));
  EXPECT_THAT(SetTableOptions({{"callers", "t0,t0"}}, &spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("t0 is named twice")));
  EXPECT_THAT(SetTableOptions({{"callers", "t0,a b"}}, &spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("caller")));
  spec.callers.assign(kCallersMax + 1, "t");
  EXPECT_THAT(spec.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65, at most 64")));
  ASSERT_THAT(SetTableOptions({{"callers", ""}}, &spec), IsOk());
  EXPECT_THAT(spec.callers, ::testing::IsEmpty());
}

TEST(TableOptionsSet, ChangesNothingWhenOneValueIsWrong) {
  const TableSpec before = Spec();
  const std::map<std::string, std::string> wrong[] = {
      {{"eps", "1e-3"}, {"learning_rate", "fast"}},
      {{"eps", "1e-3"}, {"learning_rate", "nan"}},
      {{"eps", "1e-3"}, {"learning_rate", "1e99"}},
      {{"eps", "1e-3"}, {"learning_rate", "0.1 "}},
      {{"eps", "1e-3"}, {"rounding", "up"}},
      {{"eps", "1e-3"}, {"rows", "5"}},
      {{"eps", "1e-3"}, {"beta1", "1"}},
  };
  for (const auto& values : wrong) {
    TableSpec spec = before;
    EXPECT_EQ(SetTableOptions(values, &spec).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(spec, before);
  }
  TableSpec spec = before;
  const absl::Status status = SetTableOptions({{"rows", "5"}}, &spec);
  EXPECT_THAT(std::string(status.message()), HasSubstr("allowed are learning_rate, eps, beta1"));
}

}  // namespace
}  // namespace embla
