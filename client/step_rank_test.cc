#include "client/step_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace embla::client {
namespace {

using Kind = MemberChange::Kind;

constexpr Rank k0{0}, k1{1}, k2{2};

StepPlan PlanOf(std::vector<StepMembers> members) { return {.members = std::move(members)}; }

TEST(MemberSince, IsTheFirstOfTheEntriesWithoutABreak) {
  const StepPlan plan = PlanOf({{.first_step = 0, .ranks = {k0, k1}},
                                {.first_step = 5, .ranks = {k1}},
                                {.first_step = 8, .ranks = {k0, k1}},
                                {.first_step = 9, .ranks = {k0, k1, k2}}});
  EXPECT_EQ(MemberSince(plan, k0), 8u);
  EXPECT_EQ(MemberSince(plan, k1), 0u);
  EXPECT_EQ(MemberSince(plan, k2), 9u);
  EXPECT_EQ(MemberSince(plan, Rank{3}), std::nullopt);
  EXPECT_EQ(MemberSince(PlanOf({}), k0), std::nullopt);
}

TEST(MemberSince, IsNoneForARankThatWasClosedOrIsOptional) {
  EXPECT_EQ(
      MemberSince(PlanOf({{.first_step = 0, .ranks = {k0, k1}}, {.first_step = 5, .ranks = {k1}}}),
                  k0),
      std::nullopt);
  EXPECT_EQ(MemberSince(PlanOf({{.first_step = 0, .ranks = {k1}, .optional = {k0}}}), k0),
            std::nullopt);
}

TEST(MemberSince, IsNoneForARankThatIsBeingClosed) {
  StepPlan plan = PlanOf({{.first_step = 0, .ranks = {k0, k1}}});
  plan.open = {.number = 2, .kind = Kind::kClose, .step = 3, .ranks = {k1}};
  EXPECT_EQ(MemberSince(plan, k0), 0u);
  EXPECT_EQ(MemberSince(plan, k1), std::nullopt);
  plan.open = {.number = 2, .kind = Kind::kJoin, .step = 3, .ranks = {k2}};
  EXPECT_EQ(MemberSince(plan, k1), 0u);
}

TEST(DescribeMembers, NamesWhoIsMissing) {
  EXPECT_EQ(DescribeMembers(PlanOf({{.first_step = 0, .ranks = {k1}}}), 3),
            "members are ranks 1; missing are 0, 2 of 3");
  EXPECT_EQ(DescribeMembers(PlanOf({}), 2), "it has no members; missing are 0, 1 of 2");
}

TEST(StepRankResumes, InTheFirstStepsOfASessionThatTookOver) {
  StepRank rank;
  EXPECT_FALSE(rank.Resumes(TableId{1}, 70));
  rank.SetTakenOver();
  EXPECT_TRUE(rank.Resumes(TableId{1}, 70));
  EXPECT_TRUE(rank.Resumes(TableId{1}, 325));
  EXPECT_FALSE(rank.Resumes(TableId{1}, 326));
  EXPECT_TRUE(rank.Resumes(TableId{2}, 326));
}

}  // namespace
}  // namespace embla::client
