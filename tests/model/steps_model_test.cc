// Every world of synchronous steps that small configurations can reach, through the production
// code: each unit makes each step once, with exactly one contribution of every member that the
// coordinator decided; no acknowledged contribution is lost; no member is refused; and from
// everywhere a way on.
#include <cstdio>
#include <ostream>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/model/searcher.h"
#include "tests/model/steps_world.h"

namespace embla::model::steps_model_test {
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
    {"ThreeUnits", {.units = 3, .moves = 1}},
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
    {"Ahead", {.steps = 2, .ahead = 1, .crashes = 1}},
    {"AheadAndMove", {.units = 1, .steps = 2, .ahead = 1, .moves = 1}},
    {"AheadAndRestart", {.steps = 2, .ahead = 1, .restarts = 1}},
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
    {"AheadAndTimeout", {.steps = 2, .ahead = 1, .timeouts = 1}},
    {"TwoTimeouts", {.ranks = 3, .timeouts = 2}},
    {"TimeoutRestartAndMove", {.moves = 1, .restarts = 1, .timeouts = 1}},
    {"JoinAndMove", {.steps = 2, .moves = 1, .joins = true}},
    {"ProgressThreeUnits", {.units = 3, .moves = 1}, true},
    {"ProgressAheadAndDeath", {.steps = 2, .ahead = 1, .deaths = 1, .crashes = 1}, true},
    {"ProgressTimeoutAndMove", {.moves = 1, .timeouts = 1}, true},
    {"ProgressFailsAndMove", {.moves = 1, .deaths = 1, .fails = true}, true},
    {"ProgressMoveWhenMessagesAreLost", {.moves = 1, .deaths = 1, .is_lossy = true}, true},
};

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Normal, StepsModelSearch, testing::ValuesIn(kCases), NameOf);
INSTANTIATE_TEST_SUITE_P(Slow, StepsModelSearch, testing::ValuesIn(kSlowCases), NameOf);

// How often a kind of step is taken, where it is possible.
int WeightOf(StepsStepKind kind, bool has_faults) {
  switch (kind) {
    case StepsStepKind::kSend:
    case StepsStepKind::kDeliver:
    case StepsStepKind::kDecide:
    case StepsStepKind::kSync:
      return 40;
    case StepsStepKind::kUnfreeze:
    case StepsStepKind::kHandOver:
    case StepsStepKind::kReport:
    case StepsStepKind::kJoin:
    case StepsStepKind::kRepeat:
      return 4;
    default:
      return has_faults ? 2 : 0;
  }
}

// Three nodes, units and ranks, all faults: nothing breaks, and when the faults stop, all steps are
// made.
TEST(StepsWalk, NothingBreaksAndEveryStepIsMade) {
  constexpr std::uint64_t kSeeds = 300;
  int changes = 0;
  int steps = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    StepsModel model({.nodes = 3,
                      .units = 3,
                      .ranks = 3,
                      .steps = 5,
                      .ahead = static_cast<int>(seed % 2),
                      .moves = 6,
                      .restarts = 3,
                      .deaths = 1,
                      .timeouts = 1,
                      .fails = seed % 5 == 0,
                      .joins = seed % 3 == 0,
                      .has_empties = true,
                      .crashes = 5,
                      .has_late_syncs = true,
                      .is_lossy = true});
    StepsWorld world = model.Initial();
    for (int i = 0; i < 6000 && !(i > 600 && model.IsGoal(world)); ++i) {
      const std::vector<StepsStep> enabled = model.EnabledSteps(world);
      std::vector<int> weights;
      for (const StepsStep& step : enabled) weights.push_back(WeightOf(step.kind, i < 600));
      std::discrete_distribution<std::size_t> pick(weights.begin(), weights.end());
      const StepsStep step = enabled[pick(random)];
      if (step.kind == StepsStepKind::kDecide) ++changes;
      model.Take(step, world);
      ASSERT_EQ(model.Violation(world), std::nullopt) << "at " << model.Describe(step);
      ++steps;
    }
    ASSERT_TRUE(model.IsGoal(world));
  }
  std::printf("seeds 1..%d: %d steps, %d changes of members\n", static_cast<int>(kSeeds), steps,
              changes);
  EXPECT_GT(changes, 100);
}

}  // namespace
}  // namespace embla::model::steps_model_test
