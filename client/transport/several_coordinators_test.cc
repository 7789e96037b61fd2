// The channel over a list of coordinators: it follows redirects, leaves those that are away, and
// refuses two clusters.
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/admin.h"
#include "client/transport/grpc_coordinator_channel.h"
#include "client/transport/testing/plain_data_service.h"
#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/wire/plan_codec.h"
#include "core/wire/redirect.h"
#include "embla/v1/admin.grpc.pb.h"
#include "embla/v1/coordinator.grpc.pb.h"

namespace embla::client::several_coordinators_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

const PlanPtr kNone = std::make_shared<const Plan>();

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// Leads, or redirects or cancels every call.
class Member final : public v1::CoordinatorService::Service {
 public:
  explicit Member(std::string cluster) : cluster_(std::move(cluster)) {}

  void Redirect(const wire::Redirect& redirect) {
    const MutexLock lock(mu_);
    answer_ = wire::RedirectStatus(redirect, "a standby");
  }
  void Stop() {
    const MutexLock lock(mu_);
    answer_ = grpc::Status::CANCELLED;
  }
  void Lead() {
    const MutexLock lock(mu_);
    answer_ = grpc::Status::OK;
  }
  int calls() const {
    const MutexLock lock(mu_);
    return calls_;
  }

  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                       v1::PlanDelta* reply) override {
    const MutexLock lock(mu_);
    ++calls_;
    if (!answer_.ok()) return answer_;
    const Plan plan(PlanVersion{3}, cluster_, {}, {});
    if (request->newer_than() < 3) *reply = wire::ToMessage(DeltaBetween(Plan(), plan));
    reply->set_cluster_id(cluster_);
    return grpc::Status::OK;
  }
  grpc::Status WatchPlan(grpc::ServerContext* context, const v1::GetPlanRequest* request,
                         grpc::ServerWriter<v1::PlanDelta>* writer) override {
    v1::PlanDelta plan;
    v1::GetPlanRequest all = *request;
    all.set_newer_than(0);
    if (const grpc::Status status = GetPlan(nullptr, &all, &plan); !status.ok()) return status;
    writer->Write(plan);
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(2));
    return grpc::Status::OK;
  }

 private:
  const std::string cluster_;
  mutable Mutex mu_;
  grpc::Status answer_ ABSL_GUARDED_BY(mu_) = grpc::Status::OK;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
};

class SeveralCoordinatorsTest : public ::testing::Test {
 protected:
  Member a_{"c"};
  Member b_{"c"};
  Member foreign_{"other"};
  std::unique_ptr<PlainServer> on_a_ = std::make_unique<PlainServer>(a_, "127.0.0.1:0");
  std::unique_ptr<PlainServer> on_b_ = std::make_unique<PlainServer>(b_, "127.0.0.1:0");
  PlainServer on_foreign_{foreign_, "127.0.0.1:0"};
};

TEST_F(SeveralCoordinatorsTest, ACallFollowsTheRedirectAlsoOfAnOnlyAddress) {
  a_.Redirect({on_b_->address(), "", "c"});
  const auto channel = MakeGrpcCoordinatorChannel(on_a_->address());
  const auto plan = channel->GetPlan(kNone, Soon());
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ((*plan)->cluster_id(), "c");
  const int calls = a_.calls();
  EXPECT_THAT(channel->GetPlan(*plan, Soon()), IsOk());
  EXPECT_EQ(a_.calls(), calls) << "the leader is asked from now on";
}

TEST_F(SeveralCoordinatorsTest, ACallSkipsThoseThatAreAway) {
  const auto channel = MakeGrpcCoordinatorChannel(absl::StrCat("127.0.0.1:1,", on_b_->address()));
  EXPECT_THAT(channel->GetPlan(kNone, Soon()), IsOk());
}

// A server that stops cancels what it has not answered.
TEST_F(SeveralCoordinatorsTest, ACallSkipsOneThatStops) {
  a_.Stop();
  EXPECT_THAT(MakeGrpcCoordinatorChannel(on_a_->address())->GetPlan(kNone, Soon()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopped before it answered")));
  const auto channel =
      MakeGrpcCoordinatorChannel(absl::StrCat(on_a_->address(), ",", on_b_->address()));
  EXPECT_THAT(channel->GetPlan(kNone, Soon()), IsOk());
}

TEST_F(SeveralCoordinatorsTest, AnAdminCallOfOneThatStopsMayBeMadeAgain) {
  class Stopping final : public v1::AdminService::Service {
    grpc::Status GetClusterStatus(grpc::ServerContext*, const v1::GetClusterStatusRequest*,
                                  v1::ClusterStatus*) override {
      return grpc::Status::CANCELLED;
    }
  } stopping;
  const PlainServer server(stopping, "127.0.0.1:0");
  const auto admin = Admin::Connect(server.address(), absl::Seconds(60));
  ASSERT_THAT(admin, IsOk());
  v1::ClusterStatus reply;
  EXPECT_THAT((*admin)->Call(v1::GetClusterStatusRequest(), reply),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopped before it answered")));
}

TEST_F(SeveralCoordinatorsTest, WhileNobodyLeadsACallEndsAfterOneRound) {
  a_.Redirect({});
  b_.Redirect({});
  const auto channel =
      MakeGrpcCoordinatorChannel(absl::StrCat(on_a_->address(), ",", on_b_->address()));
  EXPECT_THAT(channel->GetPlan(kNone, Soon()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a standby")));
  EXPECT_LE(a_.calls() + b_.calls(), 3);
  b_.Lead();
  EXPECT_THAT(channel->GetPlan(kNone, Soon()), IsOk());
}

TEST_F(SeveralCoordinatorsTest, TwoThatNameEachOtherDoNotHoldACallUpForEver) {
  a_.Redirect({on_b_->address(), "", "c"});
  b_.Redirect({on_a_->address(), "", "c"});
  const auto channel =
      MakeGrpcCoordinatorChannel(absl::StrCat(on_a_->address(), ",", on_b_->address()));
  EXPECT_THAT(channel->GetPlan(kNone, Soon()).status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(SeveralCoordinatorsTest, TheWatchGoesToTheNextLeader) {
  const auto channel =
      MakeGrpcCoordinatorChannel(absl::StrCat(on_a_->address(), ",", on_b_->address()));
  channel->StartWatch(kNone, {}, [](const PlanPtr&) {});
  ASSERT_TRUE(AwaitFor([&] { return a_.calls() > 0; }, absl::Seconds(60), "a watch of a"));
  on_a_.reset();
  EXPECT_TRUE(AwaitFor([&] { return b_.calls() > 0; }, absl::Seconds(60), "a watch of b"));
  channel->StopWatch();
}

TEST_F(SeveralCoordinatorsTest, AListOfTwoClustersIsRefused) {
  const auto channel =
      MakeGrpcCoordinatorChannel(absl::StrCat(on_a_->address(), ",", on_foreign_.address()));
  EXPECT_THAT(channel->GetPlan(kNone, Soon()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of two clusters")));
}

// One that could not be asked at first.
TEST_F(SeveralCoordinatorsTest, APlanOfAnotherClusterIsNeverTaken) {
  const auto channel =
      MakeGrpcCoordinatorChannel(absl::StrCat(on_a_->address(), ",", on_b_->address()));
  const auto plan = channel->GetPlan(kNone, Soon());
  ASSERT_THAT(plan, IsOk());
  const PlanPtr old = std::make_shared<const Plan>(PlanVersion{1}, "c", std::vector<NodeSpec>(),
                                                   std::vector<TablePlan>());
  a_.Redirect({on_foreign_.address(), "", "other"});
  b_.Redirect({on_foreign_.address(), "", "other"});
  EXPECT_THAT(channel->GetPlan(old, Soon()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a plan of cluster other")));
}

}  // namespace
}  // namespace embla::client::several_coordinators_test
