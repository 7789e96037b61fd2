// Every guard of the protocol is taken away once, and the checker must find what it prevents.
#include <cstdio>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/model/search.h"

namespace embla::model::migration_guards_test {
namespace {

struct RemovedGuard {
  const char* name;
  bool Guards::*guard;
  ModelConfig config;  // Small, and large enough to show it.
  bool checks_progress = false;
  const char* why;  // The first thing that goes wrong.
};

void PrintTo(const RemovedGuard& removed, std::ostream* out) { *out << removed.name; }

ModelConfig Of(int moves, int updates) {
  ModelConfig config;
  config.moves = moves;
  config.updates = updates;
  return config;
}
ModelConfig WithDeadlines(ModelConfig config) { return config.has_deadlines = true, config; }
ModelConfig WithSlowWrites(ModelConfig config) { return config.has_slow_writes = true, config; }
ModelConfig WithPartialLoss(ModelConfig config) { return config.has_partial_loss = true, config; }
ModelConfig WithoutCrashes(ModelConfig config) { return config.has_crashes = false, config; }
ModelConfig WithTailLoss(ModelConfig config) { return config.tail_losses = 1, config; }
ModelConfig WithRestore(ModelConfig config) {
  config.restores = 1;
  config.has_no_returns = true;
  return config;
}
ModelConfig WithLosses(ModelConfig config) { return config.is_lossy = true, config; }

constexpr char kLost[] = "update 0 was acknowledged and is lost";
constexpr char kTwice[] = "update 0 was applied twice";
constexpr char kTwoWriters[] = "two nodes take updates of one unit";
constexpr char kStale[] = "a lookup misses an acknowledged update";
constexpr char kNobody[] = "nobody has the unit";
constexpr char kTookPlace[] = "a move takes place that was said to be aborted";

const RemovedGuard kRemovedGuards[] = {
    {"dedup_checked", &Guards::dedup_checked, Of(0, 1), false, kTwice},
    {"fence_at_apply", &Guards::fence_at_apply, Of(1, 1), false, kLost},
    {"version_is_applied", &Guards::version_is_applied, WithSlowWrites(Of(1, 1)), false, kLost},
    {"windows_travel", &Guards::windows_travel, Of(1, 1), false, kTwice},
    {"source_min_move", &Guards::source_min_move, WithDeadlines(Of(1, 0)), false, kTookPlace},
    {"holds_match_cut", &Guards::holds_match_cut, WithDeadlines(Of(1, 1)), false, kLost},
    {"release_synced", &Guards::release_synced, Of(1, 0), false, kTwoWriters},
    {"reads_stop", &Guards::reads_stop, Of(1, 1), false, kStale},
    {"abort_synced", &Guards::abort_synced, WithDeadlines(Of(1, 0)), false, kTookPlace},
    {"trim_waits", &Guards::trim_waits, Of(1, 0), false, kNobody},
    {"target_min_move", &Guards::target_min_move, Of(2, 0), false, kTwoWriters},
    {"chunk_order", &Guards::chunk_order, Of(1, 1), false, kLost},
    {"delta_base", &Guards::delta_base, WithPartialLoss(Of(1, 2)), false, kLost},
    {"holds_every_chunk", &Guards::holds_every_chunk, WithPartialLoss(Of(1, 1)), false, kLost},
    {"cut_is_newest", &Guards::cut_is_newest, WithRestore(WithDeadlines(WithoutCrashes(Of(1, 1)))),
     false, kTwice},
    {"acquire_waits", &Guards::acquire_waits, Of(1, 0), false, kTwoWriters},
    {"acquire_checks_cut", &Guards::acquire_checks_cut, Of(1, 1), false, kLost},
    {"cover_synced", &Guards::cover_synced, Of(1, 0), false, kNobody},
    {"promise_synced", &Guards::promise_synced, WithRestore(Of(1, 0)), false, kTwoWriters},
    {"compare_and_put", &Guards::compare_and_put, WithDeadlines(Of(1, 1)), false,
     "the record went back in time"},
    {"abort_asks_source", &Guards::abort_asks_source, WithDeadlines(Of(1, 0)), false, kTookPlace},
    {"facts_match_move", &Guards::facts_match_move, WithoutCrashes(WithDeadlines(Of(2, 1))), false,
     "the record is ahead of the nodes"},
    {"facts_are_repeated", &Guards::facts_are_repeated, WithLosses(WithoutCrashes(Of(1, 1))), true,
     "no way on: updates can never all be acknowledged"},
    {"lsns_begin_anew", &Guards::lsns_begin_anew, WithoutCrashes(WithTailLoss(Of(1, 2))), false,
     "update 1 was acknowledged and is lost"},
    {"lost_moves_end", &Guards::lost_moves_end, WithRestore(WithoutCrashes(Of(1, 0))), false,
     kTwoWriters},
    {"owners_agree", &Guards::owners_agree, WithRestore(WithoutCrashes(Of(1, 0))), false,
     kTwoWriters},
};

class MigrationGuards : public testing::TestWithParam<RemovedGuard> {};

TEST_P(MigrationGuards, RemovalIsCaughtWithATrace) {
  ModelConfig config = GetParam().config;
  config.guards.*GetParam().guard = false;
  const SearchResult result = Search(config, {.checks_progress = GetParam().checks_progress});
  std::printf("without %s: %s\n", GetParam().name, ToString(result).c_str());
  ASSERT_TRUE(result.counterexample.has_value());
  EXPECT_EQ(result.counterexample->why, GetParam().why);
  EXPECT_FALSE(result.counterexample->trace.empty());
}

// The same worlds with the guard in place: it is the removal that breaks them.
TEST_P(MigrationGuards, NothingBreaksWithIt) {
  const SearchResult result =
      Search(GetParam().config, {.checks_progress = GetParam().checks_progress});
  EXPECT_FALSE(result.counterexample.has_value()) << ToString(result);
  EXPECT_TRUE(result.is_complete);
}

INSTANTIATE_TEST_SUITE_P(Each, MigrationGuards, testing::ValuesIn(kRemovedGuards),
                         [](const auto& info) { return std::string(info.param.name); });

// No step of the protocol acknowledges, so there is no guard for it.
TEST(MigrationRules, AnUpdateThatIsAcknowledgedBeforeItsRecordIsSyncedIsLost) {
  ModelConfig config = WithTailLoss(WithoutCrashes(Of(1, 1)));
  EXPECT_FALSE(Search(config).counterexample.has_value());
  config.acks_at_once = true;
  const SearchResult result = Search(config);
  std::printf("acknowledged at once: %s\n", ToString(result).c_str());
  ASSERT_TRUE(result.counterexample.has_value());
  EXPECT_EQ(result.counterexample->why, kLost);
}

TEST(MigrationGuardsList, EveryGuardIsRemovedOnce) {
  ASSERT_EQ(std::size(kRemovedGuards), kGuardNames.size());
  for (std::size_t i = 0; i < kGuardNames.size(); ++i) {
    EXPECT_EQ(kRemovedGuards[i].name, kGuardNames[i].name);
    EXPECT_TRUE(kRemovedGuards[i].guard == kGuardNames[i].guard);
  }
}

}  // namespace
}  // namespace embla::model::migration_guards_test
