#include <string>
#include <variant>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDirectory[] = "000102030405060708090a0b0c0d0e0f";
constexpr char kAnother[] = "ff0102030405060708090a0b0c0d0e0f";

// A cluster of nodes with data directories; nothing that is lost is accepted unless a test says so.
class DirectoriesTest : public ::testing::Test {
 protected:
  // The process `process` of the node's directory, which is its boot_id, too.
  NodeRegistration Opened(const std::string& name, std::uint64_t process,
                          const std::string& directory = kDirectory) {
    NodeRegistration registration = CoordinatorHarness::Registration(name, process);
    registration.accept_loss = false;
    registration.past.directory_id = directory;
    registration.past.process = process;
    registration.past.log_position = 1000;
    registration.past.plan_version = coordinator_->GetPlan()->version();
    return registration;
  }
  // A process without a directory.
  static NodeRegistration InMemory(const std::string& name, std::uint64_t boot_id) {
    NodeRegistration registration = CoordinatorHarness::Registration(name, boot_id);
    registration.accept_loss = false;
    return registration;
  }

  absl::StatusOr<NodeId> Register(const NodeRegistration& registration) {
    return coordinator_->RegisterNode(registration, coordinator_.now());
  }
  // A node with a directory and a table of 1000 rows; its process, number 1, has ended.
  void MakeNodeWithRows() {
    const absl::StatusOr<NodeId> node = Register(Opened("n0", 1));
    ASSERT_THAT(node, IsOk());
    coordinator_.CreateOn("clicks", {*node});
    HeartbeatInfo info;
    info.plan_version = coordinator_->GetPlan()->version();
    info.log_position = 2000;
    ASSERT_THAT(coordinator_->Heartbeat(*node, 1, info, coordinator_.now()), IsOk());
    coordinator_->NodeDisconnected(*node, 1, coordinator_.now());
  }

  CoordinatorHarness coordinator_;
};

TEST_F(DirectoriesTest, ANodeComesBackWithItsOwnDirectory) {
  MakeNodeWithRows();
  NodeRegistration next = Opened("n0", 2);
  next.past.log_position = 2000;
  EXPECT_THAT(Register(next), IsOk());
  EXPECT_EQ(coordinator_->Status().rows_lost, 0u);
}

TEST_F(DirectoriesTest, AnEmptyDirectoryInPlaceOfRowsIsRefusedAndNamesThem) {
  MakeNodeWithRows();
  EXPECT_THAT(Register(Opened("n0", 1, kAnother)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("clicks (1000 rows)"), HasSubstr("--accept-loss"))));
}

TEST_F(DirectoriesTest, AnEmptyDirectoryIsJudgedWhileTheNodeStillLives) {
  ASSERT_THAT(Register(Opened("n0", 1)), IsOk());
  coordinator_.CreateOn("clicks", {NodeId{1}});
  NodeRegistration second = Opened("n0", 9, kAnother);
  EXPECT_THAT(Register(second).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(DirectoriesTest, AcceptedLossLetsTheNodeInAndCountsTheRows) {
  MakeNodeWithRows();
  NodeRegistration empty = Opened("n0", 7, kAnother);
  empty.accept_loss = true;
  ASSERT_THAT(Register(empty), IsOk());
  EXPECT_EQ(coordinator_->Status().rows_lost, 1000u);
  coordinator_->NodeDisconnected(NodeId{1}, 7, coordinator_.now());
  EXPECT_THAT(Register(Opened("n0", 8, kAnother)), IsOk()) << "it is the node's directory now";
  EXPECT_THAT(Register(Opened("n0", 9)).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(DirectoriesTest, ACopyFromBeforeTheLastStartIsRefused) {
  MakeNodeWithRows();
  NodeRegistration restored = Opened("n0", 1);
  restored.boot_id = 55;
  restored.past.log_position = 2000;
  EXPECT_THAT(Register(restored).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("older copy")));
}

TEST_F(DirectoriesTest, ALogShorterThanItWasDurableIsRefusedAlsoAfterARestartOfTheCoordinator) {
  MakeNodeWithRows();
  coordinator_.Restart();
  NodeRegistration restored = Opened("n0", 2);
  restored.past.log_position = 1999;
  EXPECT_THAT(Register(restored).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1999")));
}

TEST_F(DirectoriesTest, APlanOlderThanItSaidToHaveIsRefused) {
  ASSERT_THAT(Register(Opened("n0", 1)), IsOk());
  coordinator_.CreateOn("clicks", {NodeId{1}});
  NodeRegistration restored = Opened("n0", 2);
  restored.past.plan_version = PlanVersion{1};
  coordinator_->NodeDisconnected(NodeId{1}, 1, coordinator_.now());
  EXPECT_THAT(Register(restored).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("older copy")));
}

TEST_F(DirectoriesTest, AnotherNodesDirectoryIsRefused) {
  MakeNodeWithRows();
  NodeRegistration other = Opened("n1", 2);
  other.past.node = NodeId{1};
  EXPECT_THAT(Register(other).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("belongs to node n0")));
}

TEST_F(DirectoriesTest, AProcessWithoutADirectoryDoesNotComeBackSilently) {
  ASSERT_THAT(Register(InMemory("n0", 1)), IsOk());
  coordinator_.CreateOn("clicks", {NodeId{1}});
  coordinator_->NodeDisconnected(NodeId{1}, 1, coordinator_.now());
  EXPECT_THAT(Register(InMemory("n0", 1)), IsOk()) << "the same process";
  coordinator_->NodeDisconnected(NodeId{1}, 1, coordinator_.now());
  EXPECT_THAT(Register(InMemory("n0", 2)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--data-dir")));
}

TEST_F(DirectoriesTest, ANodeWithoutRowsMayComeBackEmpty) {
  ASSERT_THAT(Register(InMemory("n0", 1)), IsOk());
  coordinator_->NodeDisconnected(NodeId{1}, 1, coordinator_.now());
  EXPECT_THAT(Register(Opened("n0", 2)), IsOk());
}

TEST_F(DirectoriesTest, CopiesThatOthersHaveAreNoLoss) {
  ASSERT_THAT(Register(InMemory("n0", 1)), IsOk());
  ASSERT_THAT(Register(InMemory("n1", 1)), IsOk());
  coordinator_.CreateOn("dense", {NodeId{1}, NodeId{2}}, {.sharding = ShardingType::kDataParallel});
  const TablePlan table = coordinator_->GetPlan()->tables().front();
  const NodeId primary = table.primary().front().device.node;
  const NodeId replica = primary == NodeId{1} ? NodeId{2} : NodeId{1};
  const auto name = [](NodeId node) { return node == NodeId{1} ? "n0" : "n1"; };
  coordinator_->NodeDisconnected(primary, 1, coordinator_.now());
  coordinator_->NodeDisconnected(replica, 1, coordinator_.now());
  EXPECT_THAT(Register(InMemory(name(replica), 2)), IsOk());
  EXPECT_THAT(Register(InMemory(name(primary), 2)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(DirectoriesTest, ALiveProcessKeepsItsAddress) {
  ASSERT_THAT(Register(Opened("n0", 1)), IsOk());
  NodeRegistration thief = Opened("n0", 1);
  thief.address = "thief:6666";
  EXPECT_THAT(Register(thief).status(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(coordinator_->GetPlan()->nodes().front().address, "n0:7000");
}

TEST_F(DirectoriesTest, AnAddressThatWasTakenOverGoesBack) {
  ASSERT_THAT(Register(Opened("n0", 1)), IsOk());
  coordinator_->NodeDisconnected(NodeId{1}, 1, coordinator_.now());
  NodeRegistration thief = Opened("n0", 2, kAnother);
  thief.address = "thief:6666";
  ASSERT_THAT(Register(thief), IsOk()) << "a node without rows";
  coordinator_->NodeDisconnected(NodeId{1}, 2, coordinator_.now());
  ASSERT_THAT(Register(Opened("n0", 3)), IsOk());
  EXPECT_EQ(coordinator_->GetPlan()->nodes().front().address, "n0:7000");
}

// Nodes n0 and n1 have rows: the coordinator's store and n0's directory are put back from copies,
// n1 has gone on.
class TestimonyTest : public DirectoriesTest {
 protected:
  void SetUp() override {
    ASSERT_THAT(Register(Opened("n0", 1)), IsOk());
    ASSERT_THAT(Register(Opened("n1", 1, kAnother)), IsOk());
    coordinator_.CreateOn("clicks", {NodeId{1}, NodeId{2}});
    copy_ = *coordinator_.store().List("");
    // n0 begins again, and goes on.
    coordinator_->NodeDisconnected(NodeId{1}, 1, coordinator_.now());
    ASSERT_THAT(Register(Opened("n0", 2)), IsOk());
    HeartbeatInfo info;
    info.plan_version = coordinator_->GetPlan()->version();
    info.log_position = 5000;
    ASSERT_THAT(coordinator_->Heartbeat(NodeId{1}, 2, info, coordinator_.now()), IsOk());
    ASSERT_THAT(coordinator_.Install(NodeId{2}), IsOk());
    coordinator_->TakeEffects();
    coordinator_.Advance(absl::Seconds(6));
    ASSERT_THAT(coordinator_->Heartbeat(NodeId{1}, 2, info, coordinator_.now()), IsOk());
    ASSERT_THAT(coordinator_.Install(NodeId{2}), IsOk());
    coordinator_->Tick(coordinator_.now());
    for (const Effect& effect : coordinator_->TakeEffects()) {
      const auto* const told = std::get_if<SendTestimony>(&effect);
      if (told != nullptr && told->node == NodeId{2}) testimony_ = told->testimony;
    }
    ASSERT_THAT(testimony_, HasSubstr("5000"));
  }
  // n1's process goes on, and says what it was told.
  NodeRegistration Witness() {
    NodeRegistration witness = Opened("n1", 1, kAnother);
    witness.testimony = testimony_;
    return witness;
  }
  // A process that begins with a copy that was made before n0's process 2.
  NodeRegistration OlderCopy() {
    NodeRegistration older = Opened("n0", 2);
    older.boot_id = 77;
    return older;
  }

  std::vector<StateEntry> copy_;
  std::string testimony_;
};

TEST_F(TestimonyTest, ANodeOlderThanAnotherOneKnowsIsRefusedByAnOlderCoordinator) {
  coordinator_.RestoreStore(copy_);
  // The node must wait until the others were asked.
  EXPECT_THAT(Register(OlderCopy()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("n1")));
  ASSERT_THAT(Register(Witness()), IsOk());
  EXPECT_THAT(Register(OlderCopy()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("older copy"), HasSubstr("clicks (500 rows)"))));
}

TEST_F(TestimonyTest, ANodeThatGotItsRowsLaterThanTheStoreKnowsIsRefusedToo) {
  std::erase_if(copy_,
                [](const StateEntry& entry) { return entry.key.starts_with("plan/tables/"); });
  coordinator_.RestoreStore(copy_);
  ASSERT_TRUE(RowsOnlyOn(*coordinator_->GetPlan(), NodeId{1}).empty());
  ASSERT_THAT(Register(OlderCopy()).status(), StatusIs(absl::StatusCode::kUnavailable));
  ASSERT_THAT(Register(Witness()), IsOk());
  EXPECT_THAT(Register(OlderCopy()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has forgotten, too")));
  NodeRegistration given_up = OlderCopy();
  given_up.accept_loss = true;
  EXPECT_THAT(Register(given_up), IsOk());
}

TEST_F(TestimonyTest, TheNodesOwnDirectoryIsTakenByAnOlderCoordinator) {
  coordinator_.RestoreStore(copy_);
  ASSERT_THAT(Register(Witness()), IsOk());
  NodeRegistration next = Opened("n0", 3);
  next.past.log_position = 5000;
  EXPECT_THAT(Register(next), IsOk());
  coordinator_->NodeDisconnected(NodeId{1}, 3, coordinator_.now());
  EXPECT_THAT(Register(OlderCopy()).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(TestimonyTest, ALogShorterThanAnotherNodeKnowsIsRefused) {
  coordinator_.RestoreStore(copy_);
  ASSERT_THAT(Register(Witness()), IsOk());
  NodeRegistration older = Opened("n0", 3);
  older.past.log_position = 4999;
  EXPECT_THAT(Register(older).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("4999")));
}

TEST_F(TestimonyTest, NobodyIsWaitedForLongerThanADeadNode) {
  coordinator_.RestoreStore(copy_);
  ASSERT_THAT(Register(OlderCopy()).status(), StatusIs(absl::StatusCode::kUnavailable));
  coordinator_.Advance(coordinator_->options().dead_after);
  EXPECT_THAT(Register(OlderCopy()), IsOk()) << "nobody knows better";
}

TEST_F(TestimonyTest, AProcessThatGoesOnIsNotKeptWaiting) {
  coordinator_.Restart();
  EXPECT_THAT(Register(Opened("n0", 2)), IsOk());
}

TEST_F(TestimonyTest, WhatWasToldBeforeTheStoresOwnTimeCountsForNothing) {
  // The store knows that n0's directory was replaced, as the operator allowed; n1 does not.
  NodeRegistration replaced = Opened("n0", 1, std::string(32, 'e'));
  replaced.accept_loss = true;
  coordinator_->NodeDisconnected(NodeId{1}, 2, coordinator_.now());
  ASSERT_THAT(Register(replaced), IsOk());
  coordinator_->NodeDisconnected(NodeId{1}, 1, coordinator_.now());
  coordinator_.Restart();
  ASSERT_THAT(Register(Witness()), IsOk());
  NodeRegistration next = Opened("n0", 2, std::string(32, 'e'));
  EXPECT_THAT(Register(next), IsOk());
}

TEST_F(TestimonyTest, OfANodeThatTheStoreDoesNotKnowNothingIsMadeUp) {
  absl::StatusOr<Testimony> told = ParseTestimony(testimony_);
  ASSERT_THAT(told, IsOk());
  told->records[NodeId{3}] = told->records[NodeId{1}];
  NodeRegistration witness = Witness();
  witness.testimony = FormatTestimony(*told);
  coordinator_->NodeDisconnected(NodeId{2}, 1, coordinator_.now());
  ASSERT_THAT(Register(witness), IsOk());
  const absl::StatusOr<std::vector<StateEntry>> records = coordinator_.store().List("directories/");
  ASSERT_THAT(records, IsOk());
  EXPECT_EQ(records->size(), 2u);
  const absl::StatusOr<NodeId> third = Register(Opened("n2", 1, std::string(32, 'e')));
  ASSERT_THAT(third, IsOk());
  EXPECT_EQ(*third, NodeId{3});
}

TEST_F(TestimonyTest, WhatCannotBeReadIsNoReasonToRefuseANode) {
  coordinator_.RestoreStore(copy_);
  for (const std::string& text :
       {std::string("{"), std::string(R"({"generation":1})"), std::string(100'000, 'x'),
        std::string(R"({"boot":1,"generation":9,"revision":9,"nodes":[{"node":0}]})")}) {
    NodeRegistration witness = Witness();
    witness.testimony = text;
    EXPECT_THAT(Register(witness), IsOk());
  }
}

TEST_F(TestimonyTest, EachNodeIsToldOfThreeOthers) {
  const absl::StatusOr<Testimony> told = ParseTestimony(testimony_);
  ASSERT_THAT(told, IsOk());
  EXPECT_EQ(told->records.size(), 1u);
  EXPECT_EQ(told->records.begin()->first, NodeId{1});
  EXPECT_EQ(FormatTestimony(*told), testimony_);
}

TEST_F(DirectoriesTest, PositionsThatGrowAreWrittenRarely) {
  MakeNodeWithRows();
  NodeRegistration next = Opened("n0", 2);
  next.past.log_position = 2000;
  ASSERT_THAT(Register(next), IsOk());
  const Revision before = coordinator_.store().revision();
  HeartbeatInfo info;
  for (std::uint64_t beat = 0; beat < 95; ++beat) {
    info.log_position = 3000 + beat;
    coordinator_.Advance(absl::Milliseconds(100));
    ASSERT_THAT(coordinator_->Heartbeat(NodeId{1}, 2, info, coordinator_.now()), IsOk());
    coordinator_->Tick(coordinator_.now());
  }
  EXPECT_LE(ToInt(coordinator_.store().revision()), ToInt(before) + 1);
}

}  // namespace
}  // namespace embla
