// The real programs' insides on loopback, seen by plain generated stubs: what any client in any
// language meets, damaged requests included.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/testing/await.h"
#include "core/base/testing/http_get.h"
#include "core/base/testing/loopback.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "core/tls/testing/test_authority.h"
#include "core/wire/random_request.h"
#include "embla/v1/admin.grpc.pb.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "embla/v1/data.grpc.pb.h"
#include "server/app/coordinator_process.h"
#include "server/app/server_security.h"
#include "server/app/shard_process.h"
#include "server/gpu/testing/simulated_device.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::HttpGet;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TempDirectory;
using ::embla::testing::TestAuthority;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 31;
constexpr std::uint32_t kDim = 24;
constexpr absl::Duration kWaitMax = absl::Seconds(60);

// Whether one of the two devices is a GPU, a simulated one.
class ClusterTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    StartCoordinator();
    StartShard();
  }

  void StartCoordinator(const std::string& listen = testing::AnyLoopbackPort(),
                        const std::string& admin_listen = testing::AnyLoopbackPort()) {
    CoordinatorProcessOptions options;
    options.listen = listen;
    options.admin_listen = admin_listen;
    options.metrics_listen = "127.0.0.1:0";
    options.state_dir = state_.path();
    options.coordinator.heartbeat_interval = absl::Milliseconds(50);
    auto started = CoordinatorProcess::Start(options);
    ASSERT_THAT(started, IsOk());
    coordinator_ = *std::move(started);
    admin_ = v1::AdminService::NewStub(Channel(coordinator_->admin_address()));
    plans_ = v1::CoordinatorService::NewStub(Channel(coordinator_->address()));
  }

  void StartShard(const std::string& listen = testing::AnyLoopbackPort()) {
    ShardProcessOptions options;
    options.name = "n0";
    options.coordinator = coordinator_->address();
    options.cluster_key = coordinator_->cluster_key();
    options.accept_loss = true;
    options.server.listen = listen;
    options.devices.assign(2, {.kind = DeviceKind::kCpu, .memory_bytes = 64 << 20});
    if (GetParam()) {
      options.devices[1].kind = DeviceKind::kGpu;
      options.gpus = {nullptr, &gpu_};
    }
    auto started = ShardProcess::Start(options);
    ASSERT_THAT(started, IsOk());
    shard_ = *std::move(started);
    channel_ = Channel(shard_->address());
    data_ = v1::DataService::NewStub(channel_);
    ASSERT_TRUE(AwaitLive());
  }

  static std::shared_ptr<grpc::Channel> Channel(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  // The node is live and has the newest plan.
  bool AwaitLive() {
    const auto is_live = [&] {
      grpc::ClientContext nodes_context;
      v1::ListNodesReply nodes;
      grpc::ClientContext plan_context;
      v1::PlanDelta plan;
      if (!admin_->ListNodes(&nodes_context, {}, &nodes).ok()) return false;
      if (!plans_->GetPlan(&plan_context, {}, &plan).ok()) return false;
      if (nodes.nodes_size() != 1) return false;
      const v1::NodeStatus& node = nodes.nodes(0);
      return node.live() && node.plan_version() == plan.version() && shard_->registered();
    };
    return AwaitFor(is_live, kWaitMax, "the node is live with the newest plan");
  }

  // Constant 0.5 everywhere; SGD with learning rate 1.
  void CreateTable(const std::string& name, const std::string& bounds) {
    v1::CreateTableRequest request;
    request.set_table_json(R"({"name": ")" + name + R"(", "rows": 1000, "dim": 24, "bounds": ")" +
                           bounds + R"(", "optimizer": {"kind": "sgd", "learning_rate": 1.0},)" +
                           R"("init": {"kind": "constant", "a": 0.5}})");
    request.set_placement_json(R"({"sharding": "row_wise"})");
    grpc::ClientContext context;
    v1::TableReply reply;
    const grpc::Status status = admin_->CreateTable(&context, request, &reply);
    ASSERT_THAT(status, IsOk());
  }

  static v1::LookupRequest LookupOf(std::uint32_t table, const std::vector<std::int64_t>& ids) {
    v1::LookupRequest request;
    request.set_plan_version(1);
    v1::LookupPart& part = *request.add_parts();
    part.set_table_id(table);
    part.set_pooling(v1::POOLING_NONE);
    part.set_column_end(kDim);
    part.set_ids_count(static_cast<std::uint32_t>(ids.size()));
    request.set_ids(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8));
    return request;
  }

  v1::UpdateRequest UpdateOf(std::uint32_t table, std::uint64_t seq,
                             const std::vector<std::int64_t>& ids, float gradient) {
    if (session_.session() == 0) {
      grpc::ClientContext context;
      const grpc::Status status = plans_->OpenSession(&context, {}, &session_);
      EXPECT_THAT(status, IsOk());
    }
    v1::UpdateRequest request;
    request.set_plan_version(1);
    request.set_session(session_.session());
    request.set_session_proof(session_.proof());
    request.set_seq(seq);
    v1::UpdatePart& part = *request.add_parts();
    part.set_table_id(table);
    part.set_form(v1::GRADIENT_FORM_ROWS);
    part.set_column_end(kDim);
    part.set_ids_count(static_cast<std::uint32_t>(ids.size()));
    request.set_ids(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8));
    const std::vector<float> rows(ids.size() * kDim, gradient);
    request.set_gradients(std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * 4));
    return request;
  }

  grpc::Status Lookup(const v1::LookupRequest& request, std::vector<float>* rows = nullptr) {
    grpc::ClientContext context;
    v1::LookupReply reply;
    const grpc::Status status = data_->Lookup(&context, request, &reply);
    if (rows != nullptr) {
      rows->resize(reply.rows().size() / 4);
      std::memcpy(rows->data(), reply.rows().data(), rows->size() * 4);
    }
    return status;
  }

  grpc::Status Update(const v1::UpdateRequest& request) {
    grpc::ClientContext context;
    v1::UpdateReply reply;
    return data_->Update(&context, request, &reply);
  }

  const TempDirectory state_;
  std::unique_ptr<CoordinatorProcess> coordinator_;
  gpu::SimulatedDevice gpu_;
  std::unique_ptr<ShardProcess> shard_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::CoordinatorService::Stub> plans_;
  std::unique_ptr<v1::DataService::Stub> data_;
  v1::OpenSessionReply session_;
};

TEST_P(ClusterTest, TheCoordinatorCountsCallsJobsAndSyncsOfItsState) {
  CreateTable("counted", "error");
  const std::string text = coordinator_->metrics().Text();
  EXPECT_THAT(text, HasSubstr("embla_requests_total{code=\"OK\",method=\"CreateTable\"} 1"));
  EXPECT_THAT(text, HasSubstr("embla_request_latency_seconds_count{method=\"CreateTable\"} 1"));
  EXPECT_THAT(text, HasSubstr("embla_jobs{state=\"failed\"} 0"));
  EXPECT_THAT(text, HasSubstr("embla_job_units_left 0"));
  EXPECT_THAT(text, HasSubstr("embla_store_sync_seconds_count"));
  EXPECT_THAT(text, HasSubstr("node=\"coordinator\"} 1"));
  // The node knows by now of which cluster it is.
  EXPECT_THAT(shard_->metrics().Text(), HasSubstr(",node=\"n0\"} 1"));
  EXPECT_THAT(shard_->metrics().Text(), ::testing::Not(HasSubstr("cluster=\"\"")));
}

TEST_P(ClusterTest, TheConsoleShowsNodesAndTables) {
  CreateTable("clicks", "error");
  const std::string address = coordinator_->metrics_address();
  const std::string state = HttpGet(address, "/console/state.json");
  EXPECT_THAT(state, HasSubstr(R"("name":"n0")"));
  EXPECT_THAT(state, HasSubstr(R"("state":"live")"));
  EXPECT_THAT(HttpGet(address, "/console/tables.json"), HasSubstr(R"("name":"clicks")"));
  EXPECT_THAT(HttpGet(address, "/console/"), HasSubstr("<!doctype html>"));
}

TEST_P(ClusterTest, APlainClientCreatesLooksUpAndUpdates) {
  CreateTable("t", "error");
  std::vector<float> rows;
  ASSERT_THAT(Lookup(LookupOf(1, {3, 999, 3}), &rows), IsOk());
  EXPECT_EQ(rows, std::vector<float>(3 * kDim, 0.5f));
  for (int twice = 0; twice < 2; ++twice) {  // The second is a retry: applied once.
    const grpc::Status updated = Update(UpdateOf(1, 1, {999}, 0.25f));
    ASSERT_THAT(updated, IsOk());
  }
  ASSERT_THAT(Lookup(LookupOf(1, {999}), &rows), IsOk());
  EXPECT_EQ(rows, std::vector<float>(kDim, 0.25f));
}

// Half of the rows are the second device's.
TEST_P(ClusterTest, GradientsGoToAGpuStraightFromTheMemoryOfTheirRequest) {
  CreateTable("t", "error");
  std::vector<std::int64_t> ids(3000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i % 1000);
  const grpc::Status updated = Update(UpdateOf(1, 1, ids, 0.25f));
  ASSERT_THAT(updated, IsOk());
  std::vector<float> rows;
  ASSERT_THAT(Lookup(LookupOf(1, ids), &rows), IsOk());
  EXPECT_EQ(rows, std::vector<float>(ids.size() * kDim, -0.25f));
  const auto carried = HasSubstr(absl::StrCat(
      "embla_gpu_direct_bytes_total{device=\"1\",direction=\"in\"} ", 1500 * kDim * 4));
  const std::string metrics = shard_->metrics().Text();
  EXPECT_EQ(::testing::Matches(carried)(metrics), GetParam()) << metrics;
}

TEST_P(ClusterTest, WrongRequestsGetTheRightCode) {
  CreateTable("strict", "error");
  CreateTable("lax", "ignore");
  EXPECT_EQ(Lookup(LookupOf(77, {1})).error_code(), grpc::StatusCode::NOT_FOUND);
  for (const std::int64_t id :
       {std::int64_t{1000}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_EQ(Lookup(LookupOf(1, {id})).error_code(), grpc::StatusCode::OUT_OF_RANGE);
    std::vector<float> rows;
    const grpc::Status ignored = Lookup(LookupOf(2, {id}), &rows);
    ASSERT_THAT(ignored, IsOk());
    EXPECT_EQ(rows, std::vector<float>(kDim, 0.0f));
  }
  v1::LookupRequest wide = LookupOf(1, {1});
  wide.mutable_parts(0)->set_column_end(kDim + 1);
  EXPECT_EQ(Lookup(wide).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Update(UpdateOf(1, 1, {5}, std::nanf(""))).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Update(UpdateOf(1, 1, {1000}, 1.0f)).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  // Nothing of the refused updates was applied or remembered.
  EXPECT_THAT(Update(UpdateOf(1, 1, {5}, 0.5f)), IsOk());
  std::vector<float> rows;
  ASSERT_THAT(Lookup(LookupOf(1, {5}), &rows), IsOk());
  EXPECT_EQ(rows, std::vector<float>(kDim, 0.0f));
}

TEST_P(ClusterTest, ReadRowsStreamsTheTable) {
  CreateTable("t", "error");
  v1::ReadRowsRequest request;
  request.set_table_id(1);
  request.set_row_end(1000);
  grpc::ClientContext context;
  const auto reader = data_->ReadRows(&context, request);
  v1::ReadRowsReply reply;
  std::size_t bytes = 0;
  while (reader->Read(&reply)) bytes += reply.row_block().size();
  EXPECT_THAT(reader->Finish(), IsOk());
  EXPECT_GE(bytes, 1000u * kDim * 4);
}

TEST_P(ClusterTest, ServesOnWhileTheCoordinatorIsAwayAndAfterItsReturn) {
  CreateTable("before", "error");
  const std::string address = coordinator_->address();
  const std::string admin_address = coordinator_->admin_address();
  // The update belongs to a session that is open by now.
  const v1::UpdateRequest update = UpdateOf(1, 1, {7}, 0.25f);
  coordinator_.reset();
  EXPECT_THAT(Lookup(LookupOf(1, {7})), IsOk());
  EXPECT_THAT(Update(update), IsOk());
  StartCoordinator(address, admin_address);
  ASSERT_TRUE(AwaitLive());
  std::vector<float> rows;
  ASSERT_THAT(Lookup(LookupOf(1, {7}), &rows), IsOk());
  EXPECT_EQ(rows, std::vector<float>(kDim, 0.25f));  // The same node, not a new one.
  CreateTable("after", "error");
  EXPECT_THAT(Lookup(LookupOf(2, {7})), IsOk());
}

TEST_P(ClusterTest, ANodeOnAUnixSocketIsRegisteredAndServes) {
  shard_.reset();
  StartShard("unix:" + state_.path() + "/shard.sock");
  CreateTable("t", "error");
  const grpc::Status status = Lookup(LookupOf(1, {7}));
  EXPECT_THAT(status, IsOk());
}

TEST_P(ClusterTest, ANodeThatRestartsIsGivenItsTablesAgain) {
  CreateTable("t", "error");
  const std::string address = shard_->address();
  shard_.reset();
  StartShard(address);
  const grpc::Status status = Lookup(LookupOf(1, {7}));
  EXPECT_THAT(status, IsOk());
}

// Everything but the damage fits the tables, so that requests get as far as they can.
TEST_P(ClusterTest, DamagedRequestsAreRefusedOrServedAndNothingDies) {
  SCOPED_TRACE(kSeed);
  CreateTable("strict", "error");
  CreateTable("lax", "ignore");
  wire::RandomRequest random(kSeed);
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel_);
  int served = 0;
  for (int round = 0; round < 1500; ++round) {
    v1::LookupRequest lookup = random.Lookup();
    v1::UpdateRequest update = random.Update();
    lookup.set_plan_version(1);
    update.set_plan_version(1);
    for (auto& part : *lookup.mutable_parts()) part.set_table_id(1 + part.table_id() % 2);
    for (auto& part : *update.mutable_parts()) part.set_table_id(1 + part.table_id() % 2);
    const bool is_lookup = random.Chance(50);
    std::string text = is_lookup ? lookup.SerializeAsString() : update.SerializeAsString();
    random.Mutate(text);
    const grpc::ByteBuffer request = random.Cut(text);
    grpc::ByteBuffer reply;
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(
        &context, is_lookup ? "/embla.v1.DataService/Lookup" : "/embla.v1.DataService/Update",
        request, &queue);
    grpc::Status status;
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_NE(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
    if (status.ok()) ++served;
  }
  EXPECT_GT(served, 0);
  EXPECT_THAT(Lookup(LookupOf(1, {7})), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Gpus, ClusterTest, ::testing::Bool());

TEST(ShardProcessStart, SaysWhatIsWrong) {
  ShardProcessOptions options;
  options.coordinator = "nowhere";
  options.devices.assign(1, {.kind = DeviceKind::kCpu, .memory_bytes = 1 << 20});
  EXPECT_EQ(ShardProcess::Start(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.coordinator = "127.0.0.1:1";
  options.server.listen = "0.0.0.0:0";
  EXPECT_EQ(ShardProcess::Start(options).status().code(), absl::StatusCode::kFailedPrecondition);
  options.server.listen = "127.0.0.1:0";
  options.metrics_listen = "0.0.0.0:0";
  EXPECT_THAT(std::string(ShardProcess::Start(options).status().message()),
              HasSubstr("--insecure"));
}

TEST(Expose, ServesOverTlsWhereOtherMachinesReachIt) {
  const TestAuthority authority;
  const TlsPtr tls = authority.Load(Role::kNode, "n0");
  Metrics metrics;
  ProcessMetrics process(metrics);
  const auto near = Expose({.listen = "127.0.0.1:0"}, tls, metrics, process);
  ASSERT_THAT(near, IsOk());
  EXPECT_THAT(HttpGet((*near)->address(), "/metrics"),
              HasSubstr("embla_tls_certificate_not_after_seconds"));
  const auto far = Expose({.listen = "0.0.0.0:0"}, tls, metrics, process);
  ASSERT_THAT(far, IsOk());
  EXPECT_EQ(HttpGet((*far)->address(), "/metrics"), "");
  EXPECT_THAT(Expose({.listen = "0.0.0.0:0"}, nullptr, metrics, process).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--insecure")));
}

}  // namespace
}  // namespace embla
