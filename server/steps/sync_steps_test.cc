#include "server/steps/sync_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Code = absl::StatusCode;

UnitSet Units(std::uint32_t begin, std::uint32_t end) {
  return UnitSet({.column_granule = 0, .begin = begin, .end = end});
}

// A node with units 0..3 of a table whose members are ranks 0 and 1.
class SyncStepsTest : public ::testing::Test {
 protected:
  SyncStepsTest() {
    steps_.Follow(plan_);
    steps_.Add(Units(0, 4), 0);
  }

  static Contribution Of(std::uint32_t rank, std::uint64_t step, const UnitSet& claim) {
    return {.session = SessionId{100 + rank},
            .seq = UpdateSeq{step + 1},
            .step = step,
            .rank = Rank{rank},
            .plan_version = PlanVersion{1},
            .learning_rate = std::nullopt,
            .bytes = 10,
            .claim = claim};
  }

  // Offers it and takes what is allowed; the answer, if there is one at once.
  absl::StatusOr<std::optional<SyncSteps::Answer>> Offer(std::uint64_t ticket,
                                                         const Contribution& contribution,
                                                         const UnitSet& applied = {}) {
    const auto offer = steps_.Decide(contribution, applied);
    if (!offer.ok()) return offer.status();
    return steps_.Take(ticket, contribution, *offer);
  }
  void Waits(std::uint64_t ticket, const Contribution& contribution) {
    const auto answer = Offer(ticket, contribution);
    ASSERT_THAT(answer, IsOk());
    EXPECT_FALSE(answer->has_value());
  }
  // Makes the step that is ready; the tickets that it answers.
  std::vector<std::uint64_t> Make() {
    const auto ready = steps_.Ready();
    EXPECT_TRUE(ready.has_value());
    return TicketsOf(steps_.Commit(*ready));
  }
  static std::vector<std::uint64_t> TicketsOf(const std::vector<SyncSteps::Answer>& answers) {
    std::vector<std::uint64_t> tickets;
    for (const SyncSteps::Answer& answer : answers) tickets.push_back(answer.ticket);
    return tickets;
  }

  StepPlan plan_ = {.version = PlanVersion{1},
                    .members = {{.first_step = 0, .ranks = {Rank{0}, Rank{1}}}}};
  SyncSteps steps_{{.steps_ahead_max = 2}};
};

TEST_F(SyncStepsTest, MakesAStepWhenEveryMemberHasContributedInTheOrderOfRanks) {
  Waits(7, Of(1, 0, Units(0, 4)));
  EXPECT_FALSE(steps_.Ready().has_value());
  EXPECT_EQ(steps_.bytes(), 10u);
  Waits(8, Of(0, 0, Units(0, 4)));
  const auto ready = steps_.Ready();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->units, Units(0, 4));
  ASSERT_THAT(ready->parts, SizeIs(2));
  EXPECT_EQ(ready->parts[0].ticket, 8u);
  EXPECT_EQ(ready->parts[1].ticket, 7u);
  EXPECT_THAT(TicketsOf(steps_.Commit(*ready)), ElementsAre(7, 8));
  EXPECT_EQ(steps_.first_unmade(), 1u);
  EXPECT_EQ(steps_.bytes(), 0u);
}

TEST_F(SyncStepsTest, MakesTheStepOfUnitsThatAllHaveClaimed) {
  Waits(1, Of(0, 0, Units(0, 4)));
  Waits(2, Of(1, 0, Units(0, 3)));
  EXPECT_THAT(Make(), ElementsAre(2));
  EXPECT_FALSE(steps_.Ready().has_value());
  Waits(3, Of(1, 0, Units(3, 4)));
  EXPECT_THAT(Make(), ElementsAre(1, 3));
}

TEST_F(SyncStepsTest, TakesLaterStepsAndMakesThemInOrder) {
  Waits(1, Of(0, 1, Units(0, 4)));
  Waits(2, Of(1, 1, Units(0, 4)));
  EXPECT_FALSE(steps_.Ready().has_value());
  Waits(3, Of(0, 0, Units(0, 4)));
  Waits(4, Of(1, 0, Units(0, 4)));
  EXPECT_THAT(Make(), ElementsAre(3, 4));
  EXPECT_THAT(Make(), ElementsAre(1, 2));
  EXPECT_THAT(Offer(5, Of(0, 5, Units(0, 4))), StatusIs(Code::kResourceExhausted));
}

TEST_F(SyncStepsTest, AnswersARepetitionWithItsFirstAttempt) {
  Waits(1, Of(0, 0, Units(0, 4)));
  Waits(2, Of(0, 0, Units(0, 4)));
  Waits(3, Of(1, 0, Units(0, 4)));
  EXPECT_THAT(Make(), ElementsAre(1, 2, 3));
  const auto answer = Offer(4, Of(0, 0, Units(0, 4)), Units(0, 4));
  ASSERT_THAT(answer, IsOk());
  ASSERT_TRUE(answer->has_value());
  EXPECT_THAT((*answer)->status, IsOk());
}

TEST_F(SyncStepsTest, RefusesASecondContributionOfARank) {
  Waits(1, Of(0, 0, Units(0, 2)));
  Contribution second = Of(0, 0, Units(2, 4));
  second.seq = UpdateSeq{9};
  EXPECT_THAT(Offer(2, second),
              StatusIs(Code::kInvalidArgument, HasSubstr("has contributed to step 0")));
  Contribution other_step = Of(0, 1, Units(0, 4));
  other_step.seq = UpdateSeq{1};
  EXPECT_THAT(Offer(3, other_step), StatusIs(Code::kInvalidArgument));
}

TEST_F(SyncStepsTest, RefusesAnotherLearningRateWithinAStep) {
  Waits(1, Of(0, 0, Units(0, 4)));
  Contribution other = Of(1, 0, Units(0, 4));
  other.learning_rate = 0.5f;
  EXPECT_THAT(Offer(2, other), StatusIs(Code::kInvalidArgument, HasSubstr("learning rate")));
  other.step = 1;
  other.seq = UpdateSeq{2};
  Waits(3, other);
}

TEST_F(SyncStepsTest, RefusesAStepThatIsOverButToARankThatResumes) {
  Waits(1, Of(0, 0, Units(0, 4)));
  Waits(2, Of(1, 0, Units(0, 4)));
  Make();
  Contribution late = Of(1, 0, Units(0, 4));
  late.session = SessionId{200};
  EXPECT_THAT(Offer(3, late),
              StatusIs(Code::kFailedPrecondition, AllOf(HasSubstr("step 0 is over, step 1 is next"),
                                                        Not(HasSubstr("join again")))));
  late.resumes = true;
  const auto answer = Offer(4, late);
  ASSERT_THAT(answer, IsOk());
  EXPECT_TRUE(answer->has_value());
  late.rank = Rank{2};
  EXPECT_THAT(Offer(5, late), StatusIs(Code::kFailedPrecondition,
                                       HasSubstr("step 1 is next: join again (JoinSteps)")))
      << "of no member";
}

TEST_F(SyncStepsTest, RefusesRanksThatAreNoMembers) {
  EXPECT_THAT(Offer(1, Of(2, 0, Units(0, 4))),
              StatusIs(Code::kFailedPrecondition,
                       HasSubstr("rank 2 is no member of step 0: join again (JoinSteps)")));
  Contribution newer = Of(2, 0, Units(0, 4));
  newer.plan_version = PlanVersion{2};
  EXPECT_THAT(Offer(1, newer), StatusIs(Code::kUnavailable, Not(HasSubstr("join again"))))
      << "the node's plan is older";
}

TEST_F(SyncStepsTest, RefusesARequestAtOnceThatHasUnitsElsewhereOrFrozen) {
  steps_.Freeze(Units(3, 4));
  const auto answer = Offer(1, Of(0, 0, Units(0, 6)), Units(0, 1));
  ASSERT_THAT(answer, IsOk());
  ASSERT_TRUE(answer->has_value());
  EXPECT_THAT((*answer)->status, IsOk());
  EXPECT_EQ((*answer)->frozen, Units(3, 4));
  EXPECT_EQ((*answer)->moved, Units(4, 6));
  EXPECT_EQ((*answer)->again, Units(1, 3)) << "unit 0 had it before";
  EXPECT_THAT(steps_.waiting(), IsEmpty());
  Waits(2, Of(0, 0, Units(1, 3)));
  Waits(3, Of(1, 0, Units(0, 3)));
  const auto ready = steps_.Ready();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->units, Units(1, 3));
}

TEST_F(SyncStepsTest, AnswersWhatWaitsForAUnitThatFreezes) {
  Waits(1, Of(0, 0, Units(0, 2)));
  Waits(2, Of(0, 0, Units(1, 4)));
  Waits(3, Of(1, 0, Units(3, 4)));
  const auto answers = steps_.Freeze(Units(0, 1));
  ASSERT_THAT(TicketsOf(answers), ElementsAre(1, 2)) << "the second waits for what the first has";
  EXPECT_EQ(answers[0].frozen, Units(0, 1));
  EXPECT_EQ(answers[0].again, Units(1, 2));
  EXPECT_TRUE(answers[1].frozen.empty());
  EXPECT_EQ(answers[1].again, Units(1, 4));
  Waits(4, Of(0, 0, Units(1, 4)));
  EXPECT_THAT(Make(), ElementsAre(3));
}

TEST_F(SyncStepsTest, GoesOnWithAUnitWhereItsLastNodeStopped) {
  steps_.Add(Units(4, 5), 1);
  Waits(1, Of(0, 0, Units(0, 4)));
  Waits(2, Of(1, 0, Units(0, 4)));
  Make();
  Waits(3, Of(0, 1, Units(0, 5)));
  Waits(4, Of(1, 1, Units(0, 5)));
  EXPECT_THAT(Make(), ElementsAre(3, 4));
  steps_.Freeze(Units(0, 1));
  steps_.Remove(Units(0, 1));
  EXPECT_EQ(steps_.units(), Units(1, 5));
  EXPECT_EQ(steps_.first_unmade(), 2u);
}

TEST_F(SyncStepsTest, DropsWhatWaitsOfAClosedSession) {
  Waits(1, Of(0, 0, Units(0, 4)));
  const auto answers = steps_.Drop(SessionId{100});
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_THAT(answers[0].status, StatusIs(Code::kPermissionDenied));
  Contribution next = Of(0, 0, Units(0, 4));
  next.session = SessionId{200};
  Waits(2, next);
}

TEST_F(SyncStepsTest, ForgetsAStepThatWasNotWritten) {
  Waits(1, Of(0, 0, Units(0, 4)));
  Waits(2, Of(0, 0, Units(0, 4)));
  Waits(3, Of(1, 0, Units(0, 2)));
  const auto ready = steps_.Ready();
  ASSERT_TRUE(ready.has_value());
  const auto answers = steps_.Withdraw(*ready, absl::ResourceExhaustedError("the log is full"));
  EXPECT_THAT(TicketsOf(answers), ElementsAre(1, 2, 3));
  EXPECT_THAT(answers[0].status, StatusIs(Code::kResourceExhausted));
  EXPECT_EQ(steps_.first_unmade(), 0u);
}

TEST_F(SyncStepsTest, MakesNoStepWhileAChangeIsOpen) {
  Waits(1, Of(0, 0, Units(0, 4)));
  EXPECT_EQ(steps_.Lacking(), (SyncSteps::Lack{.step = 0, .ranks = {Rank{1}}}));
  const auto opened = Opened(
      plan_, {.kind = MemberChange::Kind::kClose, .step = 0, .ranks = {Rank{1}}}, PlanVersion{2});
  ASSERT_THAT(opened, IsOk());
  steps_.Follow(*opened);
  Waits(2, Of(1, 0, Units(0, 4)));
  EXPECT_FALSE(steps_.Ready().has_value());
  const auto answers = steps_.Follow(Decided(*opened, 0, PlanVersion{3}));
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].ticket, 2u);
  EXPECT_THAT(answers[0].status,
              StatusIs(Code::kFailedPrecondition, HasSubstr("join again (JoinSteps)")));
  EXPECT_THAT(Make(), ElementsAre(1));
  EXPECT_THAT(steps_.Follow(*opened), IsEmpty()) << "an older plan";
  EXPECT_EQ(steps_.plan().version, PlanVersion{3});
}

TEST_F(SyncStepsTest, CountsAnOptionalRankWhereItHasContributed) {
  plan_.version = PlanVersion{2};
  plan_.members[0] = {.first_step = 0, .ranks = {Rank{0}}, .optional = {Rank{1}}};
  Waits(1, Of(1, 0, Units(2, 4)));
  steps_.Follow(plan_);
  Waits(2, Of(0, 0, Units(0, 4)));
  const auto ready = steps_.Ready();
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->units, Units(0, 4));
  ASSERT_THAT(ready->parts, SizeIs(2));
  EXPECT_EQ(ready->parts[1].units, Units(2, 4));
}

TEST_F(SyncStepsTest, RefusesStepsThatFailUntilRanksJoin) {
  plan_.version = PlanVersion{2};
  plan_.members = {{.first_step = 0}};
  steps_.Follow(plan_);
  EXPECT_THAT(
      Offer(1, Of(0, 1, Units(0, 4))),
      StatusIs(Code::kFailedPrecondition, HasSubstr("step 1 has failed: join again (JoinSteps)")));
}

TEST_F(SyncStepsTest, LeavesOutStepsThatFail) {
  Waits(1, Of(0, 0, Units(0, 4)));
  plan_.version = PlanVersion{2};
  plan_.members = {{.first_step = 0}, {.first_step = 5, .ranks = {Rank{0}}}};
  const auto answers = steps_.Follow(plan_);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_THAT(answers[0].status,
              StatusIs(Code::kFailedPrecondition, HasSubstr("join again (JoinSteps)")));
  Waits(2, Of(0, 5, Units(0, 4)));
  EXPECT_THAT(Make(), ElementsAre(2));
}

TEST_F(SyncStepsTest, KnowsTheStepsOfEarlierProcesses) {
  steps_.NoteMade(4);
  steps_.NoteMade(2);
  EXPECT_EQ(steps_.first_unmade(), 5u);
}

}  // namespace
}  // namespace embla
