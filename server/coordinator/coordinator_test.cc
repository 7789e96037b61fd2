#include "server/coordinator/coordinator.h"

#include <set>
#include <string>

#include "core/base/build_version.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using absl::StatusCode;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

class CoordinatorTest : public ::testing::Test {
 protected:
  static void ExpectError(const absl::Status& status, StatusCode code, const std::string& says) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
  NodeState StateOf(NodeId node) {
    for (const NodeView& view : c_->Nodes()) {
      if (view.spec.id == node) return view.state;
    }
    ADD_FAILURE() << "no node " << ToInt(node);
    return NodeState::kDead;
  }

  CoordinatorHarness c_;
};

using CoordinatorOpen = CoordinatorTest;

TEST_F(CoordinatorOpen, AnEmptyStoreBecomesAClusterThatKeepsItsId) {
  EXPECT_EQ(c_->Status().cluster_id, "cluster-1");
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{1});
  c_.Restart();
  EXPECT_EQ(c_->Status().cluster_id, "cluster-1");
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{1});
}

TEST_F(CoordinatorOpen, RefusesAStoreWhoseRecordsDoNotReadOrDoNotHoldTogether) {
  const std::vector<std::vector<StateWrite>> spoils = {
      {{"cluster", "{}"}},
      {{"plan/head", std::nullopt}},
      {{"plan/head", "{\"version\":1,\"next_node_id\":0,\"next_table_id\":1}"}},
      {{"plan/nodes/0000000001", "not JSON"}},
      {{"plan/pending", "{\"table_id\":9,\"version\":1,\"deadline_unix_ms\":1}"}},
      {{"sessions/boots/0000000007", "0"}},
  };
  for (const std::vector<StateWrite>& writes : spoils) {
    CoordinatorHarness harness;
    ASSERT_THAT(harness.store().Commit({}, writes), IsOk());
    const auto opened = Coordinator::Open(harness.store(), {.new_cluster_id = "x"}, harness.now());
    ExpectError(opened.status(), StatusCode::kDataLoss, "state key");
  }
}

TEST_F(CoordinatorOpen, RefusesOptionsThatCannotWork) {
  EXPECT_THAT(CoordinatorOptions{}.Validate(), StatusIs(StatusCode::kInvalidArgument));
  CoordinatorOptions options{.new_cluster_id = "x"};
  EXPECT_THAT(options.Validate(), IsOk());
  options.dead_after = options.heartbeat_interval;
  EXPECT_THAT(options.Validate(), StatusIs(StatusCode::kInvalidArgument));
}

using CoordinatorRegisterNode = CoordinatorTest;

TEST_F(CoordinatorRegisterNode, GivesIdsThatStayWithTheNameAndPublishesThePlan) {
  const NodeId first = c_.Register("n0");
  const NodeId second = c_.Register("n1");
  EXPECT_NE(first, second);
  EXPECT_EQ(c_.published()->version(), PlanVersion{3});
  EXPECT_EQ(c_.published()->FindNode("n1")->address, "n1:7000");
  c_.Restart();
  EXPECT_EQ(c_.Register("n1", 9), second);
  EXPECT_EQ(c_.Register("n0", 9), first);
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{3});
}

TEST_F(CoordinatorRegisterNode, ANewAddressIsANewPlanVersion) {
  const NodeId node = c_.Register("n0");
  c_->NodeDisconnected(node, 1, c_.now());
  NodeRegistration moved = CoordinatorHarness::Registration("n0");
  moved.address = "elsewhere:7001";
  ASSERT_THAT(c_->RegisterNode(moved, c_.now()), IsOk());
  EXPECT_EQ(c_->GetPlan()->version(), PlanVersion{3});
  EXPECT_EQ(c_.published()->FindNode("n0")->address, "elsewhere:7001");
  EXPECT_EQ(c_->Nodes()[0].spec.address, "elsewhere:7001");
}

TEST_F(CoordinatorRegisterNode, RefusesASecondLiveProcessWithTheNameUntilTheFirstIsGone) {
  const NodeId node = c_.Register("n0", 1);
  const NodeRegistration second = CoordinatorHarness::Registration("n0", 2);
  ExpectError(c_->RegisterNode(second, c_.now()).status(), StatusCode::kAlreadyExists, "n0:7000");
  c_->NodeDisconnected(node, 1, c_.now());
  EXPECT_THAT(c_->RegisterNode(second, c_.now()), IsOk());
  c_.Advance(absl::Seconds(5));  // Silence counts as gone, even while its link looks open.
  EXPECT_THAT(c_->RegisterNode(CoordinatorHarness::Registration("n0", 3), c_.now()), IsOk());
}

TEST_F(CoordinatorRegisterNode, RefusesBuildsOfAnotherProtocolAndSaysBothBuilds) {
  NodeRegistration other = CoordinatorHarness::Registration("n0");
  other.build = {.version = "9.9.9+abc", .protocol_version = kProtocolVersion + 1};
  const absl::Status status = c_->RegisterNode(other, c_.now()).status();
  ExpectError(status, StatusCode::kFailedPrecondition, "build 9.9.9+abc");
  ExpectError(status, StatusCode::kFailedPrecondition, std::string(BuildVersion()));
  other.build = {.version = "", .protocol_version = 0};  // A build that did not say yet.
  ExpectError(c_->RegisterNode(other, c_.now()).status(), StatusCode::kFailedPrecondition,
              "docs/runbook.md, Upgrades");
  EXPECT_EQ(c_->GetPlan()->FindNode("n0"), nullptr);
}

TEST_F(CoordinatorRegisterNode, ShowsTheBuildOfTheProcessThatIsLinked) {
  NodeRegistration registration = CoordinatorHarness::Registration("n0");
  registration.build.version = "9.9.9+abc";
  EXPECT_THAT(c_->RegisterNode(registration, c_.now()), IsOk());
  EXPECT_EQ(c_->Nodes()[0].build.version, "9.9.9+abc");
  EXPECT_EQ(c_->Nodes()[0].build.protocol_version, kProtocolVersion);
  c_.Restart();
  EXPECT_EQ(c_->Nodes()[0].build.version, "");
}

TEST_F(CoordinatorRegisterNode, RefusesOtherDevicesOnlyWhileSlicesAreThere) {
  const NodeId node = c_.Register("n0");
  ASSERT_THAT(c_->RegisterNode(CoordinatorHarness::Registration("n0", 1, 3), c_.now()), IsOk());
  EXPECT_EQ(c_->GetPlan()->FindNode(node)->devices.size(), 3u);
  c_.CreateOn("t", {node});
  ExpectError(c_->RegisterNode(CoordinatorHarness::Registration("n0", 1, 2), c_.now()).status(),
              StatusCode::kFailedPrecondition, "table t");
}

TEST_F(CoordinatorRegisterNode, TakesOtherBandwidthsAlsoWhileSlicesAreThere) {
  const NodeId node = c_.Register("n0");
  c_.CreateOn("t", {node});
  NodeRegistration faster = CoordinatorHarness::Registration("n0");
  for (DeviceSpec& device : faster.devices) device.memory_bytes_per_second = 1 << 30;
  ASSERT_THAT(c_->RegisterNode(faster, c_.now()), IsOk());
  EXPECT_EQ(c_->GetPlan()->FindNode(node)->devices, faster.devices);
}

TEST_F(CoordinatorRegisterNode, RefusesWhatIsMalformedOrOfAnotherCluster) {
  NodeRegistration bad = CoordinatorHarness::Registration("a/b");
  EXPECT_EQ(c_->RegisterNode(bad, c_.now()).status().code(), StatusCode::kInvalidArgument);
  bad = CoordinatorHarness::Registration("n0", 0);
  EXPECT_EQ(c_->RegisterNode(bad, c_.now()).status().code(), StatusCode::kInvalidArgument);
  bad = CoordinatorHarness::Registration("n0", 1, 0);
  EXPECT_EQ(c_->RegisterNode(bad, c_.now()).status().code(), StatusCode::kInvalidArgument);
  bad = CoordinatorHarness::Registration("n0");
  bad.cluster_id = "cluster-7";
  ExpectError(c_->RegisterNode(bad, c_.now()).status(), StatusCode::kFailedPrecondition,
              "cluster-7");
  bad.cluster_id = "cluster-1";
  EXPECT_THAT(c_->RegisterNode(bad, c_.now()), IsOk());
}

using CoordinatorHeartbeat = CoordinatorTest;

TEST_F(CoordinatorHeartbeat, KeepsANodeLiveAndItsSilenceKillsIt) {
  const NodeId node = c_.Register("n0");
  for (int i = 0; i < 3; ++i) {
    c_.Advance(absl::Seconds(4));
    ASSERT_THAT(c_.Beat(node), IsOk());
    c_->Tick(c_.now());
    EXPECT_EQ(StateOf(node), NodeState::kLive);
  }
  c_.Advance(absl::Seconds(5));
  c_->Tick(c_.now());
  EXPECT_EQ(StateOf(node), NodeState::kDead);
  EXPECT_EQ(c_->Status().nodes_live, 0u);
  ASSERT_THAT(c_.Beat(node), IsOk());  // It was only slow.
  EXPECT_EQ(StateOf(node), NodeState::kLive);
}

TEST_F(CoordinatorHeartbeat, AClosedLinkIsNotLiveAndDiesLater) {
  const NodeId node = c_.Register("n0", 7);
  c_->NodeDisconnected(node, 6, c_.now());  // An older link's end.
  EXPECT_EQ(StateOf(node), NodeState::kLive);
  c_->NodeDisconnected(node, 7, c_.now());
  EXPECT_EQ(StateOf(node), NodeState::kUnlinked);
  c_.Advance(absl::Seconds(5));
  c_->Tick(c_.now());
  EXPECT_EQ(StateOf(node), NodeState::kDead);
}

TEST_F(CoordinatorHeartbeat, IsOfTheRegisteredIncarnationOnly) {
  const NodeId node = c_.Register("n0", 7);
  EXPECT_EQ(c_.Beat(node, 6).code(), StatusCode::kNotFound);
  EXPECT_EQ(c_.Beat(NodeId{99}, 7).code(), StatusCode::kNotFound);
  c_.Restart();
  EXPECT_EQ(c_.Beat(node, 7).code(), StatusCode::kNotFound);  // The node has to register again.
}

TEST_F(CoordinatorHeartbeat, IsShownToOperators) {
  const NodeId node = c_.Register("n0");
  c_.Advance(absl::Seconds(1));
  HeartbeatInfo info;
  info.plan_version = PlanVersion{2};
  info.device_used_bytes = {5, 6};
  info.device_stopped = {"", "GPU 1 has stopped"};
  ASSERT_THAT(c_->Heartbeat(node, 1, info, c_.now()), IsOk());
  const NodeView view = c_->Nodes()[0];
  EXPECT_EQ(view.plan_version, PlanVersion{2});
  EXPECT_EQ(view.last_heartbeat, c_.now());
  EXPECT_EQ(view.device_used_bytes, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(view.stopped(), "device 1: GPU 1 has stopped");
}

TEST_F(CoordinatorHeartbeat, TellsSinceWhenNoPlanCouldBeInstalled) {
  const NodeId node = c_.Register("n0");
  const auto beat = [&](std::uint64_t failed) {
    c_.Advance(absl::Seconds(1));
    HeartbeatInfo info;
    info.failed_plan_version = PlanVersion{failed};
    EXPECT_THAT(c_->Heartbeat(node, 1, info, c_.now()), IsOk());
  };
  beat(3);
  const absl::Time first = c_.now();
  beat(3);
  beat(4);
  EXPECT_EQ(c_->Nodes()[0].failing_since, first);
  beat(0);
  beat(5);
  EXPECT_EQ(c_->Nodes()[0].failing_since, c_.now());
}

using CoordinatorSessions = CoordinatorTest;

TEST_F(CoordinatorSessions, AreNeverGivenTwiceNotEvenAcrossRestarts) {
  std::set<SessionId> seen;
  for (int restart = 0; restart < 3; ++restart) {
    for (int i = 0; i < 1500; ++i) {
      const auto session = c_->OpenSession({.client_name = "trainer"});
      ASSERT_THAT(session, IsOk());
      ASSERT_NE(session->session, SessionId{});
      ASSERT_TRUE(seen.insert(session->session).second);
    }
    c_.Restart();
  }
}

TEST_F(CoordinatorSessions, WriteTheStoreOncePerBlock) {
  ASSERT_THAT(c_->OpenSession({.client_name = "a"}), IsOk());
  const Revision before = c_.store().revision();
  for (int i = 0; i < 500; ++i) ASSERT_THAT(c_->OpenSession({.client_name = "a"}), IsOk());
  EXPECT_EQ(c_.store().revision(), before);
}

TEST_F(CoordinatorSessions, CloseKnowsWhatWasGivenOut) {
  const SessionGrant grant = *c_->OpenSession({.client_name = "a"});
  EXPECT_THAT(c_->CloseSession(grant.session, grant.proof), IsOk());
  EXPECT_EQ(c_->CloseSession(SessionId{0}, grant.proof).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(c_->CloseSession(SessionId{ToInt(grant.session) + 1}, grant.proof).code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(c_->Status().sessions_opened, 1u);
  EXPECT_EQ(c_->Status().sessions_closed, 1u);
}

TEST_F(CoordinatorSessions, GetTheSmallestTurnThatNobodyHas) {
  const SessionGrant first = *c_->OpenSession({.client_name = "a"});
  const SessionGrant second = *c_->OpenSession({.client_name = "b"});
  EXPECT_EQ(first.turn, 0u);
  EXPECT_EQ(second.turn, 1u);
  EXPECT_EQ(c_->OpenSession({.client_name = "c"})->turn, 2u);
  ASSERT_THAT(c_->CloseSession(second.session, second.proof), IsOk());
  ASSERT_THAT(c_->CloseSession(second.session, second.proof), IsOk());  // Twice: once counts.
  EXPECT_EQ(c_->OpenSession({.client_name = "d"})->turn, 1u);
  EXPECT_EQ(c_->OpenSession({.client_name = "e"})->turn, 3u);
}

using CoordinatorStoreFailure = CoordinatorTest;

TEST_F(CoordinatorStoreFailure, ChangesNothingAndIsToldToTheCaller) {
  const NodeId node = c_.Register("n0");
  c_.CreateOn("t", {node});
  const PlanPtr before = c_->GetPlan();
  c_.store().FailCommits(true);
  EXPECT_EQ(c_->RegisterNode(CoordinatorHarness::Registration("n1"), c_.now()).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(c_.Create("u").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(c_->DropTable("t", c_.now()).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(c_->SetTable("t", {{"learning_rate", "1"}}, c_.now()).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(c_->OpenSession({.client_name = "a"}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(c_->GetPlan(), before);
  EXPECT_TRUE(c_->TakeEffects().empty());
  c_.store().FailCommits(false);
  EXPECT_THAT(c_->DropTable("t", c_.now()), IsOk());
  EXPECT_THAT(c_->OpenSession({.client_name = "a"}), IsOk());
}

TEST_F(CoordinatorStoreFailure, ACreationThatCannotBeRolledBackIsAnsweredOnceAndRetried) {
  const NodeId node = c_.Register("n0");
  const ChangeId change = *c_.Create("t");
  c_.store().FailCommits(true);
  HeartbeatInfo failed;
  failed.failed_plan_version = c_->GetPlan()->version();
  failed.failure = absl::ResourceExhaustedError("no memory");
  ASSERT_THAT(c_->Heartbeat(node, 1, failed, c_.now()), IsOk());
  EXPECT_EQ(c_.Outcomes().at(change).status.code(), StatusCode::kUnavailable);
  EXPECT_NE(c_->GetPlan()->FindTable("t"), nullptr);
  c_.store().FailCommits(false);
  c_->Tick(c_.now());
  EXPECT_TRUE(c_.Outcomes().empty());
  EXPECT_EQ(c_->GetPlan()->FindTable("t"), nullptr);
}

TEST(MembershipPromisedBytes, AreThoseOfLiveNodesWhoseCpuDevicesShareAMemory) {
  const absl::Time now = absl::UnixEpoch();
  const HostMemory here{.id = "here", .bytes = 100};
  Membership nodes({}, absl::Seconds(10), now);
  const auto link = [&](std::uint32_t id, DeviceKind kind, const HostMemory& memory) {
    NodeSpec node;
    node.id = NodeId{id};
    node.devices.assign(2, {.kind = kind, .memory_bytes = 30});
    NodeRegistration registration;
    registration.host_memory = memory;
    registration.boot_id = id;
    nodes.Link(node, registration, now);
  };
  link(1, DeviceKind::kCpu, here);
  EXPECT_EQ(nodes.PromisedBytes(here), 60);
  link(2, DeviceKind::kCpu, {.id = "there", .bytes = 100});
  link(3, DeviceKind::kGpu, here);
  link(4, DeviceKind::kCpu, {});
  EXPECT_EQ(nodes.PromisedBytes(here), 60);
  EXPECT_EQ(nodes.PromisedBytes({}), 0);
  link(5, DeviceKind::kCpu, here);
  EXPECT_EQ(nodes.PromisedBytes(here), 120);
  nodes.Unlink(NodeId{1}, 1);
  EXPECT_EQ(nodes.PromisedBytes(here), 60);
}

}  // namespace
}  // namespace embla
