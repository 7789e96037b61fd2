// Sessions that are closed: told to all nodes, and counted as closed when all of them say so.
#include <variant>

#include "core/base/cluster_key.h"
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
using ::testing::Not;

class CoordinatorClosing : public ::testing::Test {
 protected:
  // The node has taken in all news so far.
  absl::Status Refuse(NodeId node) {
    TakeNews();
    HeartbeatInfo info;
    info.sessions_heard = number_;
    return c_->Heartbeat(node, 1, info, c_.now());
  }
  // News of the next tick.
  ClosedSessions TakeNews() {
    c_->Tick(c_.now());
    ClosedSessions closed;
    for (const Effect& effect : c_->TakeEffects()) {
      if (const auto* const sessions = std::get_if<PublishSessions>(&effect)) {
        closed.Include(sessions->news.closed);
        EXPECT_GT(sessions->news.number, number_);
        number_ = sessions->news.number;
      }
    }
    return closed;
  }
  void Restart() {
    c_.Restart();
    number_ = c_->all_sessions().number;
  }
  SessionGrant Open() { return *c_->OpenSession({.client_name = "a"}); }
  absl::Status Close(const SessionGrant& grant) {
    return c_->CloseSession(grant.session, grant.proof);
  }
  bool IsClosed(SessionId session) { return c_->closed_sessions().refused.Has(session); }
  bool IsSettled(SessionId session) { return c_->closed_sessions().settled.Has(session); }
  std::size_t Keys(std::string_view prefix) { return c_.store().List(prefix)->size(); }

  // Connects like a client: the first answer says which session is to be closed.
  absl::StatusOr<SessionGrant> Connect(const std::string& trainer, std::uint64_t client_nonce) {
    SessionRequest request{.trainer = trainer, .client_nonce = client_nonce};
    const absl::StatusOr<SessionGrant> grant = c_->OpenSession(request);
    if (!grant.ok() || grant->session != SessionId{}) return grant;
    request.replaces = grant->latest;
    return c_->OpenSession(request);
  }

  // Ticks as a coordinator does that is up all the time; the nodes say nothing.
  void Live(absl::Duration time) {
    for (absl::Duration lived; lived < time; lived += absl::Seconds(1)) {
      c_.Advance(absl::Seconds(1));
      c_->Tick(c_.now());
    }
  }

  CoordinatorHarness c_;
  std::uint64_t number_ = c_->all_sessions().number;
};

TEST_F(CoordinatorClosing, TellsTheNodesAndSettlesWhenAllHaveSaidSo) {
  const NodeId nodes[] = {c_.Register("n0"), c_.Register("n1")};
  const SessionGrant grant = Open();
  ASSERT_THAT(Close(grant), IsOk());
  const ClosedSessions told = TakeNews();
  EXPECT_TRUE(told.refused.Has(grant.session));
  EXPECT_FALSE(told.settled.Has(grant.session));
  ASSERT_THAT(Refuse(nodes[0]), IsOk());
  EXPECT_EQ(TakeNews(), ClosedSessions());
  ASSERT_THAT(Refuse(nodes[1]), IsOk());
  EXPECT_TRUE(TakeNews().settled.Has(grant.session));
}

TEST_F(CoordinatorClosing, TellsOnlyWhatIsNewAndANodeThatComesEverything) {
  c_.Register("n0");
  const SessionGrant first = Open();
  const SessionGrant second = Open();
  ASSERT_THAT(Close(first), IsOk());
  TakeNews();
  ASSERT_THAT(Close(second), IsOk());
  const ClosedSessions told = TakeNews();
  EXPECT_FALSE(told.refused.Has(first.session));
  EXPECT_TRUE(told.refused.Has(second.session));
  EXPECT_TRUE(c_->all_sessions().closed.refused.Has(first.session));
  EXPECT_EQ(c_->all_sessions().number, number_);
}

TEST_F(CoordinatorClosing, SettlesWhatIsClosedMeanwhileWithTheNextNews) {
  const NodeId node = c_.Register("n0");
  const SessionGrant first = Open();
  const SessionGrant second = Open();
  ASSERT_THAT(Close(first), IsOk());
  TakeNews();
  const std::uint64_t heard = number_;
  ASSERT_THAT(Close(second), IsOk());
  TakeNews();
  HeartbeatInfo info;
  info.sessions_heard = heard;
  ASSERT_THAT(c_->Heartbeat(node, 1, info, c_.now()), IsOk());
  EXPECT_TRUE(IsSettled(first.session));
  EXPECT_FALSE(IsSettled(second.session));
  ASSERT_THAT(Refuse(node), IsOk());
  EXPECT_TRUE(IsSettled(second.session));
}

TEST_F(CoordinatorClosing, NewsOfAnotherProcessSettleNothing) {
  const NodeId node = c_.Register("n0");
  for (int i = 0; i < 5; ++i) ASSERT_THAT(Close(Open()), IsOk());
  ASSERT_THAT(Refuse(node), IsOk());
  const std::uint64_t heard_before = number_ + 100;
  Restart();
  EXPECT_EQ(c_.Register("n0"), node);
  const SessionGrant grant = Open();
  ASSERT_THAT(Close(grant), IsOk());
  TakeNews();
  HeartbeatInfo info;
  for (const std::uint64_t number : {heard_before, UINT64_MAX, std::uint64_t{6}}) {
    info.sessions_heard = number;
    ASSERT_THAT(c_->Heartbeat(node, 1, info, c_.now()), IsOk());
    EXPECT_FALSE(IsSettled(grant.session)) << number;
  }
}

TEST_F(CoordinatorClosing, IsForThoseWhoHaveTheProof) {
  const SessionGrant grant = Open();
  SessionProof wrong = grant.proof;
  wrong[3] = static_cast<char>(wrong[3] ^ 1);
  const SessionProof others = Open().proof;
  for (const SessionProof& proof : {SessionProof{}, wrong, others}) {
    EXPECT_THAT(c_->CloseSession(grant.session, proof),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("session_proof")));
  }
  EXPECT_FALSE(IsClosed(grant.session));
  EXPECT_THAT(Close(grant), IsOk());
}

TEST_F(CoordinatorClosing, OpensATrainersNextSessionWhenNobodyTakesUpdatesOfTheLastOne) {
  const NodeId node = c_.Register("n0");
  const SessionId first = Connect("t0", 1)->session;
  EXPECT_THAT(Connect("t0", 2), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("n0")));
  EXPECT_THAT(Connect("t1", 1), IsOk());
  ASSERT_THAT(Refuse(node), IsOk());
  const auto second = Connect("t0", 2);
  ASSERT_THAT(second, IsOk());
  EXPECT_NE(second->session, first);
  EXPECT_FALSE(IsClosed(second->session));
}

TEST_F(CoordinatorClosing, WaitsForADeadNodeThatHasSlicesAndForNoOther) {
  const NodeId nodes[] = {c_.Register("n0"), c_.Register("n1"), c_.Register("n2")};
  PlacementRequest request{.sharding = ShardingType::kRowWise};
  request.nodes = {"n0", "n1"};
  c_.CreateOn("t", {nodes[0], nodes[1]}, request);
  const SessionGrant grant = *Connect("t0", 1);
  c_.Advance(absl::Seconds(10));
  ASSERT_THAT(c_.Beat(nodes[0]), IsOk());
  c_->Tick(c_.now());  // n1 and n2 are dead.
  ASSERT_THAT(Close(grant), IsOk());
  ASSERT_THAT(Refuse(nodes[0]), IsOk());
  EXPECT_THAT(Connect("t0", 2), StatusIs(absl::StatusCode::kUnavailable,
                                         AllOf(HasSubstr("n1"), Not(HasSubstr("n2")))));
  ASSERT_THAT(Refuse(nodes[1]), IsOk());
  EXPECT_THAT(Connect("t0", 2), IsOk());
}

TEST_F(CoordinatorClosing, IsRememberedOverARestartAndSettledAnew) {
  const NodeId node = c_.Register("n0");
  c_.CreateOn("t", {node});
  const SessionGrant grant = *Connect("t0", 1);
  ASSERT_THAT(Close(grant), IsOk());
  TakeNews();
  Restart();
  EXPECT_TRUE(IsClosed(grant.session));
  EXPECT_FALSE(IsSettled(grant.session));
  EXPECT_THAT(Connect("t0", 2), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(c_.Register("n0"), node);
  ASSERT_THAT(Refuse(node), IsOk());
  EXPECT_THAT(Connect("t0", 2), IsOk());
}

TEST_F(CoordinatorClosing, ChangesNothingWhenTheStoreFails) {
  c_.Register("n0");
  const SessionGrant grant = *Connect("t0", 1);
  c_.store().FailCommits(true);
  EXPECT_THAT(Close(grant), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(IsClosed(grant.session));
  c_.store().FailCommits(false);
  EXPECT_THAT(Close(grant), IsOk());
}

TEST_F(CoordinatorClosing, LearnsFromNodesWhatAnOlderStoreDoesNotKnow) {
  NodeRegistration registration = CoordinatorHarness::Registration("n0");
  const SessionId forgotten[] = {SessionId{(std::uint64_t{9} << 32) + 1},
                                 SessionId{(std::uint64_t{9} << 32) + 5000}};
  for (const SessionId session : forgotten) registration.sessions_refused.Insert(session);
  ASSERT_THAT(c_->RegisterNode(registration, c_.now()), IsOk());
  for (const SessionId session : forgotten) EXPECT_TRUE(IsClosed(session));
  c_.Register("n1");
  EXPECT_TRUE(TakeNews().refused.Has(forgotten[1]));
  Restart();
  for (const SessionId session : forgotten) EXPECT_TRUE(IsClosed(session));
}

TEST_F(CoordinatorClosing, RefusesNamesThatAreNone) {
  for (const char* const name : {".", "a b", "a/b"}) {
    EXPECT_THAT(Connect(name, 1), StatusIs(absl::StatusCode::kInvalidArgument)) << name;
  }
}

TEST_F(CoordinatorClosing, ForgetsATrainerWhoseSessionHasSettled) {
  const NodeId node = c_.Register("n0");
  const SessionGrant grant = *Connect("t0", 1);
  EXPECT_EQ(Keys("sessions/of/"), 1u);
  ASSERT_THAT(Close(grant), IsOk());
  c_->Tick(c_.now());
  EXPECT_EQ(Keys("sessions/of/"), 1u);
  ASSERT_THAT(Refuse(node), IsOk());
  c_->Tick(c_.now());
  EXPECT_EQ(Keys("sessions/of/"), 0u);
  // A question that was on its way names it.
  const SessionRequest late{.trainer = "t0", .client_nonce = 2, .replaces = grant.session};
  const auto second = c_->OpenSession(late);
  ASSERT_THAT(second, IsOk());
  EXPECT_NE(second->session, SessionId{});
}

using CoordinatorReplacing = CoordinatorClosing;

TEST_F(CoordinatorReplacing, AQuestionThatComesAgainIsAnsweredWithTheSameSession) {
  const SessionGrant first = *Connect("t0", 1);
  const Revision before = c_.store().revision();
  for (int i = 0; i < 3; ++i) {
    const auto again = Connect("t0", 1);
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->session, first.session);
    EXPECT_EQ(again->turn, first.turn);
    EXPECT_EQ(again->proof, first.proof);
  }
  EXPECT_EQ(c_.store().revision(), before);
  Restart();
  EXPECT_EQ(Connect("t0", 1)->session, first.session);
  EXPECT_TRUE(c_->closed_sessions().refused.empty());
}

TEST_F(CoordinatorReplacing, AQuestionThatComesLateClosesNothing) {
  const SessionRequest first{.trainer = "t0", .client_nonce = 1};
  ASSERT_THAT(c_->OpenSession(first), IsOk());
  const SessionId before = c_->OpenSession(first)->session;
  const SessionRequest second{.trainer = "t0", .client_nonce = 2, .replaces = before};
  ASSERT_THAT(c_->OpenSession(second), IsOk());  // There is no node to wait for.
  const SessionId last = Connect("t0", 3)->session;
  for (const SessionRequest& late : {first, second}) {
    const auto grant = c_->OpenSession(late);
    ASSERT_THAT(grant, IsOk());
    EXPECT_EQ(grant->session, SessionId{});
    EXPECT_EQ(grant->latest, last);
  }
  EXPECT_FALSE(IsClosed(last));
  EXPECT_EQ(Connect("t0", 3)->session, last);
}

TEST_F(CoordinatorReplacing, AClientWhoseSessionIsClosedIsToldSo) {
  const NodeId node = c_.Register("n0");
  ASSERT_THAT(Connect("t0", 1), IsOk());
  ASSERT_THAT(Connect("t0", 2), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Connect("t0", 1),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("trainer t0 is closed")));
  ASSERT_THAT(Refuse(node), IsOk());
  EXPECT_THAT(Connect("t0", 2), IsOk());
}

TEST_F(CoordinatorReplacing, LeavesTheRunningSessionAloneWhileANodeIsAway) {
  const NodeId nodes[] = {c_.Register("n0"), c_.Register("n1")};
  c_.CreateOn("t", {nodes[0], nodes[1]});
  const SessionId running = Connect("t0", 1)->session;
  c_->NodeDisconnected(nodes[1], 1, c_.now());
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Connect("t0", 2),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("n1"), HasSubstr("goes on"), Not(HasSubstr("n0")))));
  }
  EXPECT_FALSE(IsClosed(running));
  EXPECT_EQ(Connect("t0", 1)->session, running);
  EXPECT_EQ(c_.Register("n1"), nodes[1]);
  EXPECT_THAT(Connect("t0", 2), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(IsClosed(running));
  for (const NodeId node : nodes) ASSERT_THAT(Refuse(node), IsOk());
  EXPECT_THAT(Connect("t0", 2), IsOk());
}

TEST_F(CoordinatorReplacing, AFailureOfTheStoreGivesNoSession) {
  const SessionId first = Connect("t0", 1)->session;
  c_.store().FailCommits(true);
  EXPECT_THAT(Connect("t0", 2), StatusIs(absl::StatusCode::kUnavailable));
  c_.store().FailCommits(false);
  EXPECT_EQ(Connect("t0", 1)->session, first);
  EXPECT_THAT(Connect("t0", 2), IsOk());
}

TEST_F(CoordinatorReplacing, TakesAnIncarnation) {
  EXPECT_THAT(Connect("t0", 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("client_nonce")));
}

using CoordinatorLeases = CoordinatorClosing;

constexpr absl::Duration kLease = absl::Minutes(10);

TEST_F(CoordinatorLeases, AClientThatWatchesKeepsItsSessionAndOneThatHasGoneDoesNot) {
  c_.Register("n0");
  const SessionId watching = Open().session;
  const SessionId gone = Open().session;
  c_->HearSession(watching, 1);
  Live(kLease - absl::Seconds(1));
  EXPECT_FALSE(IsClosed(gone));
  Live(absl::Seconds(2));
  EXPECT_TRUE(IsClosed(gone));
  Live(2 * kLease);
  EXPECT_FALSE(IsClosed(watching));
  c_->HearSession(watching, -1);
  Live(kLease - absl::Seconds(1));
  EXPECT_FALSE(IsClosed(watching));
  c_->HearSession(watching, 1);  // The client is back.
  Live(2 * kLease);
  EXPECT_FALSE(IsClosed(watching));
  c_->HearSession(watching, -1);
  Live(kLease + absl::Seconds(1));
  EXPECT_TRUE(IsClosed(watching));
  EXPECT_EQ(c_->Status().sessions_expired, 2u);
  EXPECT_EQ(c_->Status().sessions_open, 0u);
}

TEST_F(CoordinatorLeases, NoMoreAreOpenThanThereMayBeUntilTheirLeasesEnd) {
  for (int i = 0; i < 65'536; ++i) ASSERT_THAT(c_->OpenSession({.client_name = "a"}), IsOk());
  EXPECT_THAT(c_->OpenSession({.client_name = "a"}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("65536 sessions are open")));
  EXPECT_THAT(Connect("t0", 7).status(), StatusIs(absl::StatusCode::kResourceExhausted));
  Live(kLease + absl::Seconds(30));
  EXPECT_THAT(c_->OpenSession({.client_name = "a"}), IsOk());
}

TEST_F(CoordinatorLeases, TheFirstOpenSessionsAreToldForPeople) {
  c_.Register("n0");
  const SessionId first = Open().session;
  const auto trainer = Connect("t0", 7);
  ASSERT_THAT(trainer, IsOk());
  const auto ranked = c_->OpenSession({.rank = Rank{1}, .ranks = 2});
  ASSERT_THAT(ranked, IsOk());
  c_->HearSession(first, 1);
  const std::vector<SessionView> views = c_->FirstSessions(10);
  ASSERT_EQ(views.size(), 3u);
  EXPECT_EQ(views[0].session, first);
  EXPECT_EQ(views[0].watches, 1);
  EXPECT_EQ(views[1].trainer, "t0");
  EXPECT_EQ(views[2].rank, Rank{1});
  EXPECT_EQ(views[2].ranks, 2u);
  EXPECT_EQ(c_->FirstSessions(2).size(), 2u);
}

TEST_F(CoordinatorLeases, NoOutageEndsASessionAndALeaseBeginsAnewAfterwards) {
  const SessionId silent = Open().session;
  const SessionId back = Open().session;
  Live(kLease - absl::Seconds(5));
  c_.Advance(absl::Hours(1000));
  Restart();
  Live(kLease - absl::Seconds(2));
  EXPECT_FALSE(IsClosed(silent));
  c_->HearSession(back, 1);
  Live(absl::Seconds(4));
  EXPECT_TRUE(IsClosed(silent));
  EXPECT_FALSE(IsClosed(back));
}

TEST_F(CoordinatorLeases, APauseOfTheProcessIsNoSilenceOfClients) {
  const SessionId session = Open().session;
  c_.Advance(10 * kLease);  // Stopped, or its clock was set.
  c_->Tick(c_.now());
  EXPECT_FALSE(IsClosed(session));
}

TEST_F(CoordinatorLeases, ASessionThatAnOlderStoreDoesNotKnowIsKeptByItsClient) {
  const SessionId unknown{(std::uint64_t{9} << 32) + 17};
  c_->HearSession(unknown, 1);
  Live(2 * kLease);
  EXPECT_FALSE(IsClosed(unknown));
  c_->HearSession(unknown, -1);
  Live(kLease + absl::Seconds(1));
  EXPECT_TRUE(IsClosed(unknown));
}

TEST_F(CoordinatorLeases, AProcessWithoutOpenSessionsIsOneRecord) {
  SessionGrant kept;
  for (int i = 0; i < 3000; ++i) {
    const SessionGrant grant = Open();
    if (i == 7) kept = grant;
    if (i % 2 == 0 && i != 7) {
      ASSERT_THAT(Close(grant), IsOk());
    }
  }
  Restart();
  c_->HearSession(kept.session, 1);
  Live(kLease + absl::Seconds(60));
  EXPECT_FALSE(IsClosed(kept.session));
  EXPECT_EQ(c_->closed_sessions().refused.ranges().size(), 2u);
  ASSERT_THAT(Close(kept), IsOk());
  Live(absl::Seconds(5));
  EXPECT_EQ(Keys("sessions/closed/"), 0u);
  Restart();
  EXPECT_TRUE(IsClosed(kept.session));
  EXPECT_EQ(c_->closed_sessions().refused.ranges().size(), 1u);
}

}  // namespace
}  // namespace embla
