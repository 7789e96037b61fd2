#include "client/transport/grpc_coordinator_channel.h"

#include <memory>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "client/transport/testing/plain_data_service.h"
#include "core/base/testing/status_matchers.h"
#include "core/wire/plan_codec.h"
#include "embla/v1/coordinator.grpc.pb.h"

namespace embla::client {
namespace {

using ::embla::testing::IsOk;

Plan PlanOf(std::uint64_t version) { return Plan(PlanVersion{version}, "test", {}, {}); }

v1::PlanDelta PlanMessage(std::uint64_t version) {
  return wire::ToMessage(DeltaBetween(Plan(), PlanOf(version)));
}

const PlanPtr kNone = std::make_shared<const Plan>();

// Tells every watcher the newest plan, once per version.
class PlainCoordinator final : public v1::CoordinatorService::Service {
 public:
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                       v1::PlanDelta* reply) override {
    MutexLock lock(mu_);
    reply->set_version(version_);
    if (version_ > request->newer_than()) *reply = PlanMessage(version_);
    return grpc::Status::OK;
  }
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override {
    if (request->trainer().empty() || request->client_nonce() != 12) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "somebody else"};
    }
    if (request->has_rank() && (request->rank() != 0 || request->ranks() != 2)) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "another rank"};
    }
    if (request->replaces() == 4) reply->set_session(request->client_name().size());
    reply->set_proof("sixteen bytes ab");
    reply->set_latest(4);
    reply->set_turn(3);
    return grpc::Status::OK;
  }
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                            v1::CloseSessionReply*) override {
    if (request->session() == 8 && request->session_proof() == "sixteen bytes ab") {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "no such session"};
  }
  grpc::Status JoinSteps(grpc::ServerContext*, const v1::JoinStepsRequest* request,
                         v1::JoinStepsReply*) override {
    const bool is_right = request->session() == 8 &&
                          request->session_proof() == "sixteen bytes ab" &&
                          request->table_ids_size() == 2 && request->table_ids(1) == 7;
    return is_right ? grpc::Status::OK : grpc::Status(grpc::StatusCode::NOT_FOUND, "");
  }
  grpc::Status WatchPlan(grpc::ServerContext* context, const v1::GetPlanRequest* request,
                         grpc::ServerWriter<v1::PlanDelta>* writer) override {
    std::uint64_t sent = request->newer_than();
    {
      MutexLock lock(mu_);
      watched_ = request->session_proof() == "sixteen bytes ab" ? request->session() : 0;
    }
    while (!context->IsCancelled()) {
      std::optional<v1::PlanDelta> plan;
      {
        MutexLock lock(mu_);
        if (version_ <= sent) changed_.WaitFor(mu_, absl::Milliseconds(20));
        if (version_ > sent) plan = PlanMessage(sent = version_);
        if (plan.has_value() && next_base_ != 0) plan->set_base(std::exchange(next_base_, 0));
      }
      if (plan.has_value()) writer->Write(*plan);
    }
    return grpc::Status::OK;
  }

  std::uint64_t watched() {
    MutexLock lock(mu_);
    return watched_;
  }
  // The next plan of a watch leads on from `base`.
  void SetVersion(std::uint64_t version, std::uint64_t base = 0) {
    MutexLock lock(mu_);
    next_base_ = base;
    version_ = version;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::uint64_t version_ ABSL_GUARDED_BY(mu_) = 1;
  std::uint64_t next_base_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t watched_ ABSL_GUARDED_BY(mu_) = 0;  // By the last WatchPlan.
};

// The versions a watch has seen.
class Seen {
 public:
  void Add(const PlanPtr& plan) {
    MutexLock lock(mu_);
    versions_.push_back(ToInt(plan->version()));
    changed_.NotifyAll();
  }
  std::vector<std::uint64_t> Await(std::size_t count) {
    MutexLock lock(mu_);
    while (versions_.size() < count) changed_.Wait(mu_);
    return versions_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::uint64_t> versions_ ABSL_GUARDED_BY(mu_);
};

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

TEST(GrpcCoordinatorChannel, AsksForPlansAndSessions) {
  PlainCoordinator coordinator;
  const PlainServer server(coordinator, "127.0.0.1:0");
  const auto channel = MakeGrpcCoordinatorChannel(server.address());
  const auto plan = channel->GetPlan(kNone, Soon());
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(ToInt((*plan)->version()), 1u);
  const auto newer = channel->GetPlan(*plan, Soon());
  ASSERT_THAT(newer, IsOk());
  EXPECT_EQ(*newer, nullptr);
  SessionRequest request{
      .client_name = "somebody", .trainer = "t0", .client_nonce = 12, .rank = Rank{0}, .ranks = 2};
  const auto latest = channel->OpenSession(request, Soon());
  ASSERT_THAT(latest, IsOk());
  EXPECT_EQ(latest->session, SessionId{});
  request.replaces = latest->latest;
  const auto session = channel->OpenSession(request, Soon());
  ASSERT_THAT(session, IsOk());
  EXPECT_EQ(ToInt(session->session), 8u);
  EXPECT_EQ(session->turn, 3u);
  const TableId tables[] = {TableId{3}, TableId{7}};
  EXPECT_EQ(channel->JoinSteps(session->session, session->proof, tables, Soon()), absl::OkStatus());
  EXPECT_EQ(channel->CloseSession(session->session, session->proof, Soon()), absl::OkStatus());
  EXPECT_EQ(channel->CloseSession(SessionId{9}, {}, Soon()).code(), absl::StatusCode::kNotFound);
}

TEST(GrpcCoordinatorChannel, UnreachableCoordinatorIsNamed) {
  const auto channel = MakeGrpcCoordinatorChannel("127.0.0.1:1");
  const absl::Status status = channel->GetPlan(kNone, Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("coordinator 127.0.0.1:1"));
}

TEST(GrpcCoordinatorChannel, WatchSeesNewPlansAndSurvivesARestart) {
  PlainCoordinator coordinator;
  auto server = std::make_unique<PlainServer>(coordinator, "127.0.0.1:0");
  const std::string address = server->address();
  const auto channel = MakeGrpcCoordinatorChannel(address);
  Seen seen;
  SessionGrant session{.session = SessionId{8}, .latest = {}, .turn = 0, .proof = {}};
  std::copy_n("sixteen bytes ab", session.proof.size(), session.proof.begin());
  channel->StartWatch(kNone, session, [&](const PlanPtr& plan) { seen.Add(plan); });
  EXPECT_THAT(seen.Await(1), ::testing::ElementsAre(1));
  coordinator.SetVersion(2);
  EXPECT_THAT(seen.Await(2), ::testing::ElementsAre(1, 2));
  server.reset();
  server = std::make_unique<PlainServer>(coordinator, address);
  coordinator.SetVersion(5);
  EXPECT_THAT(seen.Await(3), ::testing::ElementsAre(1, 2, 5));
  EXPECT_EQ(coordinator.watched(), 8u);
  channel->StopWatch();
}

TEST(GrpcCoordinatorChannel, WatchFollowsWhatLeadsOnAndAsksAgainWhereItDoesNot) {
  PlainCoordinator coordinator;
  const PlainServer server(coordinator, "127.0.0.1:0");
  const auto channel = MakeGrpcCoordinatorChannel(server.address());
  Seen seen;
  channel->StartWatch(kNone, {}, [&](const PlanPtr& plan) { seen.Add(plan); });
  EXPECT_THAT(seen.Await(1), ::testing::ElementsAre(1));
  coordinator.SetVersion(2, 1);
  EXPECT_THAT(seen.Await(2), ::testing::ElementsAre(1, 2));
  coordinator.SetVersion(9, 7);  // Nobody has plan 7: the watch that is begun anew brings all of 9.
  EXPECT_THAT(seen.Await(3), ::testing::ElementsAre(1, 2, 9));
  channel->StopWatch();
}

TEST(GrpcCoordinatorChannel, WatchOfACoordinatorThatIsDownCanBeStopped) {
  const auto channel = MakeGrpcCoordinatorChannel("127.0.0.1:1");
  channel->StartWatch(kNone, {}, [](const PlanPtr&) { ADD_FAILURE(); });
  channel->StopWatch();
}

}  // namespace
}  // namespace embla::client
