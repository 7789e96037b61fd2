// Sessions that are closed: told to all nodes, and counted as closed when all of them say so.
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CoordinatorClosing : public ::testing::Test {
 protected:
  absl::Status Refuse(NodeId node, std::uint64_t sessions) {
    HeartbeatInfo info;
    info.sessions_refused = sessions;
    return c_->Heartbeat(node, 1, info, c_.now());
  }
  // The last among the effects.
  ClosedSessionsPtr Published() {
    ClosedSessionsPtr closed;
    for (const Effect& effect : c_->TakeEffects()) {
      if (const auto* const sessions = std::get_if<PublishSessions>(&effect)) {
        closed = sessions->closed;
      }
    }
    return closed;
  }

  // As a client does it: the first answer says which session is to be closed.
  absl::StatusOr<SessionGrant> Connect(const std::string& trainer, std::uint64_t incarnation) {
    SessionRequest request{.trainer = trainer, .incarnation = incarnation};
    const absl::StatusOr<SessionGrant> grant = c_->OpenSession(request);
    if (!grant.ok() || grant->session != SessionId{}) return grant;
    request.replaces = grant->latest;
    return c_->OpenSession(request);
  }

  CoordinatorHarness c_;
};

TEST_F(CoordinatorClosing, TellsTheNodesAndSettlesWhenAllHaveSaidSo) {
  const NodeId nodes[] = {c_.Register("n0"), c_.Register("n1")};
  const SessionId session = c_->OpenSession({.client_name = "a"})->session;
  ASSERT_TRUE(c_->CloseSession(session).ok());
  const ClosedSessionsPtr told = Published();
  ASSERT_NE(told, nullptr);
  EXPECT_TRUE(told->refused.Has(session));
  EXPECT_FALSE(told->settled.Has(session));
  ASSERT_TRUE(Refuse(nodes[0], 1).ok());
  EXPECT_EQ(Published(), nullptr);
  ASSERT_TRUE(Refuse(nodes[1], 1).ok());
  const ClosedSessionsPtr settled = Published();
  ASSERT_NE(settled, nullptr);
  EXPECT_TRUE(settled->settled.Has(session));
}

TEST_F(CoordinatorClosing, SettlesWhatIsClosedMeanwhileInTheNextRound) {
  const NodeId node = c_.Register("n0");
  const SessionId first = c_->OpenSession({.client_name = "a"})->session;
  const SessionId second = c_->OpenSession({.client_name = "b"})->session;
  ASSERT_TRUE(c_->CloseSession(first).ok());
  ASSERT_TRUE(c_->CloseSession(second).ok());
  ASSERT_TRUE(Refuse(node, 1).ok());
  EXPECT_TRUE(c_->closed_sessions()->settled.Has(first));
  EXPECT_FALSE(c_->closed_sessions()->settled.Has(second));
  ASSERT_TRUE(Refuse(node, 2).ok());
  EXPECT_TRUE(c_->closed_sessions()->settled.Has(second));
}

TEST_F(CoordinatorClosing, OpensATrainersNextSessionWhenNobodyTakesUpdatesOfTheLastOne) {
  const NodeId node = c_.Register("n0");
  const SessionId first = Connect("t0", 1)->session;
  const absl::Status early = Connect("t0", 2).status();
  EXPECT_TRUE(absl::IsUnavailable(early)) << early;
  EXPECT_THAT(std::string(early.message()), HasSubstr("n0"));
  EXPECT_TRUE(Connect("t1", 1).ok());
  ASSERT_TRUE(Refuse(node, 1).ok());
  const auto second = Connect("t0", 2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(second->session, first);
  EXPECT_FALSE(c_->closed_sessions()->refused.Has(second->session));
}

TEST_F(CoordinatorClosing, WaitsForADeadNodeThatHasSlicesAndForNoOther) {
  const NodeId nodes[] = {c_.Register("n0"), c_.Register("n1"), c_.Register("n2")};
  PlacementRequest request{.sharding = ShardingType::kRowWise};
  request.nodes = {"n0", "n1"};
  c_.CreateOn("t", {nodes[0], nodes[1]}, request);
  const SessionId session = Connect("t0", 1)->session;
  c_.Advance(absl::Seconds(10));
  ASSERT_TRUE(c_.Beat(nodes[0]).ok());
  c_->Tick(c_.now());  // n1 and n2 are dead.
  ASSERT_TRUE(c_->CloseSession(session).ok());
  ASSERT_TRUE(Refuse(nodes[0], 1).ok());
  const absl::Status early = Connect("t0", 2).status();
  EXPECT_TRUE(absl::IsUnavailable(early)) << early;
  EXPECT_THAT(std::string(early.message()), HasSubstr("n1"));
  EXPECT_THAT(std::string(early.message()), Not(HasSubstr("n2")));
  ASSERT_TRUE(Refuse(nodes[1], 1).ok());
  EXPECT_TRUE(Connect("t0", 2).ok());
}

TEST_F(CoordinatorClosing, IsRememberedOverARestartAndSettledAnew) {
  const NodeId node = c_.Register("n0");
  const SessionId session = Connect("t0", 1)->session;
  ASSERT_TRUE(c_->CloseSession(session).ok());
  ASSERT_TRUE(Refuse(node, 1).ok());
  c_.Restart();
  EXPECT_TRUE(c_->closed_sessions()->refused.Has(session));
  EXPECT_FALSE(c_->closed_sessions()->settled.Has(session));
  EXPECT_TRUE(absl::IsUnavailable(Connect("t0", 2).status()));
  EXPECT_EQ(c_.Register("n0"), node);
  ASSERT_TRUE(Refuse(node, 1).ok());
  EXPECT_TRUE(Connect("t0", 2).ok());
}

TEST_F(CoordinatorClosing, ChangesNothingWhenTheStoreFails) {
  c_.Register("n0");
  const SessionId session = Connect("t0", 1)->session;
  c_.store().FailCommits(true);
  EXPECT_TRUE(absl::IsUnavailable(c_->CloseSession(session)));
  EXPECT_FALSE(c_->closed_sessions()->refused.Has(session));
  c_.store().FailCommits(false);
  EXPECT_TRUE(c_->CloseSession(session).ok());
}

TEST_F(CoordinatorClosing, RefusesNamesThatAreNone) {
  for (const char* const name : {".", "a b", "a/b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Connect(name, 1).status())) << name;
  }
}

using CoordinatorReplacing = CoordinatorClosing;

TEST_F(CoordinatorReplacing, AQuestionThatComesAgainIsAnsweredWithTheSameSession) {
  const SessionGrant first = *Connect("t0", 1);
  const Revision before = c_.store().revision();
  for (int i = 0; i < 3; ++i) {
    const auto again = Connect("t0", 1);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->session, first.session);
    EXPECT_EQ(again->turn, first.turn);
  }
  EXPECT_EQ(c_.store().revision(), before);
  c_.Restart();
  EXPECT_EQ(Connect("t0", 1)->session, first.session);
  EXPECT_TRUE(c_->closed_sessions()->refused.empty());
}

TEST_F(CoordinatorReplacing, AQuestionThatComesLateClosesNothing) {
  const SessionRequest first{.trainer = "t0", .incarnation = 1};
  ASSERT_TRUE(c_->OpenSession(first).ok());
  const SessionId before = c_->OpenSession(first)->session;
  const SessionRequest second{.trainer = "t0", .incarnation = 2, .replaces = before};
  ASSERT_TRUE(c_->OpenSession(second).ok());  // There is no node to wait for.
  const SessionId last = Connect("t0", 3)->session;
  for (const SessionRequest& late : {first, second}) {
    const auto grant = c_->OpenSession(late);
    ASSERT_TRUE(grant.ok()) << grant.status();
    EXPECT_EQ(grant->session, SessionId{});
    EXPECT_EQ(grant->latest, last);
  }
  EXPECT_FALSE(c_->closed_sessions()->refused.Has(last));
  EXPECT_EQ(Connect("t0", 3)->session, last);
}

TEST_F(CoordinatorReplacing, AClientWhoseSessionIsClosedIsToldSo) {
  const NodeId node = c_.Register("n0");
  ASSERT_TRUE(Connect("t0", 1).ok());
  ASSERT_TRUE(absl::IsUnavailable(Connect("t0", 2).status()));
  const absl::Status late = Connect("t0", 1).status();
  EXPECT_TRUE(absl::IsPermissionDenied(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("trainer t0 is closed"));
  ASSERT_TRUE(Refuse(node, 1).ok());
  EXPECT_TRUE(Connect("t0", 2).ok());
}

TEST_F(CoordinatorReplacing, AFailureOfTheStoreGivesNoSession) {
  const SessionId first = Connect("t0", 1)->session;
  c_.store().FailCommits(true);
  EXPECT_TRUE(absl::IsUnavailable(Connect("t0", 2).status()));
  c_.store().FailCommits(false);
  EXPECT_EQ(Connect("t0", 1)->session, first);
  EXPECT_TRUE(Connect("t0", 2).ok());
}

TEST_F(CoordinatorReplacing, TakesAnIncarnation) {
  const absl::Status none = Connect("t0", 0).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("incarnation"));
}

}  // namespace
}  // namespace embla
