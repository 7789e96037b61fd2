// Every guard of synchronous steps is taken away once, and the checker must find what it prevents.
#include <cstdio>
#include <ostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/searcher.h"
#include "tests/model/steps_world.h"

namespace embla::model::steps_guards_test {
namespace {

using ::testing::HasSubstr;

struct RemovedStepGuard {
  const char* name;
  bool StepGuards::*guard;
  StepsConfig config;  // Small, and large enough to show it.
  const char* why;     // The first thing that goes wrong.
  bool checks_progress = false;
};

void PrintTo(const RemovedStepGuard& removed, std::ostream* out) { *out << removed.name; }

constexpr char kLost[] = "was acknowledged and is lost";
constexpr char kNotMade[] = "has not made step";
constexpr char kLacks[] = "lacks rank";
constexpr char kNoMember[] = "which is no member of it";
constexpr char kRefused[] = "a member's contribution is refused";
constexpr char kNoWayOn[] = "no way on";

const RemovedStepGuard kRemovedStepGuards[] = {
    {"claims_checked", &StepGuards::claims_checked, {.moves = 1}, kLacks},
    {"members_checked", &StepGuards::members_checked, {.timeouts = 1}, kNoMember},
    {"optional_not_waited", &StepGuards::optional_not_waited, {.deaths = 1}, kNoWayOn, true},
    {"windows_asked", &StepGuards::windows_asked, {}, kRefused},
    {"resumes_known", &StepGuards::resumes_known, {.restarts = 1}, kRefused},
    {"resumes_need_member",
     &StepGuards::resumes_need_member,
     {.restarts = 1, .timeouts = 1},
     kLost},
    {"resumes_wait", &StepGuards::resumes_wait, {.moves = 1, .restarts = 1, .timeouts = 1}, kLost},
    {"open_change_pauses", &StepGuards::open_change_pauses, {.timeouts = 1}, kNoMember},
    {"plan_moves_forward", &StepGuards::plan_moves_forward, {.timeouts = 1}, kNoMember},
    {"freeze_stops_steps", &StepGuards::freeze_stops_steps, {.moves = 1}, kLost},
    {"freeze_answers", &StepGuards::freeze_answers, {.moves = 1}, kNoWayOn, true},
    {"ack_waits_for_step", &StepGuards::ack_waits_for_step, {.crashes = 1}, kLost},
    {"ack_waits_for_record",
     &StepGuards::ack_waits_for_record,
     {.crashes = 1, .has_late_syncs = true},
     kLost},
    {"windows_are_whole", &StepGuards::windows_are_whole, {.has_empties = true}, kRefused},
    {"closed_dropped", &StepGuards::closed_dropped, {.restarts = 1}, kRefused},
    {"closed_refused", &StepGuards::closed_refused, {.restarts = 1}, kRefused},
    {"moved_named_without_rows",
     &StepGuards::moved_named_without_rows,
     {.moves = 1, .has_empties = true},
     kLost},
    {"step_travels", &StepGuards::step_travels, {.moves = 1}, kNotMade},
    {"windows_travel", &StepGuards::windows_travel, {.moves = 1}, kRefused},
    {"plan_persisted",
     &StepGuards::plan_persisted,
     {.timeouts = 1, .crashes = 1, .has_late_syncs = true},
     kNoMember},
    {"all_nodes_answer", &StepGuards::all_nodes_answer, {.timeouts = 1}, kNoMember},
    {"answers_outlive_units",
     &StepGuards::answers_outlive_units,
     {.moves = 1, .timeouts = 1},
     kNoMember},
    {"first_behind_steps", &StepGuards::first_behind_steps, {.timeouts = 1}, kNoMember},
};

class StepsGuards : public testing::TestWithParam<RemovedStepGuard> {};

TEST_P(StepsGuards, RemovalIsCaughtWithATrace) {
  StepsConfig config = GetParam().config;
  config.guards.*GetParam().guard = false;
  const SearchResult result =
      Searcher<StepsModel>(config, {.checks_progress = GetParam().checks_progress}).Run();
  std::printf("without %s: %s\n", GetParam().name, ToString(result).c_str());
  ASSERT_TRUE(result.counterexample.has_value());
  EXPECT_THAT(result.counterexample->why, HasSubstr(GetParam().why));
  EXPECT_FALSE(result.counterexample->trace.empty());
}

// The same worlds with the guard in place: it is the removal that breaks them.
TEST_P(StepsGuards, NothingBreaksWithIt) {
  const SearchResult result =
      Searcher<StepsModel>(GetParam().config, {.checks_progress = GetParam().checks_progress})
          .Run();
  EXPECT_FALSE(result.counterexample.has_value()) << ToString(result);
  EXPECT_TRUE(result.is_complete);
}

INSTANTIATE_TEST_SUITE_P(Each, StepsGuards, testing::ValuesIn(kRemovedStepGuards),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(StepsGuardsList, EveryGuardIsRemovedOnce) {
  ASSERT_EQ(std::size(kRemovedStepGuards), kStepGuardNames.size());
  for (std::size_t i = 0; i < kStepGuardNames.size(); ++i) {
    EXPECT_EQ(kRemovedStepGuards[i].name, kStepGuardNames[i].name);
    EXPECT_TRUE(kRemovedStepGuards[i].guard == kStepGuardNames[i].guard);
  }
}

}  // namespace
}  // namespace embla::model::steps_guards_test
