// Every world that small configurations can reach, through the production steps of
// server/migration: no acknowledged update lost, none applied twice, one writer, one committed copy
// that answers lookups, a log that replays to the same state; and from everywhere a way on.
#include <cstdio>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/model/search.h"
#include "tests/model/walk.h"

namespace embla::model::migration_model_test {
namespace {

struct Case {
  const char* name;
  ModelConfig config;
  bool checks_progress = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class MigrationModel : public testing::TestWithParam<Case> {};

TEST_P(MigrationModel, HoldsInEveryReachableWorld) {
  const SearchResult result =
      Search(GetParam().config, {.checks_progress = GetParam().checks_progress});
  std::printf("%s: %s\n", GetParam().name, ToString(result).c_str());
  EXPECT_FALSE(result.counterexample.has_value()) << ToString(result);
  EXPECT_TRUE(result.is_complete);
}

const Case kCases[] = {
    {"OneMoveAllFaults",
     {.moves = 1,
      .has_deadlines = true,
      .has_refusals = true,
      .has_slow_writes = true,
      .has_partial_loss = true}},
    {"TwoMoves", {.moves = 2}},
    {"TwoMovesAborts", {.moves = 2, .has_crashes = false, .has_deadlines = true}},
    {"ThreeNodes", {.nodes = 3}},
    {"TwoCoordinators", {.coordinators = 2, .has_deadlines = true}},
    {"WithinANode",
     {.nodes = 1,
      .moves = 3,
      .has_deadlines = true,
      .has_refusals = true,
      .has_slow_writes = true,
      .moves_within_nodes = true}},
    {"WithinAndBetweenNodesAborts",
     {.moves = 2, .has_crashes = false, .has_deadlines = true, .moves_within_nodes = true}},
    {"WithinANodeProgressWhenMessagesAreLost",
     {.nodes = 1, .moves = 2, .is_lossy = true, .has_deadlines = true, .moves_within_nodes = true},
     true},
    {"ProgressWhenMessagesAreLost", {.is_lossy = true}, true},
    {"ARestoredNode", {.has_crashes = false, .has_deadlines = true, .restores = 1}},
    {"ARestoredNodeTwoMoves", {.updates = 0, .moves = 2, .has_crashes = false, .restores = 1}},
    {"ProgressOfARestoredNode",
     {.updates = 0, .has_crashes = false, .is_lossy = true, .restores = 1, .has_no_returns = true},
     true},
    {"ProgressWithoutTheCoordinator",
     {.is_lossy = true, .has_deadlines = true, .coordinator_dies = true},
     true},
};
const Case kSlowCases[] = {
    {"WithinAndBetweenNodes", {.moves = 2, .moves_within_nodes = true}},
    {"OneMoveTailLoss", {.tail_losses = 1}},
    {"TwoUpdates", {.updates = 2, .has_slow_writes = true}},
    {"TwoMovesTwoUpdates", {.updates = 2, .moves = 2}},
    {"OneMoveTailLossSlowWrites",
     {.has_deadlines = true, .has_slow_writes = true, .tail_losses = 1}},
    {"ProgressWhenMessagesAreLostAborts", {.is_lossy = true, .has_deadlines = true}, true},
    {"ThreeNodesTwoMoves", {.nodes = 3, .updates = 0, .moves = 2}},
    {"ARestoredNodeAllFaults", {.has_deadlines = true, .restores = 1}},
    {"ARestoredNodeTailLoss", {.has_crashes = false, .tail_losses = 1, .restores = 1}},
    {"ARestoredNodeThreeNodes",
     {.nodes = 3,
      .updates = 0,
      .moves = 2,
      .has_crashes = false,
      .restores = 1,
      .has_no_returns = true}},
    {"ProgressOfARestoredNodeUpdates",
     {.has_crashes = false, .is_lossy = true, .restores = 1, .has_no_returns = true},
     true},
    {"TwoMovesAllCrashes", {.moves = 2, .has_deadlines = true, .has_partial_loss = true}},
};

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Normal, MigrationModel, testing::ValuesIn(kCases), NameOf);
INSTANTIATE_TEST_SUITE_P(Slow, MigrationModel, testing::ValuesIn(kSlowCases), NameOf);

// Three nodes, two units that die together, up to nine moves of each.
TEST(MigrationWalk, NothingBreaksAndEverythingComesToRest) {
  const ModelConfig config = {.nodes = 3,
                              .units = 2,
                              .updates = 4,
                              .sessions = 2,
                              .coordinators = 2,
                              .chunks = 2,
                              .credit = 2,
                              .behind_max = 1,
                              .moves = 9,
                              .is_lossy = true,
                              .has_deadlines = true,
                              .has_refusals = true,
                              .has_slow_writes = true,
                              .has_partial_loss = true,
                              .moves_within_nodes = true,
                              .tail_losses = 1'000'000};
  WalkResult total;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const WalkResult walk = Walk(config, seed, 1500);
    ASSERT_FALSE(walk.counterexample.has_value())
        << "seed " << seed << ": " << ToString(SearchResult{.counterexample = walk.counterexample});
    total.commits += walk.commits;
    total.aborts += walk.aborts;
    total.crashes_while_frozen += walk.crashes_while_frozen;
    total.crashes_while_releasing += walk.crashes_while_releasing;
  }
  std::printf("seeds 1..60: %d commits, %d aborts, deaths: %d while frozen, %d while letting go\n",
              static_cast<int>(total.commits), static_cast<int>(total.aborts),
              static_cast<int>(total.crashes_while_frozen),
              static_cast<int>(total.crashes_while_releasing));
  EXPECT_GT(total.commits, 20u);
  EXPECT_GT(total.aborts, 20u);
  EXPECT_GT(total.crashes_while_frozen, 0u);
  EXPECT_GT(total.crashes_while_releasing, 0u);
}

}  // namespace
}  // namespace embla::model::migration_model_test
