// Every world of synchronous steps that small configurations can reach, through the production
// code: each unit makes each step once, with exactly one contribution of every member that the
// coordinator decided; no acknowledged contribution is lost; no member is refused; and from
// everywhere a way on.
#include <cstdio>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/model/searcher.h"
#include "tests/model/steps_world.h"

namespace embla::model {
namespace {

struct Case {
  const char* name;
  StepsConfig config;
  bool checks_progress = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class StepsModelSearch : public testing::TestWithParam<Case> {};

TEST_P(StepsModelSearch, HoldsInEveryReachableWorld) {
  const SearchResult result =
      Searcher<StepsModel>(GetParam().config, {.checks_progress = GetParam().checks_progress})
          .Run();
  std::printf("%s: %s\n", GetParam().name, ToString(result).c_str());
  EXPECT_FALSE(result.counterexample.has_value()) << ToString(result);
  EXPECT_TRUE(result.is_complete);
}

const Case kCases[] = {
    {"TwoStepsAndDeathsOfNodes", {.steps = 2, .crashes = 2}},
    {"OneMove", {.steps = 2, .moves = 1, .crashes = 1}},
    {"ThreeNodes", {.nodes = 3, .units = 3, .moves = 1}},
    {"ThreeRanks", {.ranks = 3, .moves = 1}},
    {"TwoRestarts", {.steps = 2, .restarts = 2, .crashes = 1}},
    {"RestartAndMove", {.steps = 2, .moves = 1, .restarts = 1}},
    {"Timeout", {.steps = 2, .timeouts = 1, .crashes = 1}},
    {"TimeoutAndMove", {.moves = 1, .timeouts = 1}},
    {"TimeoutAndRestart", {.restarts = 1, .timeouts = 1}},
    {"TimeoutOfThreeRanks", {.ranks = 3, .timeouts = 1}},
    {"Fails", {.steps = 2, .timeouts = 1, .fails = true}},
    {"Join", {.steps = 2, .joins = true, .crashes = 1}},
    {"LateSyncs", {.steps = 2, .crashes = 2, .has_late_syncs = true}},
    {"LateSyncsAndMove", {.moves = 1, .crashes = 1, .has_late_syncs = true}},
    {"LateSyncsAndTimeout", {.timeouts = 1, .crashes = 1, .has_late_syncs = true}},
    {"ProgressMove", {.steps = 2, .moves = 1, .has_empties = true, .crashes = 1}, true},
    {"ProgressDeath", {.steps = 2, .deaths = 1, .crashes = 1}, true},
    {"ProgressRestartAndMove", {.moves = 1, .restarts = 1}, true},
    {"ProgressWhenMessagesAreLost", {.deaths = 1, .is_lossy = true}, true},
};
const Case kSlowCases[] = {
    {"TwoMoves", {.steps = 2, .moves = 2}},
    {"TwoTimeouts", {.ranks = 3, .timeouts = 2}},
    {"TimeoutRestartAndMove", {.moves = 1, .restarts = 1, .timeouts = 1}},
    {"JoinAndMove", {.steps = 2, .moves = 1, .joins = true}},
    {"ProgressTimeoutAndMove", {.moves = 1, .timeouts = 1}, true},
    {"ProgressFailsAndMove", {.moves = 1, .deaths = 1, .fails = true}, true},
    {"ProgressMoveWhenMessagesAreLost", {.moves = 1, .deaths = 1, .is_lossy = true}, true},
};

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Normal, StepsModelSearch, testing::ValuesIn(kCases), NameOf);
INSTANTIATE_TEST_SUITE_P(Slow, StepsModelSearch, testing::ValuesIn(kSlowCases), NameOf);

}  // namespace
}  // namespace embla::model
