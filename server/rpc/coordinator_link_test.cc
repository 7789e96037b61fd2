#include "server/rpc/coordinator_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "server/rpc/coordinator_codec.h"
#include "server/rpc/coordinator_fixture.h"
#include "server/rpc/fake_shard_node.h"
#include "server/rpc/move_codec.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

class CoordinatorLinkTest : public CoordinatorFixture {
 protected:
  CoordinatorLinkOptions Options(const std::string& name) {
    CoordinatorLinkOptions options;
    options.coordinator = server_->address();
    options.key = &node_key_;
    options.registration.name = name;
    options.registration.address = "127.0.0.1:9";
    options.registration.devices = {{.kind = DeviceKind::kCpu, .memory_bytes = 1 << 20}};
    options.registration.boot_id = 77;
    options.backoff_min = absl::Milliseconds(5);
    options.backoff_max = absl::Milliseconds(50);
    return options;
  }

  // Asks the coordinator until `condition` holds of its nodes.
  bool AwaitNodes(const std::function<bool(const v1::ListNodesReply&)>& condition) {
    const auto holds = [&] {
      grpc::ClientContext context;
      v1::ListNodesReply reply;
      return admin_->ListNodes(&context, {}, &reply).ok() && condition(reply);
    };
    return AwaitFor(holds, kTestWaitMax, "the nodes are as expected");
  }
  static bool OneLive(const v1::ListNodesReply& reply) {
    return reply.nodes_size() == 1 && reply.nodes(0).live();
  }

  grpc::Status Create(const std::string& name) {
    grpc::ClientContext context;
    v1::TableReply reply;
    return admin_->CreateTable(&context, TableRequest(name), &reply);
  }

  // The reason of a link that gave up; OK: it has not within the time of a test.
  absl::Status AwaitRefusal(CoordinatorLinkOptions options) {
    std::promise<absl::Status> refused;
    options.on_refused = [&refused](const absl::Status& status) { refused.set_value(status); };
    CoordinatorLink link(std::move(options), node_);
    std::future<absl::Status> heard = refused.get_future();
    if (heard.wait_for(absl::ToChronoSeconds(kTestWaitMax)) != std::future_status::ready) {
      return absl::OkStatus();
    }
    EXPECT_THAT(link.refusal(), Not(IsOk()));
    return heard.get();
  }

  NodeKey node_key_{"", key_};
  FakeShardNode node_;
};

TEST_F(CoordinatorLinkTest, RegistersReportsAndInstalls) {
  Start();
  CoordinatorLink link(Options("n0"), node_);
  ASSERT_TRUE(AwaitNodes([](const v1::ListNodesReply& reply) {
    return OneLive(reply) && reply.nodes(0).device_used_bytes_size() == 2;
  }));
  EXPECT_TRUE(AwaitFor([&] { return link.registered(); }, kTestWaitMax,
                       "the link says that it is registered"));
  const grpc::Status created = Create("t");
  ASSERT_THAT(created, IsOk());
  EXPECT_EQ(node_.plan()->tables().size(), 1u);
  EXPECT_NE(node_.self(), NodeId{});
}

TEST_F(CoordinatorLinkTest, TellsWhyADeviceServesNoRowsAnyMore) {
  Start();
  node_.stopped = "GPU 5 has stopped";
  CoordinatorLink link(Options("n0"), node_);
  ASSERT_TRUE(AwaitNodes([](const v1::ListNodesReply& reply) {
    return OneLive(reply) && reply.nodes(0).device_stopped_size() == 2;
  }));
  const grpc::Status created = Create("t");
  EXPECT_EQ(created.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(created.error_message(), HasSubstr("node n0: device 1: GPU 5 has stopped"));
}

TEST_F(CoordinatorLinkTest, StatesWhatThePlannerShouldKnowOfDevices) {
  Start();
  CoordinatorLinkOptions options = Options("n0");
  options.registration.devices = {{.kind = DeviceKind::kGpu,
                                   .memory_bytes = 1 << 20,
                                   .memory_bytes_per_second = 4'800'000'000'000,
                                   .peer_access = true},
                                  {.kind = DeviceKind::kCpu, .memory_bytes = 1 << 19}};
  const std::vector<DeviceSpec> devices = options.registration.devices;
  CoordinatorLink link(std::move(options), node_);
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return ToInt(node.version()) > 0; }));
  EXPECT_EQ(node_.plan()->nodes().front().devices, devices);
}

TEST_F(CoordinatorLinkTest, ReportsAPlanThatItCannotInstall) {
  Start();
  CoordinatorLink link(Options("n0"), node_);
  ASSERT_TRUE(AwaitNodes(OneLive));
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return ToInt(node.version()) > 0; }));
  node_.FailInstalls(absl::ResourceExhaustedError("device 0 is full"));
  const grpc::Status created = Create("t");
  EXPECT_EQ(created.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(created.error_message(), HasSubstr("device 0 is full"));
  EXPECT_TRUE(host_->plan()->tables().empty());
}

TEST_F(CoordinatorLinkTest, TriesAPlanAgainUntilItIsInstalledAndSaysWhy) {
  Start();
  CoordinatorLink link(Options("n0"), node_);
  ASSERT_TRUE(AwaitNodes(OneLive));
  ASSERT_THAT(Create("t"), IsOk());
  node_.FailInstalls(absl::ResourceExhaustedError("the log is full"));
  grpc::ClientContext context;
  v1::SetTableRequest request;
  request.set_name("t");
  (*request.mutable_values())["learning_rate"] = "0.5";
  v1::TableReply changed;
  const grpc::Status status = admin_->SetTable(&context, request, &changed);
  ASSERT_THAT(status, IsOk());
  EXPECT_TRUE(AwaitNodes([&](const v1::ListNodesReply& reply) {
    return reply.nodes(0).failed_plan_version() == changed.plan_version() &&
           reply.nodes(0).failure() == "the log is full" &&
           reply.nodes(0).failing_since_unix_ms() > 0;
  }));
  EXPECT_LT(ToInt(node_.version()), changed.plan_version());
  node_.FailInstalls(absl::OkStatus());
  EXPECT_TRUE(AwaitNodes([&](const v1::ListNodesReply& reply) {
    return reply.nodes(0).plan_version() == changed.plan_version() &&
           reply.nodes(0).failed_plan_version() == 0;
  }));
  EXPECT_EQ(ToInt(node_.version()), changed.plan_version());
}

TEST_F(CoordinatorLinkTest, ComesBackWhenTheCoordinatorDoes) {
  Start();
  const std::string address = server_->address();
  CoordinatorLink link(Options("n0"), node_);
  ASSERT_TRUE(AwaitNodes(OneLive));
  ASSERT_THAT(Create("before"), IsOk());
  for (int round = 0; round < 3; ++round) {
    Stop();
    Start(address);
    ASSERT_TRUE(AwaitNodes(OneLive)) << round;
  }
  const grpc::Status created = Create("after");
  ASSERT_THAT(created, IsOk());
  EXPECT_EQ(node_.plan()->tables().size(), 2u);
}

TEST_F(CoordinatorLinkTest, ANewIncarnationTakesOverTheName) {
  Start();
  {
    CoordinatorLink link(Options("n0"), node_);
    ASSERT_TRUE(AwaitNodes(OneLive));
  }
  CoordinatorLinkOptions options = Options("n0");
  options.registration.boot_id = 78;
  CoordinatorLink link(options, node_);
  ASSERT_TRUE(AwaitNodes(OneLive));
  EXPECT_TRUE(AwaitFor([&] { return link.registered(); }, kTestWaitMax,
                       "the link says that it is registered"));
}

TEST_F(CoordinatorLinkTest, GivesUpWithAnotherKeyThanTheCoordinators) {
  Start();
  NodeKey other("", std::make_shared<const ClusterKey>(ClusterKey::Generate()));
  CoordinatorLinkOptions options = Options("n0");
  options.key = &other;
  EXPECT_THAT(AwaitRefusal(options),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("--cluster-key")));
  EXPECT_TRUE(host_->plan()->nodes().empty());
}

TEST_F(CoordinatorLinkTest, FindsTheKeyInTheFileThatTheCoordinatorNames) {
  const testing::TempDirectory directory;
  key_path_ = directory.path() + "/cluster.key";
  ASSERT_THAT(AtomicWriteFile(key_path_, key_->Format()), IsOk());
  Start();
  NodeKey found;
  CoordinatorLinkOptions options = Options("n0");
  options.key = &found;
  CoordinatorLink link(options, node_);
  ASSERT_TRUE(AwaitNodes(OneLive));
  EXPECT_EQ(found.path(), key_path_);
  EXPECT_NE(found.current(), nullptr);
}

TEST_F(CoordinatorLinkTest, GivesUpWithoutAKeyAndNamesThePathThatItTried) {
  key_path_ = "/nonexistent/cluster.key";
  Start();
  NodeKey none;
  CoordinatorLinkOptions options = Options("n0");
  options.key = &none;
  const absl::Status refusal = AwaitRefusal(options);
  EXPECT_THAT(refusal, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(key_path_)));
  EXPECT_THAT(refusal, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("--cluster-key")));
}

TEST_F(CoordinatorLinkTest, GivesUpWithANameThatNoNodeCanHave) {
  Start();
  EXPECT_THAT(AwaitRefusal(Options("no name")), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(CoordinatorLinkTest, GivesUpOnAPortThatServesOthers) {
  Start();
  AdminService admin(*host_);
  grpc::Service* const services[] = {&admin};
  auto server = RpcServer::Start({.listen = "127.0.0.1:0"}, services);
  ASSERT_THAT(server, IsOk());
  CoordinatorLinkOptions options = Options("n0");
  options.coordinator = (*server)->address();
  EXPECT_THAT(AwaitRefusal(options),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--admin-listen")));
  (*server)->Shutdown(absl::ZeroDuration());
}

// Registers a node as node 5, gives it one order, and passes what it reports about moves on.
class OneOrderCoordinator final : public v1::CoordinatorService::Service {
 public:
  OneOrderCoordinator(ClusterKeyPtr key, UnitOrder order)
      : key_(std::move(key)), order_(std::move(order)) {}

  std::vector<UnitReport> TakeReports() { return reports_.get_future().get(); }

  grpc::Status NodeLink(grpc::ServerContext*,
                        grpc::ServerReaderWriter<v1::NodeCommand, v1::NodeReport>* link) override {
    v1::NodeReport report;
    link->Read(&report);
    v1::NodeCommand command;
    const LinkNonces nonces{.node = report.greeting().nonce(), .coordinator = RandomNonce()};
    command.mutable_greeting()->set_nonce(nonces.coordinator);
    command.mutable_greeting()->set_proof(ProveCoordinator(*key_, nonces));
    link->Write(command);
    link->Read(&report);
    EXPECT_TRUE(IsNode(*key_, nonces, 77, "n0", report.proof().key_proof()));
    link->Read(&report);
    EXPECT_EQ(report.registration().name(), "n0");
    command.mutable_registered()->set_node_id(5);
    command.mutable_registered()->set_heartbeat_ms(60'000);
    link->Write(command);
    command.Clear();
    SessionNews news{.number = 7, .closed = {}};
    news.closed.refused.Insert(SessionId{3});
    *command.mutable_sessions() = ToMessage(news);
    link->Write(command);
    // Orders before that are dropped.
    while (report.heartbeat().sessions_heard() < 7) {
      if (!link->Read(&report)) return grpc::Status::CANCELLED;
    }
    command.Clear();
    *command.mutable_moves() = ToMessage(std::vector<UnitOrder>{order_});
    link->Write(command);
    while (link->Read(&report)) {
      if (report.has_moves()) reports_.set_value(*FromMessage(report.moves()));
    }
    return grpc::Status::OK;
  }

 private:
  const ClusterKeyPtr key_;
  const UnitOrder order_;
  std::promise<std::vector<UnitReport>> reports_;
};

TEST_F(CoordinatorLinkTest, CarriesOrdersAndReportsOfMoves) {
  const UnitOrder order{.unit = {TableId{1}, 2, 0},
                        .record = {.owner = NodeId{5},
                                   .move = MoveId{1},
                                   .phase = MovePhase::kOpen,
                                   .source = NodeId{5},
                                   .target = NodeId{6}},
                        .plan = PlanVersion{9}};
  OneOrderCoordinator coordinator(key_, order);
  grpc::Service* const services[] = {&coordinator};
  auto server = RpcServer::Start({.listen = "127.0.0.1:0"}, services);
  ASSERT_THAT(server, IsOk());
  server_ = *std::move(server);
  MoveReportOutbox outbox;
  CoordinatorLinkOptions options = Options("n0");
  options.reports = &outbox;
  std::promise<std::vector<UnitOrder>> heard;
  options.on_orders = [&heard](NodeId self, std::vector<UnitOrder> orders) {
    EXPECT_EQ(self, NodeId{5});
    heard.set_value(std::move(orders));
  };
  {
    CoordinatorLink link(options, node_);
    EXPECT_EQ(heard.get_future().get(), std::vector<UnitOrder>{order});
    const UnitReport report{
        .unit = order.unit, .kind = UnitReport::Kind::kReady, .move = MoveId{1}};
    outbox.Report({report});
    EXPECT_EQ(coordinator.TakeReports(), std::vector<UnitReport>{report});
  }
  server_->Shutdown(absl::Seconds(5));
  server_.reset();
}

TEST_F(CoordinatorLinkTest, RefusesClosedSessionsAndSaysSo) {
  Start();
  CoordinatorLink link(Options("n0"), node_);
  ASSERT_TRUE(AwaitNodes(OneLive));
  const auto open = [this](std::uint64_t* session) {
    grpc::ClientContext context;
    v1::OpenSessionRequest request;
    request.set_trainer("t0");
    request.set_client_nonce(1 + *session);
    request.set_replaces(*session);
    v1::OpenSessionReply reply;
    const grpc::Status status = stub_->OpenSession(&context, request, &reply);
    if (status.ok()) *session = reply.session();
    return status;
  };
  std::uint64_t first = 0;
  ASSERT_THAT(open(&first), IsOk());
  std::uint64_t second = first;
  grpc::Status status;
  const auto is_answered = [&] {
    status = open(&second);
    return status.error_code() != grpc::StatusCode::UNAVAILABLE;
  };
  AwaitFor(is_answered, kTestWaitMax, "a second session is opened");
  ASSERT_THAT(status, IsOk());
  EXPECT_NE(first, second);
  EXPECT_TRUE(node_.Await([&](const FakeShardNode& node) {
    const ClosedSessions& closed = node.closed();
    return closed.settled.Has(SessionId{first}) && closed.refused.Has(SessionId{first}) &&
           !closed.refused.Has(SessionId{second});
  }));
}

// Ranks 0 and 1 join by the word of their clients, and 1 leaves by the node's.
TEST_F(CoordinatorLinkTest, TellsHowFarStepsHaveComeAndWhoIsMissing) {
  Start();
  node_.lacks = {Rank{1}};
  CoordinatorLink link(Options("n0"), node_);
  ASSERT_TRUE(AwaitNodes(OneLive));
  v1::CreateTableRequest request = TableRequest("t");
  request.set_table_json(R"({"name": "t", "rows": 100, "dim": 8, "sync": {}})");
  grpc::ClientContext creating;
  v1::TableReply created;
  const grpc::Status status = admin_->CreateTable(&creating, request, &created);
  ASSERT_THAT(status, IsOk());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    grpc::ClientContext opening, joining;
    v1::OpenSessionRequest open;
    open.set_rank(rank);
    open.set_ranks(2);
    v1::OpenSessionReply session;
    ASSERT_THAT(stub_->OpenSession(&opening, open, &session), IsOk());
    v1::JoinStepsRequest join;
    join.set_session(session.session());
    join.set_session_proof(session.proof());
    join.add_table_ids(ToInt(node_.plan()->FindTable("t")->spec.id));
    v1::JoinStepsReply joined;
    const grpc::Status answer = stub_->JoinSteps(&joining, join, &joined);
    ASSERT_THAT(answer, IsOk());
  }
  const std::vector<Rank> left = {Rank{0}};
  EXPECT_TRUE(node_.Await([&](const FakeShardNode& node) {
    const std::vector<StepMembers>& members = node.table("t").steps.members;
    return !members.empty() && members.back().ranks == left;
  }));
}

TEST_F(CoordinatorLinkTest, StopsWhileTheCoordinatorIsAway) {
  Start();
  const CoordinatorLinkOptions options = Options("n0");
  Stop();
  CoordinatorLink link(options, node_);
  EXPECT_FALSE(link.registered());
}

}  // namespace
}  // namespace embla
