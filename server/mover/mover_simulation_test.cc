// Movers against the oracle of server/mover/testing/move_simulation.h, over many seeds.
#include <cstdint>
#include <iostream>

#include "core/base/log.h"
#include "gtest/gtest.h"
#include "server/mover/testing/move_simulation.h"

namespace embla {
namespace {

using testing::MoveSimulation;
using testing::SimulationOptions;

constexpr std::uint64_t kSeed = 20261122;

struct Sums {
  std::uint64_t commits = 0;
  std::uint64_t commits_within_nodes = 0;
  std::uint64_t aborts = 0;
  std::uint64_t acked = 0;
  std::uint64_t refused = 0;
  std::uint64_t deaths = 0;
  std::uint64_t folds = 0;
  std::uint64_t images = 0;
  std::uint64_t starts_amid_moves = 0;
};

Sums RunSeeds(SimulationOptions options, int seeds, int steps) {
  SetLogLevel(LogLevel::kError);  // Faults are many here.
  Sums sums;
  for (int i = 0; i < seeds; ++i) {
    options.seed = kSeed + static_cast<std::uint64_t>(i);
    MoveSimulation simulation(options);
    simulation.Run(steps);
    const bool rests = simulation.ComeToRest();
    EXPECT_EQ(simulation.violation(), "") << "seed=" << options.seed;
    EXPECT_TRUE(rests) << "moves or updates hang, seed=" << options.seed << '\n'
                       << simulation.Describe();
    if (rests) simulation.CheckAtRest();
    EXPECT_EQ(simulation.violation(), "") << "seed=" << options.seed;
    if (::testing::Test::HasFailure()) return sums;
    sums.commits += simulation.commits();
    sums.commits_within_nodes += simulation.commits_within_nodes();
    sums.aborts += simulation.aborts();
    sums.acked += simulation.acked();
    sums.refused += simulation.refused();
    sums.deaths += simulation.deaths();
    sums.folds += simulation.folds();
    sums.images += simulation.images();
    sums.starts_amid_moves += simulation.starts_amid_moves();
  }
  std::cout << "seed=" << kSeed << " seeds=" << seeds << " commits=" << sums.commits
            << " within_nodes=" << sums.commits_within_nodes << " aborts=" << sums.aborts
            << " acked=" << sums.acked << " refused=" << sums.refused << " deaths=" << sums.deaths
            << " folds=" << sums.folds << " images=" << sums.images
            << " starts_amid_moves=" << sums.starts_amid_moves << '\n';
  return sums;
}

TEST(MoverSimulation, AppliesEachUpdateOnceWithoutFaults) {
  SimulationOptions options;
  options.lose = 0;
  options.repeat = 0;
  options.log_full = 0;
  const Sums sums = RunSeeds(options, /*seeds=*/160, /*steps=*/20'000);
  EXPECT_GT(sums.commits, 500u);
  EXPECT_GT(sums.refused, 0u);
  EXPECT_GT(sums.folds, 50u);
}

TEST(MoverSimulation, AppliesEachUpdateOnceWhateverTheNetworkDoes) {
  const Sums sums = RunSeeds({}, /*seeds=*/150, /*steps=*/20'000);
  EXPECT_GT(sums.commits, 500u);
  EXPECT_GT(sums.aborts, 50u);
}

TEST(MoverSimulation, SurvivesRefusalsAndBadRows) {
  SimulationOptions options;
  options.host = {.refuse_reserve = 0.2, .fail_stage = 0.2, .fail_relocate = 0.5};
  options.log_full = 0.3;
  const Sums sums = RunSeeds(options, /*seeds=*/100, /*steps=*/20'000);
  EXPECT_GT(sums.commits, 100u);
  EXPECT_GT(sums.aborts, 100u);
}

TEST(MoverSimulation, SurvivesTheDeathOfAnyProcessAtAnyMoment) {
  SimulationOptions options;
  options.kill = 0.002;
  options.kill_coordinator = 0.02;
  options.abandon = 0.05;
  const Sums sums = RunSeeds(options, /*seeds=*/400, /*steps=*/20'000);
  EXPECT_GT(sums.deaths, 10'000u);
  EXPECT_GT(sums.commits, 1'000u);
  EXPECT_GT(sums.commits_within_nodes, 300u);
  EXPECT_GT(sums.folds, 50u);
}

// Many first moves: of units whose log says nothing of them yet, or has just lost it.
TEST(MoverSimulation, SurvivesDeathsInTheFirstMovesOfManyUnits) {
  SimulationOptions options;
  options.nodes = 2;
  options.units = 6;
  options.chunks = 2;
  options.lose = 0.02;
  options.kill = 0.004;
  options.abandon = 0.5;
  options.sync = 0.1;
  const Sums sums = RunSeeds(options, /*seeds=*/1'500, /*steps=*/3'000);
  EXPECT_GT(sums.deaths, 5'000u);
}

// A process begins with an image and the log behind it, whatever was under way at that moment.
TEST(MoverSimulation, BeginsWithAnImageThatWasTakenAmidMoves) {
  SimulationOptions options;
  options.image = 0.01;
  options.kill = 0.001;
  options.abandon = 0.05;
  options.host = {.fail_stage = 0.05, .fail_relocate = 0.2};
  const Sums sums = RunSeeds(options, /*seeds=*/300, /*steps=*/20'000);
  EXPECT_GT(sums.commits, 1'000u);
  EXPECT_GT(sums.images, 5'000u);
  EXPECT_GT(sums.starts_amid_moves, 500u);
}

TEST(MoverSimulation, KeepsWithinARate) {
  SimulationOptions options;
  options.bytes_per_second = 2000;
  const Sums sums = RunSeeds(options, /*seeds=*/50, /*steps=*/20'000);
  EXPECT_GT(sums.commits, 20u);
}

}  // namespace
}  // namespace embla
