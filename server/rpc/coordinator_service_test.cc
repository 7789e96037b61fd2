#include "server/rpc/coordinator_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "core/base/build_version.h"
#include "core/base/log_level.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/wire/plan_codec.h"
#include "core/wire/status_codec.h"
#include "server/rpc/coordinator_fixture.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A shard server as any program with the protocol could be one: installs every plan at once.
class PlainNode {
 public:
  PlainNode(v1::CoordinatorService::Stub& stub, const ClusterKey& key, const std::string& name,
            std::uint64_t boot_id)
      : stream_(stub.NodeLink(&context_)) {
    v1::Registration registration;
    registration.set_name(name);
    registration.set_address("127.0.0.1:9");
    registration.set_boot_id(boot_id);
    registration.set_accept_loss(true);
    registration.set_protocol_version(kProtocolVersion);
    v1::Device& device = *registration.add_devices();
    device.set_kind(v1::Device::KIND_CPU);
    device.set_memory_bytes(1 << 20);
    IntroduceNode(*stream_, std::move(registration), key);
  }
  ~PlainNode() {
    if (finished_) return;
    context_.TryCancel();
    stream_->Finish();
  }

  bool Read(v1::NodeCommand& command) { return stream_->Read(&command); }
  // A heartbeat by a clock that is `ahead` of this machine's.
  void BeatAhead(absl::Duration ahead) {
    v1::NodeReport report;
    report.mutable_heartbeat()->set_unix_ms(absl::ToUnixMillis(absl::Now() + ahead));
    stream_->Write(report);
  }
  void Beat(std::uint64_t installed, std::uint64_t failed = 0) {
    v1::NodeReport report;
    report.mutable_heartbeat()->set_plan_version(installed);
    if (failed != 0) {
      report.mutable_heartbeat()->set_failed_plan_version(failed);
      report.mutable_heartbeat()->set_failure_code(8);
      report.mutable_heartbeat()->set_failure_message("no memory here");
    }
    stream_->Write(report);
  }
  grpc::Status Finish() {
    v1::NodeCommand command;
    while (Read(command)) {
    }
    finished_ = true;
    return stream_->Finish();
  }
  // Reads plans until one has `tables` tables; answers each as installed, or that one as failed.
  void InstallUntil(int tables, bool fail = false) {
    v1::NodeCommand command;
    while (Read(command)) {
      if (!command.has_install_plan()) continue;
      auto plan = wire::ApplyMessage(command.install_plan(), *plan_);
      ASSERT_THAT(plan, IsOk());
      plan_ = *std::move(plan);
      const bool found = static_cast<int>(plan_->tables().size()) == tables;
      const std::uint64_t version = ToInt(plan_->version());
      if (found && fail) {
        Beat(version - 1, version);
      } else {
        Beat(version);
      }
      if (found) return;
    }
    FAIL() << "the link ended";
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::NodeReport, v1::NodeCommand>> stream_;
  PlanPtr plan_ = std::make_shared<const Plan>();  // The latest one received.
  bool finished_ = false;
};

class CoordinatorServiceTest : public CoordinatorFixture {
 protected:
  // A node is in the plan once ListNodes shows it.
  void AwaitNode() {
    const auto is_listed = [&] {
      grpc::ClientContext context;
      v1::ListNodesReply nodes;
      EXPECT_THAT(admin_->ListNodes(&context, {}, &nodes), IsOk());
      return nodes.nodes_size() > 0;
    };
    ASSERT_TRUE(AwaitFor(is_listed, absl::Seconds(60), "a node is in the plan"));
  }
};

TEST_F(CoordinatorServiceTest, ANodeIsWelcomedAndHearsOfClosedSessionsBeforeThePlan) {
  Start();
  v1::OpenSessionReply session;
  grpc::ClientContext opening, closing;
  ASSERT_THAT(stub_->OpenSession(&opening, {}, &session), IsOk());
  v1::CloseSessionRequest close;
  close.set_session(session.session());
  close.set_session_proof(session.proof());
  v1::CloseSessionReply closed;
  ASSERT_THAT(stub_->CloseSession(&closing, close, &closed), IsOk());
  PlainNode node(*stub_, *key_, "n0", 1);
  v1::NodeCommand command;
  ASSERT_TRUE(node.Read(command));
  ASSERT_TRUE(command.has_registered());
  EXPECT_GT(command.registered().node_id(), 0u);
  EXPECT_EQ(command.registered().cluster_id(), "test-cluster");
  EXPECT_EQ(command.registered().heartbeat_ms(), 50u);
  ASSERT_TRUE(node.Read(command));
  ASSERT_EQ(command.sessions().refused_size(), 1);
  EXPECT_EQ(command.sessions().refused(0).first(), session.session());
  EXPECT_EQ(command.sessions().refused(0).last(), session.session());
  EXPECT_EQ(command.sessions().number() >> 32, session.session() >> 32);
  // A tick between the registration and its answer publishes the news a second time.
  do {
    ASSERT_TRUE(node.Read(command));
  } while (command.has_sessions());
  ASSERT_TRUE(command.has_install_plan()) << command.ShortDebugString();
  const auto plan = wire::ApplyMessage(command.install_plan(), Plan());
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ((*plan)->nodes().size(), 1u);
  EXPECT_EQ((*plan)->nodes()[0].name, "n0");
}

TEST_F(CoordinatorServiceTest, ServersAreToldWhatToLogAndNodesThatAreDownAreNamed) {
  Start();
  const auto set = [&](const std::string& server, v1::LogLevel level, v1::SetLogLevelReply& reply) {
    v1::SetLogLevelRequest request;
    request.set_server(server);
    request.set_level(level);
    grpc::ClientContext context;
    return wire::FromGrpc(admin_->SetLogLevel(&context, request, &reply));
  };
  v1::SetLogLevelReply reply;
  {
    PlainNode gone(*stub_, *key_, "gone", 1);
    v1::NodeCommand command;
    ASSERT_TRUE(gone.Read(command));
  }
  PlainNode node(*stub_, *key_, "n0", 1);
  v1::NodeCommand command;
  ASSERT_TRUE(node.Read(command));
  ASSERT_TRUE(AwaitFor(
      [&] {
        reply.Clear();
        EXPECT_THAT(set("", v1::LOG_LEVEL_WARNING, reply), IsOk());
        return reply.left_out_size() == 1;
      },
      absl::Seconds(60), "the node that is gone is missed"));
  EXPECT_EQ(reply.left_out(0), "gone");
  EXPECT_THAT(reply.servers(), ElementsAre("coordinator", "n0"));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kWarning);
  while (node.Read(command) && !command.has_log_level()) {
  }
  EXPECT_EQ(command.log_level(), v1::LOG_LEVEL_WARNING);

  EXPECT_THAT(set("coordinator", v1::LOG_LEVEL_INFO, reply), IsOk());
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
  EXPECT_THAT(set("n0", v1::LOG_LEVEL_ERROR, reply), IsOk());
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo) << "it is the node that was meant";
  EXPECT_THAT(set("gone", v1::LOG_LEVEL_INFO, reply),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("node gone is down")));
  EXPECT_THAT(set("nobody", v1::LOG_LEVEL_INFO, reply),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no node nobody")));
  EXPECT_THAT(set("n0", v1::LOG_LEVEL_UNSPECIFIED, reply),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("level")));
}

TEST_F(CoordinatorServiceTest, ASecondLiveNodeOfANameIsRefused) {
  Start();
  PlainNode first(*stub_, *key_, "n0", 1);
  v1::NodeCommand command;
  ASSERT_TRUE(first.Read(command));
  PlainNode second(*stub_, *key_, "n0", 2);
  EXPECT_EQ(second.Finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(CoordinatorServiceTest, AHeartbeatBeforeTheRegistrationIsRefused) {
  Start();
  grpc::ClientContext context;
  const auto stream = stub_->NodeLink(&context);
  v1::NodeReport report;
  report.mutable_heartbeat();
  stream->Write(report);
  v1::NodeCommand command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(CoordinatorServiceTest, ANodeWithoutTheKeyIsRefused) {
  Start();
  PlainNode node(*stub_, ClusterKey::Generate(), "n0", 1);
  const grpc::Status status = node.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("--cluster-key"));
  EXPECT_TRUE(host_->plan()->nodes().empty());
}

TEST_F(CoordinatorServiceTest, ARegistrationWithoutAGreetingIsRefused) {
  Start();
  grpc::ClientContext context;
  const auto stream = stub_->NodeLink(&context);
  v1::NodeReport report;
  report.mutable_registration()->set_name("n0");
  stream->Write(report);
  v1::NodeCommand command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(host_->plan()->nodes().empty());
}

// The proof is of one name, and of one process.
TEST_F(CoordinatorServiceTest, ARegistrationUnderAnotherNameThanTheProofsIsRefused) {
  Start();
  grpc::ClientContext context;
  const auto stream = stub_->NodeLink(&context);
  v1::NodeReport report;
  report.mutable_greeting()->set_nonce(RandomNonce());
  v1::NodeCommand command;
  ASSERT_TRUE(stream->Write(report));
  ASSERT_TRUE(stream->Read(&command));
  const LinkNonces nonces{.node = report.greeting().nonce(),
                          .coordinator = command.greeting().nonce()};
  report.mutable_proof()->set_name("n0");
  report.mutable_proof()->set_boot_id(1);
  report.mutable_proof()->set_key_proof(ProveNode(*key_, nonces, 1, "n0"));
  ASSERT_TRUE(stream->Write(report));
  report.mutable_registration()->set_name("n1");
  report.mutable_registration()->set_boot_id(1);
  stream->Write(report);
  EXPECT_FALSE(stream->Read(&command));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("n1"));
}

// Longer than a stranger may send at all, let alone before its proof.
TEST_F(CoordinatorServiceTest, ANodeThatHasProvedItselfMaySayMuch) {
  Start();
  grpc::ClientContext context;
  const auto stream = stub_->NodeLink(&context);
  v1::Registration registration;
  registration.set_name("n0");
  registration.set_address("127.0.0.1:9");
  registration.set_boot_id(1);
  registration.set_protocol_version(kProtocolVersion);
  registration.set_accept_loss(true);
  registration.add_devices()->set_kind(v1::Device::KIND_CPU);
  registration.mutable_devices(0)->set_memory_bytes(1 << 20);
  registration.set_testimony(std::string(24 << 20, 'x'));
  IntroduceNode(*stream, std::move(registration), *key_);
  v1::NodeCommand command;
  EXPECT_TRUE(stream->Read(&command));
  EXPECT_TRUE(command.has_registered());
  context.TryCancel();
  stream->Finish();
}

// The proof of one link is of no use on another one.
TEST_F(CoordinatorServiceTest, ARepeatedProofIsRefused) {
  Start();
  const LinkNonces overheard{.node = RandomNonce(), .coordinator = RandomNonce()};
  grpc::ClientContext context;
  const auto stream = stub_->NodeLink(&context);
  v1::NodeReport report;
  report.mutable_greeting()->set_nonce(overheard.node);
  v1::NodeCommand command;
  ASSERT_TRUE(stream->Write(report));
  ASSERT_TRUE(stream->Read(&command));
  report.mutable_proof()->set_name("n0");
  report.mutable_proof()->set_boot_id(1);
  report.mutable_proof()->set_key_proof(ProveNode(*key_, overheard, 1, "n0"));
  stream->Write(report);
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(CoordinatorServiceTest, CreateTableWaitsForTheNode) {
  Start();
  PlainNode node(*stub_, *key_, "n0", 1);
  std::thread installer([&] { node.InstallUntil(1); });
  AwaitNode();
  grpc::ClientContext context;
  v1::TableReply reply;
  const grpc::Status status = admin_->CreateTable(&context, TableRequest("clicks"), &reply);
  installer.join();
  ASSERT_THAT(status, IsOk());
  EXPECT_THAT(reply.table_plan_json(), HasSubstr("clicks"));

  grpc::ClientContext get;
  v1::PlanDelta plan;
  ASSERT_THAT(stub_->GetPlan(&get, {}, &plan), IsOk());
  EXPECT_EQ(plan.base(), 0u);
  EXPECT_EQ(plan.tables_size(), 1);

  grpc::ClientContext again;
  EXPECT_EQ(admin_->CreateTable(&again, TableRequest("clicks"), &reply).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
}

// Requests that are longer than other methods may have.
TEST_F(CoordinatorServiceTest, CreateTablesMakesAllByOneVersionOfThePlan) {
  Start();
  PlainNode node(*stub_, *key_, "n0", 1);
  ASSERT_TRUE(AwaitFor([&] { return !host_->plan()->nodes().empty(); }, absl::Seconds(60),
                       "the node joins"));
  const std::uint64_t before = ToInt(host_->plan()->version());
  v1::CreateTablesRequest request;
  request.set_if_not_exists(true);
  for (const char* const name : {"a", "b"}) {
    *request.add_tables() = TableRequest(name);
    request.mutable_tables()->rbegin()->mutable_table_json()->append(2 << 20, ' ');
  }
  std::thread installer([&] { node.InstallUntil(2); });
  v1::CreateTablesReply reply;
  const auto create = [&] {
    grpc::ClientContext context;
    return admin_->CreateTables(&context, request, &reply);
  };
  const grpc::Status status = create();
  installer.join();
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(reply.plan_version(), before + 1);
  EXPECT_EQ(host_->plan()->tables().size(), 2u);
  ASSERT_THAT(create(), IsOk());
  EXPECT_THAT(reply.existed(), ElementsAre("a", "b"));

  request.mutable_tables(1)->set_table_json(R"({"name": "b", "rows": 100})");
  EXPECT_THAT(create().error_message(), HasSubstr("table 2 of 2: table_json"));
  request.mutable_tables(1)->set_table_json(R"({"name": "b", "rows": 7, "dim": 8})");
  const grpc::Status differs = create();
  EXPECT_EQ(differs.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(differs.error_message(),
              AllOf(HasSubstr("table b: "), HasSubstr("rows is 100, asked for is 7")));
}

TEST_F(CoordinatorServiceTest, ATableThatANodeCannotHoldIsRolledBack) {
  Start();
  PlainNode node(*stub_, *key_, "n0", 1);
  std::thread installer([&] { node.InstallUntil(1, /*fail=*/true); });
  AwaitNode();
  grpc::ClientContext context;
  v1::TableReply reply;
  const grpc::Status status = admin_->CreateTable(&context, TableRequest("clicks"), &reply);
  installer.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("no memory here"));
  EXPECT_TRUE(host_->plan()->tables().empty());
}

TEST_F(CoordinatorServiceTest, StoppingFailsACreationThatIsAwaited) {
  Start();
  PlainNode node(*stub_, *key_, "n0", 1);
  AwaitNode();
  grpc::Status status;
  std::thread creator([&] {
    grpc::ClientContext context;
    v1::TableReply reply;
    status = admin_->CreateTable(&context, TableRequest("clicks"), &reply);
  });
  // The plan with the table reaches the node, which does not answer.
  v1::NodeCommand command;
  bool seen = false;
  while (!seen && node.Read(command)) {
    seen = command.has_install_plan() && command.install_plan().tables_size() == 1;
  }
  Stop();
  creator.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CoordinatorServiceTest, WatchersGetTheCurrentPlanAndNewerOnes) {
  Start();
  PlainNode first(*stub_, *key_, "n0", 1);
  v1::NodeCommand command;
  ASSERT_TRUE(first.Read(command));
  grpc::ClientContext context;
  const auto watch = stub_->WatchPlan(&context, {});
  v1::PlanDelta plan;
  ASSERT_TRUE(watch->Read(&plan));
  EXPECT_EQ(plan.base(), 0u);
  const PlanPtr before = *wire::ApplyMessage(plan, Plan());
  PlainNode second(*stub_, *key_, "n1", 2);
  ASSERT_TRUE(watch->Read(&plan));
  EXPECT_EQ(plan.base(), ToInt(before->version()));
  EXPECT_EQ(plan.nodes_size(), 1) << "the first node is as before";
  EXPECT_EQ((*wire::ApplyMessage(plan, *before))->nodes().size(), 2u);
  Stop();
  EXPECT_FALSE(watch->Read(&plan));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// The versions of another process of the coordinator may be other plans.
TEST_F(CoordinatorServiceTest, WhoHasAPlanGetsWhatLeadsOnFromItAndOthersTheWhole) {
  Start();
  const auto get = [this](std::uint64_t newer_than, std::uint64_t source) {
    grpc::ClientContext context;
    v1::GetPlanRequest request;
    request.set_newer_than(newer_than);
    request.set_source(source);
    v1::PlanDelta plan;
    const grpc::Status status = stub_->GetPlan(&context, request, &plan);
    EXPECT_THAT(status, IsOk());
    return plan;
  };
  const v1::PlanDelta first = get(0, 0);
  EXPECT_NE(first.source(), 0u);
  PlainNode node(*stub_, *key_, "n0", 1);
  v1::NodeCommand command;
  ASSERT_TRUE(node.Read(command));
  while (!command.has_install_plan()) ASSERT_TRUE(node.Read(command));
  EXPECT_EQ(get(first.version(), first.source()).base(), first.version());
  EXPECT_EQ(get(first.version(), first.source() + 1).base(), 0u);
  EXPECT_EQ(get(first.version(), 0).base(), 0u);
  const v1::PlanDelta whole = get(0, first.source());
  EXPECT_EQ(whole.base(), 0u);
  EXPECT_EQ(whole.nodes_size(), 1);
  EXPECT_EQ(get(whole.version(), whole.source()).nodes_size(), 0) << "nothing is newer";
}

TEST_F(CoordinatorServiceTest, SessionsAreNeverGivenTwiceEvenAfterARestart) {
  std::set<std::uint64_t> sessions;
  v1::OpenSessionReply first;
  for (int round = 0; round < 3; ++round) {
    Start();
    for (int i = 0; i < 5; ++i) {
      grpc::ClientContext context;
      v1::OpenSessionReply reply;
      ASSERT_THAT(stub_->OpenSession(&context, {}, &reply), IsOk());
      EXPECT_NE(reply.session(), 0u);
      EXPECT_TRUE(sessions.insert(reply.session()).second);
      if (sessions.size() == 1) first = reply;
    }
    Stop();
  }
  Start();
  v1::CloseSessionRequest close;
  close.set_session(first.session());
  close.set_session_proof(first.proof());
  v1::CloseSessionReply closed;
  grpc::ClientContext context;
  EXPECT_THAT(stub_->CloseSession(&context, close, &closed), IsOk());
}

TEST_F(CoordinatorServiceTest, WatchesOfASessionAreForThoseWhoHaveItsProof) {
  Start();
  v1::OpenSessionReply session;
  grpc::ClientContext opening;
  ASSERT_THAT(stub_->OpenSession(&opening, {}, &session), IsOk());
  v1::GetPlanRequest request;
  request.set_session(session.session());
  request.set_session_proof(session.proof());
  v1::PlanDelta plan;
  {
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->WatchPlan(&context, request)->Read(&plan));
    context.TryCancel();
  }
  for (const std::string& proof : {std::string(), std::string(16, 'x'), std::string("short")}) {
    request.set_session_proof(proof);
    grpc::ClientContext context;
    const auto watch = stub_->WatchPlan(&context, request);
    EXPECT_FALSE(watch->Read(&plan));
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
}

TEST_F(CoordinatorServiceTest, ATrainersClientThatAsksAgainIsAnsweredWithItsSession) {
  Start();
  const auto ask = [this](std::uint64_t client_nonce, std::uint64_t replaces) {
    grpc::ClientContext context;
    v1::OpenSessionRequest request;
    request.set_trainer("t0");
    request.set_client_nonce(client_nonce);
    request.set_replaces(replaces);
    v1::OpenSessionReply reply;
    const grpc::Status status = stub_->OpenSession(&context, request, &reply);
    EXPECT_THAT(status, IsOk());
    return reply;
  };
  const std::uint64_t first = ask(1, 0).session();
  EXPECT_NE(first, 0u);
  EXPECT_EQ(ask(1, 0).session(), first);
  const v1::OpenSessionReply other = ask(2, 0);
  EXPECT_EQ(other.session(), 0u);
  EXPECT_EQ(other.latest(), first);
  const std::uint64_t second = ask(2, first).session();
  EXPECT_GT(second, first);
  EXPECT_EQ(ask(3, first).latest(), second);
}

TEST_F(CoordinatorServiceTest, RanksAndJoinsAreCheckedAndExplained) {
  Start();
  const auto open = [this](std::optional<std::uint32_t> rank, std::uint32_t ranks,
                           v1::OpenSessionReply* reply) {
    grpc::ClientContext context;
    v1::OpenSessionRequest request;
    if (rank.has_value()) request.set_rank(*rank);
    request.set_ranks(ranks);
    return stub_->OpenSession(&context, request, reply);
  };
  v1::OpenSessionReply ranked, rankless;
  EXPECT_EQ(open(0, 0, &ranked).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(open(std::nullopt, 2, &ranked).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(open(2, 2, &ranked).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_THAT(open(0, 2, &ranked), IsOk());
  ASSERT_THAT(open(std::nullopt, 0, &rankless), IsOk());
  const auto join = [this](const v1::OpenSessionReply& session, const std::string& proof) {
    grpc::ClientContext context;
    v1::JoinStepsRequest request;
    request.set_session(session.session());
    request.set_session_proof(proof);
    request.add_table_ids(7);
    v1::JoinStepsReply reply;
    return stub_->JoinSteps(&context, request, &reply);
  };
  EXPECT_EQ(join(ranked, ranked.proof()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(join(ranked, rankless.proof()).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(join(ranked, "short").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(join(rankless, rankless.proof()).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::CloseSessionRequest close;
  close.set_session(ranked.session());
  close.set_session_proof(ranked.proof());
  v1::CloseSessionReply closed;
  grpc::ClientContext closing;
  ASSERT_THAT(stub_->CloseSession(&closing, close, &closed), IsOk());
  EXPECT_EQ(join(ranked, ranked.proof()).error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(CoordinatorServiceTest, AdminRequestsAreCheckedAndExplained) {
  Start();
  struct Case {
    std::string table;
    std::string placement;
    const char* message;
  };
  for (const Case& bad : {Case{"{", "", "table_json"}, Case{R"({"name": 5})", "", "table_json"},
                          Case{R"({"name": "t", "rows": 1, "dim": 4, "typo": 1})", "", "typo"},
                          Case{R"({"name": "t", "rows": 1, "dim": 4})", "[]", "placement_json"}}) {
    v1::CreateTableRequest request;
    request.set_table_json(bad.table);
    request.set_placement_json(bad.placement);
    grpc::ClientContext context;
    v1::TableReply reply;
    const grpc::Status status = admin_->CreateTable(&context, request, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad.table;
    EXPECT_THAT(status.error_message(), HasSubstr(bad.message));
  }
  grpc::ClientContext drop;
  v1::DropTableRequest none;
  none.set_name("none");
  v1::DropTableReply dropped;
  EXPECT_EQ(admin_->DropTable(&drop, none, &dropped).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CoordinatorServiceTest, JobsAreCheckedAndExplained) {
  Start();
  const auto start = [this](const v1::StartJobRequest& request) {
    grpc::ClientContext context;
    v1::JobReply reply;
    return admin_->StartJob(&context, request, &reply);
  };
  v1::StartJobRequest request;
  EXPECT_EQ(start(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_reshard()->set_table("nowhere");
  request.mutable_reshard()->set_shards(2);
  EXPECT_EQ(start(request).error_code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_drain()->set_node("nobody");
  EXPECT_EQ(start(request).error_code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_rebalance();
  request.set_units_in_flight(1'000'000);
  EXPECT_EQ(start(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  grpc::ClientContext get;
  v1::GetJobRequest job;
  job.set_id(9);
  v1::JobReply reply;
  const grpc::Status missing = admin_->GetJob(&get, job, &reply);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(missing.error_message(), HasSubstr("there is no job 9"));
  grpc::ClientContext control;
  EXPECT_EQ(admin_->ControlJob(&control, {}, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext list;
  v1::ListJobsReply jobs;
  ASSERT_THAT(admin_->ListJobs(&list, {}, &jobs), IsOk());
  EXPECT_EQ(jobs.jobs_size(), 0);
}

TEST_F(CoordinatorServiceTest, ADrainedNodeIsListedAsSuch) {
  Start();
  PlainNode node(*stub_, *key_, "n0", 1);
  node.InstallUntil(0);
  v1::StartJobRequest request;
  request.mutable_drain()->set_node("n0");
  grpc::ClientContext context;
  v1::JobReply reply;
  const grpc::Status drained = admin_->StartJob(&context, request, &reply);
  ASSERT_THAT(drained, IsOk());
  EXPECT_EQ(reply.job().state(), v1::JOB_STATE_DONE);  // It had nothing.
  EXPECT_EQ(reply.job().description(), "drain node n0");
  grpc::ClientContext list;
  v1::ListNodesReply nodes;
  ASSERT_THAT(admin_->ListNodes(&list, {}, &nodes), IsOk());
  EXPECT_TRUE(nodes.nodes(0).drained());
}

TEST_F(CoordinatorServiceTest, TellsHowClocksDifferAndWhetherRowsOutliveProcesses) {
  Start();
  PlainNode node(*stub_, *key_, "n0", 1);
  constexpr absl::Duration kHeardWithin = absl::Seconds(60);
  node.BeatAhead(absl::Hours(-1));
  v1::ListNodesReply nodes;
  ASSERT_TRUE(AwaitFor(
      [&] {
        grpc::ClientContext list;
        nodes.Clear();
        return admin_->ListNodes(&list, {}, &nodes).ok() && nodes.nodes_size() == 1 &&
               nodes.nodes(0).has_clock_ahead_ms();
      },
      kHeardWithin, "a heartbeat is heard"));
  EXPECT_LE(nodes.nodes(0).clock_ahead_ms(), -3'600'000);
  EXPECT_GE(nodes.nodes(0).clock_ahead_ms(), -3'600'000 - absl::ToInt64Milliseconds(kHeardWithin));
  EXPECT_EQ(nodes.nodes(0).directory(), v1::NodeStatus::DIRECTORY_NONE);
  EXPECT_EQ(nodes.nodes(0).memory_id(), "");  // This node has not said it.

  grpc::ClientContext status_context;
  v1::ClusterStatus cluster;
  const absl::Time before = absl::Now();
  ASSERT_THAT(admin_->GetClusterStatus(&status_context, {}, &cluster), IsOk());
  EXPECT_GE(cluster.now_unix_ms(), absl::ToUnixMillis(before));
  EXPECT_LE(cluster.now_unix_ms(), absl::ToUnixMillis(absl::Now()));
  EXPECT_EQ(cluster.protocol_version(), kProtocolVersion);
}

TEST_F(CoordinatorServiceTest, PlansATableOnAStatedTopologyWithoutCreatingIt) {
  Start();
  v1::PlanTableRequest request;
  request.set_table_json(R"({"name": "big", "rows": 1600000000, "dim": 8, "row_granules": 4096})");
  request.set_placement_json(R"({"sharding": "row_wise"})");
  request.set_nodes(2);
  request.set_devices_per_node(8);
  request.set_device_memory_bytes(std::int64_t{80} << 30);
  grpc::ClientContext context;
  v1::TableReply reply;
  const grpc::Status status = admin_->PlanTable(&context, request, &reply);
  ASSERT_THAT(status, IsOk());
  EXPECT_THAT(reply.table_plan_json(), HasSubstr("big"));
  EXPECT_TRUE(host_->plan()->tables().empty());

  grpc::ClientContext status_context;
  v1::ClusterStatus cluster;
  ASSERT_THAT(admin_->GetClusterStatus(&status_context, {}, &cluster), IsOk());
  EXPECT_EQ(cluster.cluster_id(), "test-cluster");
  EXPECT_EQ(cluster.tables(), 0u);
}

}  // namespace
}  // namespace embla
