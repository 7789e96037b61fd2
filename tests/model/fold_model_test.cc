// Every order of events in which records of updates become one, through the production code: no
// acknowledged update is lost and none is applied twice, and from everywhere a way on. Each
// condition is taken away once, and the checker must find what it prevents.
#include <cstdio>
#include <ostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/fold_world.h"
#include "tests/model/searcher.h"

namespace embla::model::fold_model_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint8_t kBoth = kRest | kUnit;
constexpr char kLost[] = "was acknowledged and is lost";
constexpr char kTwice[] = "was applied twice";

struct Case {
  const char* name;
  FoldConfig config;
  bool checks_progress = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class FoldModelSearch : public testing::TestWithParam<Case> {};

TEST_P(FoldModelSearch, HoldsInEveryReachableWorld) {
  const SearchResult result =
      Searcher<FoldModel>(GetParam().config, {.checks_progress = GetParam().checks_progress}).Run();
  std::printf("%s: %s\n", GetParam().name, ToString(result).c_str());
  EXPECT_FALSE(result.counterexample.has_value()) << ToString(result);
  EXPECT_TRUE(result.is_complete);
}

INSTANTIATE_TEST_SUITE_P(
    Each, FoldModelSearch,
    testing::ValuesIn(std::initializer_list<Case>{
        {"OneMove", {.freezes = 1, .folds = 2}},
        {"OneMoveAndDeaths", {.freezes = 1, .folds = 2, .crashes = 2}},
        {"TwoMoves", {.freezes = 2, .folds = 2, .crashes = 1}},
        {"ThreeMovesOfOneUpdate", {.updates = {kBoth}, .freezes = 3, .folds = 3, .crashes = 1}},
        {"FourMovesOfOneUpdate", {.updates = {kBoth}, .freezes = 4, .folds = 2}},
        {"UpdatesOfOneUnit", {.updates = {kRest, kUnit}, .freezes = 2, .folds = 2, .crashes = 1}},
        {"ThreeUpdates", {.updates = {kBoth, kRest, kBoth}, .freezes = 1, .folds = 1}},
        {"RowsAreLeftOut", {.updates = {kBoth}, .freezes = 2, .folds = 2, .leaves_out = true}},
        {"PlansAreNotNamed", {.freezes = 2, .folds = 2, .crashes = 1, .names_plans = false}},
        {"Hints", {.freezes = 1, .folds = 1, .hints = 2}},
        {"HintsOfOneUpdate",
         {.updates = {kBoth}, .freezes = 2, .folds = 2, .crashes = 1, .hints = 3}},
        {"Progress", {.updates = {kBoth}, .freezes = 2, .folds = 2, .crashes = 1}, true},
        {"ProgressOfTwoUpdates", {.freezes = 1, .folds = 1}, true},
        {"ProgressWithoutNames",
         {.updates = {kBoth}, .freezes = 2, .folds = 2, .names_plans = false},
         true},
    }),
    [](const auto& info) { return std::string(info.param.name); });

struct RemovedGuard {
  const char* name;
  bool FoldGuards::*guard;
  FoldConfig config;
  const char* why;
};

void PrintTo(const RemovedGuard& removed, std::ostream* out) { *out << removed.name; }

const RemovedGuard kRemoved[] = {
    {"noted_is_over", &FoldGuards::noted_is_over, {.updates = {kBoth}}, kLost},
    {"stale_cancels", &FoldGuards::stale_cancels, {.updates = {kBoth}}, kLost},
    {"stale_takes_apart", &FoldGuards::stale_takes_apart, {.updates = {kBoth}}, kLost},
    {"since_is_first", &FoldGuards::since_is_first, {.updates = {kBoth}}, kLost},
    {"hints_are_dated", &FoldGuards::hints_are_dated, {.updates = {kBoth}, .hints = 2}, kLost},
    {"hints_are_asked", &FoldGuards::hints_are_asked, {.updates = {kBoth}, .hints = 2}, kLost},
    {"plan_has_unit", &FoldGuards::plan_has_unit, {.updates = {kBoth}, .crashes = 1}, kLost},
    {"plan_after_arrival",
     &FoldGuards::plan_after_arrival,
     {.updates = {kBoth}, .freezes = 3},
     kLost},
    {"plan_was_sent",
     &FoldGuards::plan_was_sent,
     {.updates = {kBoth}, .freezes = 3, .crashes = 1},
     kLost},
    {"left_out_cancels",
     &FoldGuards::left_out_cancels,
     {.updates = {kBoth}, .leaves_out = true},
     kLost},
    {"unrest_cancels", &FoldGuards::unrest_cancels, {.updates = {kBoth}, .freezes = 3}, kLost},
    {"records_join", &FoldGuards::records_join, {.updates = {kUnit}}, kTwice},
    {"apart_with_record",
     &FoldGuards::apart_with_record,
     {.updates = {kUnit}, .freezes = 2},
     kTwice},
    {"fold_is_logged", &FoldGuards::fold_is_logged, {.updates = {kUnit}, .crashes = 1}, kTwice},
};

class FoldGuard : public testing::TestWithParam<RemovedGuard> {};

TEST_P(FoldGuard, RemovalIsCaughtWithATrace) {
  FoldConfig config = GetParam().config;
  config.guards.*GetParam().guard = false;
  const SearchResult result = Searcher<FoldModel>(config, {}).Run();
  std::printf("without %s: %s\n", GetParam().name, ToString(result).c_str());
  ASSERT_TRUE(result.counterexample.has_value());
  EXPECT_THAT(result.counterexample->why, HasSubstr(GetParam().why));
}

// The same worlds with the guard in place: it is the removal that breaks them.
TEST_P(FoldGuard, NothingBreaksWithIt) {
  const SearchResult result = Searcher<FoldModel>(GetParam().config, {}).Run();
  EXPECT_FALSE(result.counterexample.has_value()) << ToString(result);
  EXPECT_TRUE(result.is_complete);
}

INSTANTIATE_TEST_SUITE_P(Each, FoldGuard, testing::ValuesIn(kRemoved),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FoldGuardsList, EveryGuardIsRemovedOnce) {
  ASSERT_EQ(std::size(kRemoved), kFoldGuardNames.size());
  for (std::size_t i = 0; i < kFoldGuardNames.size(); ++i) {
    EXPECT_EQ(kRemoved[i].name, kFoldGuardNames[i].name);
    EXPECT_TRUE(kRemoved[i].guard == kFoldGuardNames[i].guard);
  }
}

}  // namespace
}  // namespace embla::model::fold_model_test
