#include "core/plan/step_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = MemberChange::Kind;

std::vector<Rank> Ranks(std::initializer_list<std::uint32_t> numbers) {
  std::vector<Rank> ranks;
  for (const std::uint32_t number : numbers) ranks.push_back(Rank{number});
  return ranks;
}

StepPlan PlanOf(std::initializer_list<std::uint32_t> ranks) {
  return {.version = PlanVersion{1}, .members = {{.first_step = 0, .ranks = Ranks(ranks)}}};
}

// `change` on `plan`, when `next_step` is the first one that nobody has made.
StepPlan Changed(const StepPlan& plan, const MemberChange& change, std::uint64_t next_step) {
  const auto opened = Opened(plan, change, PlanVersion{ToInt(plan.version) + 1});
  EXPECT_THAT(opened, IsOk());
  return Decided(*opened, next_step, PlanVersion{ToInt(plan.version) + 2});
}

TEST(StepMembersChange, ClosesASilentRankFromTheStepThatNobodyHasMade) {
  const StepPlan plan =
      Changed(PlanOf({0, 1, 2}), {.kind = Kind::kClose, .step = 7, .ranks = Ranks({1})}, 7);
  EXPECT_THAT(plan.members, ElementsAre(StepMembers{0, Ranks({0, 2}), Ranks({1})},
                                        StepMembers{7, Ranks({0, 2}), {}}));
  EXPECT_EQ(plan.version, PlanVersion{3});
  EXPECT_FALSE(plan.open.has_value());
}

TEST(StepMembersChange, ClosesARankBehindAStepThatANodeHasMadeWithIt) {
  const StepPlan plan =
      Changed(PlanOf({0, 1}), {.kind = Kind::kClose, .step = 7, .ranks = Ranks({1})}, 9);
  EXPECT_THAT(plan.members,
              ElementsAre(StepMembers{0, Ranks({0}), Ranks({1})}, StepMembers{9, Ranks({0}), {}}));
}

TEST(StepMembersChange, LetsRanksJoinBehindEveryStepThatWasMade) {
  const StepPlan plan = Changed(PlanOf({1}), {.kind = Kind::kJoin, .ranks = Ranks({2, 0})}, 5);
  EXPECT_THAT(plan.members,
              ElementsAre(StepMembers{0, Ranks({1}), {}}, StepMembers{5, Ranks({0, 1, 2}), {}}));
}

TEST(StepMembersChange, BeginsATableAtTheStepThatItsFirstRanksAskFor) {
  const StepPlan plan =
      Changed(StepPlan(), {.kind = Kind::kJoin, .step = 1000, .ranks = Ranks({0})}, 0);
  EXPECT_THAT(plan.members, ElementsAre(StepMembers{1000, Ranks({0}), {}}));
  EXPECT_EQ(plan.NextMade(0), 1000u);
  EXPECT_EQ(plan.At(999), nullptr);
}

TEST(StepMembersChange, FailsStepsForAllUntilRanksJoin) {
  const StepPlan failed =
      Changed(PlanOf({0, 1}), {.kind = Kind::kFail, .step = 3, .ranks = Ranks({1})}, 3);
  EXPECT_TRUE(failed.At(3)->fails());
  EXPECT_EQ(failed.NextMade(3), 3u);
  const StepPlan again =
      Changed(failed, {.kind = Kind::kJoin, .step = 6, .ranks = Ranks({0, 1})}, 3);
  EXPECT_TRUE(again.At(5)->fails());
  EXPECT_EQ(again.NextMade(3), 6u);
}

TEST(StepMembersChange, CompletesAStepThatANodeHasMadeBeforeStepsFail) {
  const StepPlan plan =
      Changed(PlanOf({0, 1}), {.kind = Kind::kFail, .step = 3, .ranks = Ranks({1})}, 4);
  EXPECT_THAT(plan.members,
              ElementsAre(StepMembers{0, Ranks({0}), Ranks({1})}, StepMembers{4, {}, {}}));
}

TEST(StepMembersChange, ClosesARankThatOnlyEarlierStepsWaitFor) {
  StepPlan plan = Changed(PlanOf({0, 1}), {.kind = Kind::kFail, .step = 3, .ranks = Ranks({1})}, 4);
  plan = Changed(plan, {.kind = Kind::kClose, .step = 3, .ranks = Ranks({0})}, 4);
  EXPECT_THAT(plan.members, ElementsAre(StepMembers{0, {}, Ranks({0, 1})}, StepMembers{4, {}, {}}));
}

TEST(StepMembersChange, KeepsAStepWhoseRanksAreAllOptional) {
  const StepPlan plan =
      Changed(PlanOf({0}), {.kind = Kind::kClose, .step = 3, .ranks = Ranks({0})}, 4);
  EXPECT_FALSE(plan.At(3)->fails());
  EXPECT_TRUE(plan.At(4)->fails());
}

TEST(StepMembersChange, ForgetsEntriesThatNobodyCanBeAtAnyMore) {
  StepPlan plan = PlanOf({0, 1});
  plan = Changed(plan, {.kind = Kind::kClose, .step = 10, .ranks = Ranks({1})}, 10);
  plan = Changed(plan, {.kind = Kind::kJoin, .ranks = Ranks({1})}, 265);
  EXPECT_EQ(plan.members.front().first_step, 0u);
  plan = Changed(plan, {.kind = Kind::kClose, .step = 266, .ranks = Ranks({1})}, 266);
  EXPECT_EQ(plan.members.front().first_step, 10u);
}

TEST(StepMembersChange, RefusesWhatDoesNotFit) {
  const auto opened = [](const MemberChange& change) {
    return Opened(PlanOf({0, 1}), change, PlanVersion{2});
  };
  EXPECT_THAT(opened({.kind = Kind::kClose}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(opened({.kind = Kind::kClose, .ranks = Ranks({1, 4, 5})}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4, 5 are no members")));
  EXPECT_THAT(opened({.kind = Kind::kJoin, .ranks = Ranks({1, 2})}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 have joined")));
  const auto open = opened({.kind = Kind::kJoin, .ranks = Ranks({2})});
  ASSERT_THAT(open, IsOk());
  EXPECT_EQ(open->open->number, 1u);
  EXPECT_THAT(Opened(*open, {.kind = Kind::kJoin, .ranks = Ranks({3})}, PlanVersion{3}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("change 1")));
}

}  // namespace
}  // namespace embla
