// A client without a session can do nothing to the updates of others. Raw
// protobuf against a node with rows, as a client in any language would send it.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "core/base/cluster_key.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "embla/v1/data.grpc.pb.h"
#include "server/rpc/data_service.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/session_gate.h"
#include "server/shard/testing/local_cluster.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;

constexpr SessionId kVictim{(std::uint64_t{5} << 32) + 1};
constexpr SessionId kOwn{(std::uint64_t{5} << 32) + 2};
constexpr NodeId kNode{1};

class ForeignClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TableSpec spec;
    spec.id = TableId{1};
    spec.name = "t";
    spec.rows = 16;
    spec.dim = 4;
    spec.optimizer.kind = OptimizerKind::kSgd;
    spec.optimizer.learning_rate = 1.0f;
    spec.init = {InitKind::kConstant, 0.0f, 0.0f};
    spec.SetDefaults();
    const auto table = PlaceTable(spec, {.sharding = ShardingType::kTableWise}, nodes_.specs(), {});
    ASSERT_THAT(table, IsOk());
    ASSERT_THAT(nodes_.Install({*table}), IsOk());
    nodes_.node(kNode).sessions().SetKey(key_);
    service_ =
        std::make_unique<DataService>(nodes_.node(kNode), pool_, nullptr, DataServiceOptions());
    grpc::Service* const services[] = {service_.get()};
    auto started = RpcServer::Start({.listen = "127.0.0.1:0"}, services);
    ASSERT_THAT(started, IsOk());
    server_ = *std::move(started);
    stub_ = v1::DataService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  }

  std::string ProofOf(SessionId session) const {
    return std::string(BytesOf(ProveSession(*key_, session)));
  }

  // Adds 1 to row 3.
  grpc::Status AddOne(SessionId session, const std::string& proof, std::uint64_t seq,
                      std::uint64_t first_incomplete, v1::UpdateReply& reply) {
    v1::UpdateRequest request;
    request.set_plan_version(ToInt(nodes_.plan()->version()));
    request.set_session(ToInt(session));
    request.set_session_proof(proof);
    request.set_seq(seq);
    request.set_first_incomplete(first_incomplete);
    v1::UpdatePart& part = *request.add_parts();
    part.set_table_id(1);
    part.set_form(v1::GRADIENT_FORM_ROWS);
    part.set_column_end(4);
    part.set_ids_count(1);
    const std::int64_t id = 3;
    const std::vector<float> gradient(4, -1.0f);
    request.set_ids(std::string(reinterpret_cast<const char*>(&id), 8));
    request.set_gradients(std::string(reinterpret_cast<const char*>(gradient.data()), 16));
    grpc::ClientContext context;
    return stub_->Update(&context, request, &reply);
  }
  grpc::Status Forge(SessionId session, const std::string& proof, std::uint64_t seq) {
    v1::UpdateReply reply;
    return AddOne(session, proof, seq, seq, reply);
  }
  // Applied, and not taken for a repetition.
  void ExpectApplied(std::uint64_t seq) {
    v1::UpdateReply reply;
    const grpc::Status status = AddOne(kVictim, ProofOf(kVictim), seq, seq, reply);
    EXPECT_THAT(status, IsOk());
    EXPECT_FALSE(reply.duplicate()) << seq;
  }
  grpc::Status Lookup(SessionId session, const std::string& proof, float& value) {
    v1::LookupRequest request;
    request.set_plan_version(ToInt(nodes_.plan()->version()));
    request.set_session(ToInt(session));
    request.set_session_proof(proof);
    v1::LookupPart& part = *request.add_parts();
    part.set_table_id(1);
    part.set_pooling(v1::POOLING_NONE);
    part.set_column_end(4);
    part.set_ids_count(1);
    const std::int64_t id = 3;
    request.set_ids(std::string(reinterpret_cast<const char*>(&id), 8));
    v1::LookupReply reply;
    grpc::ClientContext context;
    const grpc::Status status = stub_->Lookup(&context, request, &reply);
    if (status.ok()) std::memcpy(&value, reply.rows().data(), sizeof(value));
    return status;
  }
  void ExpectValue(float expected) {
    float value = -1.0f;
    ASSERT_THAT(Lookup({}, "", value), IsOk());
    EXPECT_EQ(value, expected);
  }

  const std::shared_ptr<const ClusterKey> key_ =
      std::make_shared<const ClusterKey>(ClusterKey::Generate());
  testing::LocalCluster nodes_{testing::LocalCluster::Options()};
  BufferPool pool_;
  std::unique_ptr<DataService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::DataService::Stub> stub_;
};

TEST_F(ForeignClientTest, DoesNotRaiseTheWindowOfAnothersSession) {
  ExpectApplied(1);
  for (const std::string& proof : {std::string(), std::string(16, '\1'), ProofOf(kOwn)}) {
    const grpc::Status forged = Forge(kVictim, proof, 1'000'000);
    EXPECT_EQ(forged.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(forged.error_message(), HasSubstr("session_proof"));
  }
  for (std::uint64_t seq = 2; seq <= 6; ++seq) ExpectApplied(seq);
  ExpectValue(6.0f);
}

TEST_F(ForeignClientTest, DoesNotRaiseItByStreamEither) {
  ExpectApplied(1);
  grpc::ClientContext context;
  const auto stream = stub_->Stream(&context);
  v1::StreamRequest request;
  request.set_sequence(9);
  request.mutable_update()->set_session(ToInt(kVictim));
  request.mutable_update()->set_seq(1'000'000);
  request.mutable_update()->set_first_incomplete(1'000'000);
  ASSERT_TRUE(stream->Write(request));
  v1::StreamReply reply;
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_EQ(reply.sequence(), 9u);
  EXPECT_EQ(reply.code(), static_cast<int>(grpc::StatusCode::PERMISSION_DENIED));
  stream->WritesDone();
  EXPECT_THAT(stream->Finish(), IsOk());
  ExpectApplied(2);
}

TEST_F(ForeignClientTest, LocksNobodyOutByInventedSessions) {
  for (std::uint64_t invented = 1; invented <= 4200; ++invented) {
    ASSERT_EQ(Forge(SessionId{invented}, std::string(16, 'x'), 1).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  ExpectApplied(1);
  ExpectValue(1.0f);
}

TEST_F(ForeignClientTest, ReadsWithoutASessionButNotUnderAFalseOne) {
  float value = -1.0f;
  EXPECT_THAT(Lookup({}, "", value), IsOk());
  EXPECT_THAT(Lookup(kOwn, ProofOf(kOwn), value), IsOk());
  EXPECT_EQ(Lookup(kOwn, ProofOf(kVictim), value).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  ClosedSessions closed;
  closed.refused.Insert(kOwn);
  ASSERT_THAT(nodes_.node(kNode).CloseSessions(closed), IsOk());
  EXPECT_THAT(Lookup(kOwn, ProofOf(kOwn), value), IsOk());
}

}  // namespace
}  // namespace embla
