#include "server/migration/record_fold.h"

#include "gtest/gtest.h"

namespace embla {
namespace {

constexpr UnitId kUnit{TableId{1}, 3, 0};
constexpr PlanVersion kPlan{7};

// A record of one session that has applied `seq`, and everything below `floor`.
UnitWindows Applied(std::uint64_t session, std::uint64_t seq, std::uint64_t floor = 1) {
  UnitWindows windows;
  windows.Record(SessionId{session}, UpdateSeq{seq}, UpdateSeq{floor});
  return windows;
}

RecordFold::IsOver OverBelow(std::uint64_t seq) {
  return [seq](SessionId, UpdateSeq asked) { return ToInt(asked) < seq; };
}

TEST(RecordFoldJoin, WaitsForWhatRestAndUnitHaveApplied) {
  RecordFold fold;
  fold.Begin(kPlan, Applied(1, 5));
  fold.Note(kUnit, Applied(1, 9));
  fold.Look(OverBelow(9));
  EXPECT_FALSE(fold.MayJoin(kUnit));
  fold.Look(OverBelow(10));
  ASSERT_TRUE(fold.MayJoin(kUnit));
  fold.Join(kUnit);
  EXPECT_EQ(fold.folded(), kPlan);
  EXPECT_FALSE(fold.is_waiting());
}

TEST(RecordFoldJoin, TakesNoUnitThatWasNotNoted) {
  RecordFold fold;
  fold.Begin(kPlan, UnitWindows());
  fold.Look(OverBelow(1));
  EXPECT_FALSE(fold.MayJoin(kUnit));
  fold.Note(kUnit, UnitWindows());
  EXPECT_FALSE(fold.MayJoin(kUnit));
  fold.Look(OverBelow(1));
  EXPECT_TRUE(fold.MayJoin(kUnit));
}

TEST(RecordFoldAdmit, AnOlderPlanEndsTheWait) {
  RecordFold fold;
  fold.Begin(kPlan, UnitWindows());
  fold.Note(kUnit, UnitWindows());
  EXPECT_TRUE(fold.Admit(kPlan, kPlan));
  EXPECT_TRUE(fold.is_waiting());
  EXPECT_TRUE(fold.Admit(PlanVersion{6}, kPlan));
  EXPECT_FALSE(fold.is_waiting());
  fold.Look(OverBelow(1));
  EXPECT_FALSE(fold.MayJoin(kUnit));
}

TEST(RecordFoldAdmit, AnOlderPlanTakesWhatHasJoinedApart) {
  RecordFold fold;
  fold.Restore(kPlan);
  EXPECT_TRUE(fold.Admit(kPlan, kPlan));
  EXPECT_FALSE(fold.asks_apart());
  EXPECT_FALSE(fold.Admit(PlanVersion{}, kPlan));
  EXPECT_TRUE(fold.asks_apart());
  fold.TakenApart();
  EXPECT_TRUE(fold.Admit(PlanVersion{}, kPlan));
}

TEST(RecordFoldAdmit, APlanFarAheadTakesWhatHasJoinedApart) {
  RecordFold fold;
  fold.Restore(kPlan);
  const PlanVersion most{ToInt(kPlan) + RecordFold::kPlansAheadMax};
  EXPECT_TRUE(fold.Admit(most, kPlan));
  EXPECT_FALSE(fold.Admit(PlanVersion{ToInt(most) + 1}, kPlan));
  EXPECT_TRUE(fold.Admit(PlanVersion{ToInt(most) + 1}, most));
}

}  // namespace
}  // namespace embla
