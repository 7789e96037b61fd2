#include "client/route/feature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"

namespace embla::client::feature_test {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

Routes OneTable() {
  TablePlan table;
  table.spec = {.id = TableId{1}, .name = "clicks", .rows = 10, .dim = 2};
  table.spec.SetDefaults();
  table.replicas = {{{0, 10, 0, 2, {NodeId{1}, 0}}}};
  return Routes(std::make_shared<Plan>(PlanVersion{3}, "test",
                                       std::vector<NodeSpec>{{NodeId{1}, "n1", "fake:1", {{}}}},
                                       std::vector{table}));
}

const std::int64_t kIds[] = {1, 2, 3};

absl::Status Check(const FeatureLookup& feature) {
  return CheckFeature(OneTable(), ArgumentsOf(feature), 4).status();
}

TEST(CheckFeature, TurnsOffsetsIntoLengths) {
  const std::int64_t offsets[] = {0, 2, 2, 3};
  std::vector<float> rows(6);
  const Routes routes = OneTable();
  const auto feature = CheckFeature(routes,
                                    ArgumentsOf({.table = "clicks",
                                                 .ids = kIds,
                                                 .offsets = offsets,
                                                 .pooling = Pooling::kMean,
                                                 .rows_out = rows}),
                                    0);
  ASSERT_THAT(feature, IsOk());
  EXPECT_THAT(feature->lengths, ::testing::ElementsAre(2, 0, 1));
  EXPECT_EQ(feature->rows(), 3);
}

TEST(CheckFeature, NamesTheMissingTableAndThePlan) {
  const absl::Status status = Check({.table = "clocks"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no table clocks in plan 3"));
}

TEST(CheckFeature, RefusesSizesThatDoNotFit) {
  std::vector<float> rows(6);
  const std::uint32_t lengths[] = {1, 1};
  const std::int64_t descending[] = {0, 3, 2};
  const std::int64_t not_from_0[] = {1, 3};
  const std::int64_t all[] = {0, 3};
  const float weights[] = {1, 1};
  const FeatureLookup wrong[] = {
      {.table = "clicks", .ids = kIds, .rows_out = std::span(rows).first(5)},
      {.table = "clicks", .ids = kIds, .pooling = Pooling::kSum, .rows_out = rows},
      {.table = "clicks", .ids = kIds, .lengths = lengths, .pooling = Pooling::kSum},
      {.table = "clicks", .ids = kIds, .offsets = descending, .pooling = Pooling::kSum},
      {.table = "clicks", .ids = kIds, .offsets = not_from_0, .pooling = Pooling::kSum},
      {.table = "clicks",
       .ids = kIds,
       .lengths = lengths,
       .offsets = all,
       .pooling = Pooling::kSum},
      {.table = "clicks", .ids = kIds, .weights = weights, .rows_out = rows},
      {.table = "clicks",
       .ids = kIds,
       .offsets = all,
       .weights = weights,
       .pooling = Pooling::kSum,
       .rows_out = std::span(rows).first(2)},
      {.table = "clicks", .ids = kIds, .pooling = static_cast<Pooling>(9), .rows_out = rows},
  };
  for (std::size_t i = 0; i < std::size(wrong); ++i) {
    const absl::Status status = Check(wrong[i]);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << i << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("feature 4, table clicks")) << i;
  }
}

}  // namespace
}  // namespace embla::client::feature_test
