// A coordinator whose store was restored from an older copy: what nodes know beyond it is neither
// lost nor given another meaning.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"
#include "server/coordinator/unit_records.h"
#include "server/migration/copy_orders.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Code = absl::StatusCode;
using State = UnitStanding::State;

UnitStandings Owned(TableId table, std::uint32_t begin, std::uint32_t end, std::uint64_t epoch = 1,
                    std::uint64_t last_move = 0, std::uint32_t device = 0) {
  return {.table = table,
          .column_granule = 0,
          .granule_begin = begin,
          .granule_end = end,
          .standing = {.state = State::kOwned,
                       .epoch = UnitEpoch{epoch},
                       .last_move = MoveId{last_move}},
          .device = device};
}

class CoordinatorRestore : public ::testing::Test {
 protected:
  CoordinatorRestore() {
    a_ = c_.Register("a");
    b_ = c_.Register("b");
    c_.CreateOn("old", {a_, b_});
  }

  void TakeCopy() { copy_ = *c_.store().List(""); }
  // The coordinator's machine is set back; nodes live on with the plan they had.
  void Restore() {
    seen_ = c_->GetPlan();
    c_.RestoreStore(copy_);
  }

  NodeRegistration Seen(const std::string& name, std::vector<UnitStandings> units = {}) const {
    NodeRegistration registration = CoordinatorHarness::Registration(name);
    registration.installed = seen_;
    registration.units = std::move(units);
    return registration;
  }
  absl::Status Back(const std::string& name, std::vector<UnitStandings> units = {}) {
    return c_->RegisterNode(Seen(name, std::move(units)), c_.now()).status();
  }
  std::vector<std::string> Causes() {
    std::vector<std::string> causes;
    const absl::StatusOr<std::vector<PlanChange>> changes = ReadHistory(c_.store(), 0);
    EXPECT_THAT(changes, IsOk());
    for (const PlanChange& change : *changes) causes.push_back(change.cause);
    return causes;
  }
  UnitRecord RecordOf(const std::string& table, std::uint32_t granule) {
    const TableId id = c_->GetPlan()->FindTable(table)->spec.id;
    const auto stored = ReadUnit(c_.store(), *c_->GetPlan(), {id, granule, 0});
    EXPECT_THAT(stored, IsOk());
    return stored->record;
  }
  NodeId InPlan(const std::string& table, std::uint32_t granule) {
    const TableId id = c_->GetPlan()->FindTable(table)->spec.id;
    return OwnerInPlan(*c_->GetPlan(), {id, granule, 0})->node;
  }
  std::vector<UnitOrder> OrdersTo(NodeId node) {
    std::vector<UnitOrder> orders;
    for (const Effect& effect : c_->TakeEffects()) {
      const auto* const sent = std::get_if<SendOrders>(&effect);
      if (sent == nullptr || sent->node != node) continue;
      orders.insert(orders.end(), sent->orders.begin(), sent->orders.end());
    }
    return orders;
  }

  CoordinatorHarness c_;
  NodeId a_{};
  NodeId b_{};
  std::vector<StateEntry> copy_;
  PlanPtr seen_;
};

TEST_F(CoordinatorRestore, ANodeThatHasSeenMoreMakesTheCoordinatorJumpBeyondIt) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  Restore();
  EXPECT_EQ(c_->Status().generation, 1u);
  ASSERT_THAT(Back("a"), IsOk());
  EXPECT_GT(c_->GetPlan()->version(), seen_->version());
  EXPECT_EQ(c_->Status().generation, 2u);
  EXPECT_THAT(Causes(), ::testing::Contains(HasSubstr("the state has gone back in time")));
}

TEST_F(CoordinatorRestore, ANodeThatHasSeenNothingNewerChangesNothing) {
  TakeCopy();
  Restore();
  const PlanVersion before = c_->GetPlan()->version();
  ASSERT_THAT(Back("a"), IsOk());
  ASSERT_THAT(Back("b"), IsOk());
  EXPECT_EQ(c_->GetPlan()->version(), before);
  EXPECT_EQ(c_->Status().generation, 1u);
}

TEST_F(CoordinatorRestore, ATableMadeAfterTheCopyIsKeptAsideAndItsIdIsNeverGivenAgain) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  const TableId young = c_->GetPlan()->FindTable("young")->spec.id;
  Restore();
  // The operator asks at once: no node has come back.
  ASSERT_THAT(c_.Create("other"), IsOk());
  EXPECT_EQ(c_->GetPlan()->FindTable("other"), nullptr);
  ASSERT_THAT(Back("a"), IsOk());
  ASSERT_THAT(Back("b"), IsOk());
  c_->Tick(c_.now());
  ASSERT_NE(c_->GetPlan()->FindTable("other"), nullptr);
  EXPECT_GT(c_->GetPlan()->FindTable("other")->spec.id, young);
  EXPECT_EQ(c_->GetPlan()->FindTable("young"), nullptr);
  ASSERT_NE(c_->GetPlan()->FindTable(young), nullptr);
  EXPECT_TRUE(c_->GetPlan()->FindTable(young)->aside);
  EXPECT_EQ(c_->Status().tables_aside, 1u);
  EXPECT_THAT(c_->SetTable("young", {{"learning_rate", "1"}}, c_.now()),
              StatusIs(Code::kFailedPrecondition, HasSubstr("embla table adopt young")));
}

// A plan from before the table was looked at would make its node free it.
TEST_F(CoordinatorRestore, ARegistrationPublishesOnePlanWhichHasAllThatTheNodeHas) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  c_.CreateOn("younger", {a_, b_});
  Restore();
  ASSERT_THAT(Back("a"), IsOk());
  std::vector<PlanPtr> published;
  for (const Effect& effect : c_->TakeEffects()) {
    if (const auto* publish = std::get_if<PublishPlan>(&effect)) published.push_back(publish->plan);
  }
  ASSERT_THAT(published, SizeIs(1));
  EXPECT_EQ(published.front(), c_->GetPlan());
  EXPECT_NE(published.front()->FindAside("young"), nullptr);
  EXPECT_NE(published.front()->FindAside("younger"), nullptr);
}

TEST_F(CoordinatorRestore, ATableThatIsKeptAsideIsAdoptedByItsName) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  const TablePlan young = *c_->GetPlan()->FindTable("young");
  Restore();
  ASSERT_THAT(Back("a"), IsOk());
  ASSERT_THAT(Back("b"), IsOk());
  ASSERT_THAT(c_->AdoptTable("young", {}, c_.now()), IsOk());
  ASSERT_NE(c_->GetPlan()->FindTable("young"), nullptr);
  EXPECT_EQ(*c_->GetPlan()->FindTable("young"), young);
  EXPECT_THAT(c_->AdoptTable("young", {}, c_.now()), StatusIs(Code::kNotFound));
}

TEST_F(CoordinatorRestore, ATableThatIsKeptAsideIsNotAdoptedBesideAnotherOfItsName) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  const TableId young = c_->GetPlan()->FindTable("young")->spec.id;
  Restore();
  ASSERT_THAT(Back("a"), IsOk());
  ASSERT_THAT(Back("b"), IsOk());
  ASSERT_THAT(c_->StartCreateTable(CoordinatorHarness::Spec("young"),
                                   {.sharding = ShardingType::kRowWise}, {}, c_.now()),
              IsOk());
  EXPECT_THAT(c_->AdoptTable("young", {}, c_.now()),
              StatusIs(Code::kAlreadyExists, HasSubstr("drop it first")));
  EXPECT_THAT(c_->DropAside("", young, c_.now()), IsOk());
  EXPECT_EQ(c_->GetPlan()->FindTable(young), nullptr);
  EXPECT_NE(c_->GetPlan()->FindTable("young"), nullptr);
}

TEST_F(CoordinatorRestore, ATableThatWasDroppedAsideDoesNotComeBackWithANodeThatWasAway) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  Restore();
  ASSERT_THAT(Back("a"), IsOk());
  ASSERT_THAT(Back("b"), IsOk());
  seen_ = c_->GetPlan();
  ASSERT_THAT(c_->DropAside("young", {}, c_.now()), IsOk());
  c_.Restart();
  ASSERT_THAT(Back("a"), IsOk());
  EXPECT_EQ(c_->Status().tables_aside, 0u);
}

TEST_F(CoordinatorRestore, ATableDroppedAfterTheCopyDoesNotComeBack) {
  TakeCopy();
  ASSERT_THAT(c_->DropTable("old", c_.now()), IsOk());
  Restore();
  ASSERT_NE(c_->GetPlan()->FindTable("old"), nullptr);
  ASSERT_THAT(Back("a"), IsOk());
  EXPECT_EQ(c_->GetPlan()->FindTable("old"), nullptr);
  EXPECT_THAT(Causes(), ::testing::Contains(HasSubstr("table old was dropped before plan")));
}

TEST_F(CoordinatorRestore, TheNewestOfNodesCounts) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  Restore();
  const PlanPtr newest = seen_;
  seen_ = std::make_shared<const Plan>(*c_->GetPlan());  // `a` has missed it.
  ASSERT_THAT(Back("a"), IsOk());
  EXPECT_EQ(c_->Status().generation, 1u);
  seen_ = newest;
  ASSERT_THAT(Back("b"), IsOk());
  EXPECT_EQ(c_->Status().tables_aside, 1u);
  EXPECT_EQ(c_->Status().generation, 2u);
}

TEST_F(CoordinatorRestore, OptionsSetAfterTheCopyStay) {
  TakeCopy();
  ASSERT_THAT(c_->SetTable("old", {{"learning_rate", "0.5"}}, c_.now()), IsOk());
  Restore();
  ASSERT_THAT(Back("a"), IsOk());
  EXPECT_EQ(c_->GetPlan()->FindTable("old")->spec.optimizer.learning_rate, 0.5f);
}

TEST_F(CoordinatorRestore, ANodeThatJoinedAfterTheCopyHasItsIdAgain) {
  TakeCopy();
  const NodeId late = c_.Register("late");
  Restore();
  EXPECT_THAT(c_->RegisterNode(CoordinatorHarness::Registration("stranger"), c_.now()),
              StatusIs(Code::kUnavailable, HasSubstr("a, b")));
  ASSERT_THAT(Back("late"), IsOk());
  EXPECT_EQ(c_->GetPlan()->FindNode("late")->id, late);
  ASSERT_THAT(Back("a"), IsOk());
  ASSERT_THAT(Back("b"), IsOk());
  EXPECT_GT(c_.Register("stranger"), late);
}

TEST_F(CoordinatorRestore, NothingIsChangedBeforeAllNodesWereHeard) {
  TakeCopy();
  Restore();
  ASSERT_THAT(Back("a"), IsOk());
  EXPECT_THAT(c_->DropTable("old", c_.now()), StatusIs(Code::kUnavailable, HasSubstr(": b;")));
  EXPECT_THAT(c_->StartJob({.goal = DrainGoal{"a"}}, c_.now()), StatusIs(Code::kUnavailable));
  ASSERT_THAT(Back("b"), IsOk());
  EXPECT_THAT(c_->DropTable("old", c_.now()), IsOk());
}

TEST_F(CoordinatorRestore, NumbersThatANodeThatIsDownMayHaveSeenAreSkipped) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  const TableId young = c_->GetPlan()->FindTable("young")->spec.id;
  Restore();
  const PlanPtr newest = seen_;
  seen_ = std::make_shared<const Plan>(*c_->GetPlan());
  ASSERT_THAT(Back("a"), IsOk());
  c_.Advance(absl::Seconds(6));
  ASSERT_THAT(c_->Heartbeat(a_, 1, {}, c_.now()), IsOk());
  ASSERT_THAT(c_.Create("other"), IsOk());
  ASSERT_NE(c_->GetPlan()->FindTable("other"), nullptr);
  EXPECT_GT(c_->GetPlan()->FindTable("other")->spec.id, young);
  EXPECT_EQ(c_->Status().generation, 1u);
  seen_ = newest;  // `b` was ahead all the time.
  ASSERT_THAT(Back("b"), IsOk());
  ASSERT_NE(c_->GetPlan()->FindTable(young), nullptr);
  EXPECT_TRUE(c_->GetPlan()->FindTable(young)->aside);
  EXPECT_NE(c_->GetPlan()->FindTable("other"), nullptr);
}

TEST_F(CoordinatorRestore, ATableThatIsAnotherOneOnTheNodeIsRefused) {
  const PlanPtr plan = c_->GetPlan();
  std::vector<TablePlan> tables(plan->tables().begin(), plan->tables().end());
  tables.front().spec.name = "another";
  seen_ = std::make_shared<const Plan>(plan->version(), plan->cluster_id(), plan->nodes(), tables);
  c_.Restart();
  EXPECT_THAT(Back("a"), StatusIs(Code::kDataLoss, HasSubstr("another")));
}

TEST_F(CoordinatorRestore, ACreationThatWasPendingInTheCopyIsNotRolledBack) {
  ASSERT_THAT(c_.Create("young"), IsOk());
  TakeCopy();
  ASSERT_THAT(c_.Install(a_), IsOk());
  ASSERT_THAT(c_.Install(b_), IsOk());
  c_.Advance(absl::Minutes(10));
  Restore();
  ASSERT_THAT(Back("a"), IsOk());
  ASSERT_THAT(Back("b"), IsOk());
  c_->Tick(c_.now());
  ASSERT_THAT(c_.Install(a_), IsOk());
  ASSERT_THAT(c_.Install(b_), IsOk());
  EXPECT_NE(c_->GetPlan()->FindTable("young"), nullptr);
}

TEST_F(CoordinatorRestore, GapsAndHistoryDoNotGrowForEver) {
  TakeCopy();
  c_.CreateOn("young", {a_, b_});
  const TableId young = c_->GetPlan()->FindTable("young")->spec.id;
  Restore();
  const PlanPtr newest = seen_;
  for (std::size_t start = 0; start < 2 * kGapsMax; ++start) {
    c_.Restart();
    seen_ = c_->GetPlan();
    ASSERT_THAT(Back("a"), IsOk());
    c_.Advance(absl::Seconds(6));
    ASSERT_THAT(c_->Heartbeat(a_, 1, {}, c_.now()), IsOk());
    ASSERT_THAT(c_->SetTable("old", {{"learning_rate", "0.5"}}, c_.now()), IsOk());
  }
  const StateEntry head = *c_.store().Get("plan/head");
  EXPECT_LT(head.value.size(), 200 * kGapsMax);
  EXPECT_LE(ReadHistory(c_.store(), 0)->size(), 2 * kHistoryMax);
  seen_ = newest;
  ASSERT_THAT(Back("b"), IsOk());
  ASSERT_NE(c_->GetPlan()->FindTable(young), nullptr);
  EXPECT_TRUE(c_->GetPlan()->FindTable(young)->aside);
}

using CoordinatorUnits = CoordinatorRestore;

// Rows 0-499 are node a's and rows 500-999 node b's, on two devices each.
TEST_F(CoordinatorUnits, TheHigherEpochWinsAndTheRecordIsRaised) {
  const TableId id = c_->GetPlan()->FindTable("old")->spec.id;
  c_.Restart();
  seen_ = c_->GetPlan();
  ASSERT_EQ(InPlan("old", 10), a_);
  ASSERT_THAT(Back("a", {Owned(id, 0, 10), Owned(id, 11, 500)}), IsOk());
  ASSERT_THAT(Back("b", {Owned(id, 500, 1000), Owned(id, 10, 11, 3, 5, 1)}), IsOk());
  const UnitRecord record = RecordOf("old", 10);
  EXPECT_EQ(record.owner, b_);
  EXPECT_EQ(record.epoch, UnitEpoch{3});
  EXPECT_EQ(record.move, MoveId{5});
  EXPECT_EQ(record.phase, MovePhase::kNone);
  EXPECT_EQ(InPlan("old", 10), b_);
  EXPECT_EQ(c_->Status().generation, 2u);
  EXPECT_EQ(RecordOf("old", 11).owner, a_);
}

TEST_F(CoordinatorUnits, TheOtherOwnerIsToldUntilItHasLetGo) {
  const TableId id = c_->GetPlan()->FindTable("old")->spec.id;
  c_.Restart();
  seen_ = c_->GetPlan();
  ASSERT_THAT(Back("a", {Owned(id, 0, 500)}), IsOk());
  ASSERT_THAT(Back("b", {Owned(id, 500, 1000), Owned(id, 10, 11, 2, 1)}), IsOk());
  const UnitId unit{id, 10, 0};
  for (int i = 0; i < 2; ++i) {
    c_.Advance(absl::Seconds(1));
    c_->Tick(c_.now());
    const std::vector<UnitOrder> orders = OrdersTo(a_);
    ASSERT_THAT(orders, SizeIs(1));
    EXPECT_EQ(orders[0].unit, unit);
    EXPECT_TRUE(orders[0].settles);
    EXPECT_EQ(orders[0].record.owner, b_);
    EXPECT_EQ(orders[0].record.epoch, UnitEpoch{2});
  }
  const UnitReport settled[] = {{.unit = unit, .kind = UnitReport::Kind::kSettled}};
  c_->OnMoveReports(a_, settled, c_.now());
  c_.Advance(absl::Seconds(1));
  c_->Tick(c_.now());
  EXPECT_THAT(OrdersTo(a_), SizeIs(0));
}

// A node restored from a copy older than a move: the store is right.
TEST_F(CoordinatorUnits, ANodeWhoseClaimIsOlderThanTheRecordIsTold) {
  const TableId id = c_->GetPlan()->FindTable("old")->spec.id;
  c_.Restart();
  seen_ = c_->GetPlan();
  ASSERT_THAT(Back("b", {Owned(id, 500, 1000), Owned(id, 10, 11, 2, 1)}), IsOk());
  ASSERT_THAT(Back("a", {Owned(id, 0, 500)}), IsOk());
  EXPECT_EQ(RecordOf("old", 10).owner, b_);
  c_->Tick(c_.now());
  const std::vector<UnitOrder> orders = OrdersTo(a_);
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_TRUE(orders[0].settles);
}

// Not as a question about a copy: nodes answer those elsewhere.
TEST_F(CoordinatorUnits, ANodeIsToldToGiveUpWhatItKeepsAside) {
  static_cast<void>(c_->TakeEffects());
  ASSERT_THAT(c_->DropLeftovers("old", "a"), IsOk());
  const std::vector<UnitOrder> orders = OrdersTo(a_);
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_TRUE(orders[0].drops_aside);
  EXPECT_FALSE(IsCopy(orders[0].unit));
  EXPECT_THAT(c_->DropLeftovers("new", "a"), StatusIs(Code::kNotFound));
  EXPECT_THAT(c_->DropLeftovers("old", "c"), StatusIs(Code::kNotFound));
}

// Its source alone can say that it will not take place.
TEST_F(CoordinatorUnits, AForgottenMoveIsOpenUntilItsSourceHasEndedIt) {
  const TableId id = c_->GetPlan()->FindTable("old")->spec.id;
  c_.Restart();
  seen_ = c_->GetPlan();
  ASSERT_THAT(Back("a", {Owned(id, 0, 10), Owned(id, 10, 11, 1, 4)}), IsOk());
  EXPECT_EQ(RecordOf("old", 10).move, MoveId{0}) << "node b may have it";
  ASSERT_THAT(Back("b", {Owned(id, 500, 1000)}), IsOk());
  EXPECT_EQ(RecordOf("old", 10).move, MoveId{4});
  EXPECT_EQ(RecordOf("old", 10).phase, MovePhase::kOpen);
  c_->Tick(c_.now());
  const std::vector<UnitOrder> orders = OrdersTo(a_);
  ASSERT_FALSE(orders.empty());
  EXPECT_TRUE(orders.back().cancels);
  const UnitId unit{id, 10, 0};
  const UnitReport aborted[] = {
      {.unit = unit, .kind = UnitReport::Kind::kAborted, .move = MoveId{4}}};
  c_->OnMoveReports(b_, aborted, c_.now());
  EXPECT_EQ(RecordOf("old", 10).phase, MovePhase::kOpen) << "that was not its source";
  c_->OnMoveReports(a_, aborted, c_.now());
  const UnitRecord record = RecordOf("old", 10);
  EXPECT_EQ(record.owner, a_);
  EXPECT_EQ(record.epoch, UnitEpoch{1});
  EXPECT_EQ(record.phase, MovePhase::kAborted);
}

// Its node has brought it to another device.
TEST_F(CoordinatorUnits, AForgottenMoveWithinANodeIsWrittenDown) {
  const TableId id = c_->GetPlan()->FindTable("old")->spec.id;
  c_.Restart();
  seen_ = c_->GetPlan();
  UnitStandings there = Owned(id, 10, 11, 1, 4);
  there.device = 1;
  ASSERT_THAT(Back("a", {Owned(id, 0, 10), there}), IsOk());
  ASSERT_THAT(Back("b", {Owned(id, 500, 1000)}), IsOk());
  const UnitReport moved[] = {
      {.unit = {id, 10, 0}, .kind = UnitReport::Kind::kHandedOver, .move = MoveId{4}}};
  c_->OnMoveReports(a_, moved, c_.now());
  EXPECT_EQ(RecordOf("old", 10).owner, a_);
  EXPECT_EQ(RecordOf("old", 10).epoch, UnitEpoch{1});
  EXPECT_EQ(RecordOf("old", 10).phase, MovePhase::kNone);
  EXPECT_EQ(OwnerInPlan(*c_->GetPlan(), {id, 10, 0})->index, 1u);
}

TEST_F(CoordinatorUnits, AForgottenMoveMayEndAsAHandOver) {
  const TableId id = c_->GetPlan()->FindTable("old")->spec.id;
  c_.Restart();
  seen_ = c_->GetPlan();
  UnitStandings to = Owned(id, 10, 11);
  to.standing = {
      .state = State::kComing, .epoch = UnitEpoch{1}, .last_move = MoveId{4}, .other = a_};
  ASSERT_THAT(Back("a", {Owned(id, 10, 11, 1, 3)}), IsOk());
  ASSERT_THAT(Back("b", {to}), IsOk());
  const UnitReport moved[] = {
      {.unit = {id, 10, 0}, .kind = UnitReport::Kind::kHandedOver, .move = MoveId{4}}};
  c_->OnMoveReports(b_, moved, c_.now());
  EXPECT_EQ(RecordOf("old", 10).owner, b_);
  EXPECT_EQ(RecordOf("old", 10).epoch, UnitEpoch{2});
  EXPECT_EQ(InPlan("old", 10), b_);
}

TEST_F(CoordinatorUnits, AForgottenMoveWhoseSourceHasLetGoHasTakenPlace) {
  const TableId id = c_->GetPlan()->FindTable("old")->spec.id;
  c_.Restart();
  seen_ = c_->GetPlan();
  UnitStandings from = Owned(id, 10, 11);
  from.standing = {
      .state = State::kHandedOver, .epoch = UnitEpoch{2}, .last_move = MoveId{4}, .other = b_};
  UnitStandings to = Owned(id, 10, 11);
  to.standing = {
      .state = State::kComing, .epoch = UnitEpoch{1}, .last_move = MoveId{4}, .other = a_};
  ASSERT_THAT(Back("a", {from}), IsOk());
  ASSERT_THAT(Back("b", {to}), IsOk());
  const UnitRecord record = RecordOf("old", 10);
  EXPECT_EQ(record.owner, b_);
  EXPECT_EQ(record.epoch, UnitEpoch{2});
  EXPECT_EQ(record.committed, MoveId{4});
  EXPECT_EQ(record.phase, MovePhase::kNone);
  EXPECT_EQ(InPlan("old", 10), b_);
}

}  // namespace
}  // namespace embla
