// A session whose trainer is silent for longer than its lease: when the trainer wakes, nothing that
// it sends takes effect any more, above all not a second time.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "embla/v1/data.grpc.pb.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::trainer_leases_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::ChildProcess;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::MetricsText;
using ::embla::testing::ProcessCluster;
using ::testing::HasSubstr;

constexpr std::uint32_t kDim = 8;
constexpr std::int64_t kRow = 3;
// A coordinator finds out after at most 40 s that the connection of a stopped process is dead.
constexpr absl::Duration kExpiryMax = absl::Minutes(3);

class TrainerLeases : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start({.nodes = 1,
                                          .devices_per_node = 1,
                                          .coordinator_flags = {"--session-lease-ms", "1000"},
                                          .journals = true});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    const auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    ASSERT_THAT((*admin)->Call<v1::TableReply>(client::CreateTableRequest(
                    R"({"name":"t","rows":16,"dim":8,"init":{"kind":"constant","a":0.0},)"
                    R"("optimizer":{"kind":"sgd","learning_rate":1.0}})",
                    R"({"sharding":"row_wise"})")),
                IsOk());
  }

  float Weight() {
    const auto reader = cluster_->Connect();
    EXPECT_THAT(reader, IsOk());
    const std::vector<std::int64_t> ids = {kRow};
    std::vector<float> row(kDim);
    const client::FeatureLookup feature{.table = "t", .ids = ids, .rows_out = row};
    EXPECT_THAT((*reader)->Lookup({&feature, 1}, {}), IsOk());
    return row[0];
  }
  double Expired() const {
    return MetricsText::Of(cluster_->coordinator_metrics_address())
        .Value("embla_sessions_expired_total");
  }
  // Adds 1 to the row, as any client with the protocol would.
  grpc::Status AddOne(const v1::OpenSessionReply& session, std::uint64_t seq) const {
    v1::UpdateRequest request;
    request.set_plan_version(plan_version_);
    request.set_session(session.session());
    request.set_session_proof(session.proof());
    request.set_seq(seq);
    request.set_first_incomplete(seq);
    v1::UpdatePart& part = *request.add_parts();
    part.set_table_id(1);
    part.set_form(v1::GRADIENT_FORM_ROWS);
    part.set_column_end(kDim);
    part.set_ids_count(1);
    const std::vector<float> gradient(kDim, -1.0f);
    request.set_ids(std::string(reinterpret_cast<const char*>(&kRow), sizeof(kRow)));
    request.set_gradients(
        std::string(reinterpret_cast<const char*>(gradient.data()), kDim * sizeof(float)));
    const auto stub = v1::DataService::NewStub(
        grpc::CreateChannel(cluster_->node_address(0), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::UpdateReply reply;
    return stub->Update(&context, request, &reply);
  }
  v1::OpenSessionReply OpenSession() {
    const auto stub = v1::CoordinatorService::NewStub(
        grpc::CreateChannel(cluster_->coordinator_address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext asks, opens;
    v1::PlanDelta plan;
    EXPECT_THAT(stub->GetPlan(&asks, {}, &plan), IsOk());
    plan_version_ = plan.version();
    v1::OpenSessionReply session;
    EXPECT_THAT(stub->OpenSession(&opens, {}, &session), IsOk());
    return session;
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::uint64_t plan_version_ = 0;
};

TEST_F(TrainerLeases, AnUpdateThatIsRepeatedAfterItsLeaseIsDeniedAndNeverAppliedAgain) {
  const v1::OpenSessionReply session = OpenSession();
  ASSERT_THAT(AddOne(session, 1), IsOk());
  ASSERT_TRUE(AwaitFor([&] { return Expired() == 1; }, kAwaitMax, "the lease is over"));
  grpc::Status status;
  AwaitFor(
      [&] {
        status = AddOne(session, 1);
        return !status.ok();
      },
      kAwaitMax, "the node has heard of it");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("is closed"));
  EXPECT_EQ(AddOne(session, 2).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  // The node may have dropped its record of the session's updates; it still knows that the session
  // is closed.
  cluster_->KillNode(0);
  ASSERT_THAT(cluster_->RestartNode(0), IsOk());
  EXPECT_EQ(AddOne(session, 1).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Weight(), 1.0f);
}

TEST_F(TrainerLeases, ATrainerThatIsStoppedForLongerThanItsLeaseWakesToADenial) {
  const testing::TempDirectory directory;
  const std::string file = directory.path() + "/acknowledged";
  auto trainer = ChildProcess::Start(
      {EMBLA_COUNTING_TRAINER, cluster_->coordinator_address(), file}, directory.path() + "/log");
  ASSERT_THAT(trainer, IsOk());
  const auto acknowledged = [&file] {
    std::ifstream lines(file);
    return std::count(std::istreambuf_iterator<char>(lines), {}, '\n');
  };
  ASSERT_TRUE(AwaitFor([&] { return acknowledged() >= 3; }, kAwaitMax, "the trainer trains"));
  trainer->Signal(SIGSTOP);
  ASSERT_TRUE(AwaitFor([&] { return Expired() == 1; }, kExpiryMax, "the lease is over"));
  trainer->Signal(SIGCONT);
  EXPECT_EQ(trainer->Wait(), static_cast<int>(absl::StatusCode::kPermissionDenied));
  // The process may have been stopped with one update on its way, which is applied or is not.
  const double unknown = Weight() - static_cast<double>(acknowledged());
  EXPECT_GE(unknown, 0);
  EXPECT_LE(unknown, 1);
}

}  // namespace
}  // namespace embla::trainer_leases_test
