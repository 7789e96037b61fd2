// A node's lines about sampled requests: of whom, how many, and what they say.
#include "server/rpc/request_trace.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/base/cluster_key.h"
#include "core/base/session_proof.h"
#include "core/base/testing/log_lines.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "embla/v1/data.grpc.pb.h"
#include "server/rpc/data_service.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/session_gate.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::request_trace_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::LinesWith;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

constexpr char kSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kNotSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
constexpr SessionId kSession{(std::uint64_t{5} << 32) + 1};
constexpr NodeId kNode{1};
constexpr std::uint32_t kDim = 2;

// One node with two devices, which have the rows of one table.
class RequestTraceTest : public ::testing::Test {
 protected:
  using Lines = std::vector<std::map<std::string, std::string>>;

  void SetUp() override {
    TableSpec spec;
    spec.id = TableId{1};
    spec.name = "clicks";
    spec.rows = 16;
    spec.dim = kDim;
    spec.optimizer.kind = OptimizerKind::kSgd;
    spec.SetDefaults();
    auto table = PlaceTable(spec, {.sharding = ShardingType::kRowWise, .min_partition = 1},
                            cluster_.specs(), {});
    ASSERT_THAT(table, IsOk());
    ASSERT_THAT(cluster_.Install({*table}), IsOk());
    gate().SetKey(key_);
    service_ =
        std::make_unique<DataService>(cluster_.node(kNode), pool_, &metrics_, DataServiceOptions());
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

  SessionGate& gate() { return cluster_.node(kNode).sessions(); }

  template <typename Request>
  Request RequestOf(const std::string& traceparent, std::uint32_t table = 1) {
    Request request;
    const SessionProof proof = ProveSession(*key_, kSession);
    request.set_session(ToInt(kSession));
    request.set_session_proof(proof.data(), proof.size());
    request.set_traceparent(traceparent);
    auto& part = *request.add_parts();
    part.set_table_id(table);
    part.set_column_end(kDim);
    // Rows of both devices.
    const std::vector<std::int64_t> ids = {1, 14, 3};
    part.set_ids_count(static_cast<std::uint32_t>(ids.size()));
    request.set_ids(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8));
    return request;
  }
  v1::LookupRequest LookupOf(const std::string& traceparent, std::uint32_t table = 1) {
    auto request = RequestOf<v1::LookupRequest>(traceparent, table);
    request.mutable_parts(0)->set_pooling(v1::POOLING_NONE);
    return request;
  }
  v1::UpdateRequest UpdateOf(const std::string& traceparent) {
    auto request = RequestOf<v1::UpdateRequest>(traceparent);
    request.set_seq(1);
    request.mutable_parts(0)->set_form(v1::GRADIENT_FORM_ROWS);
    request.set_gradients(std::string(3 * kDim * sizeof(float), '\0'));
    return request;
  }

  grpc::Status Lookup(const v1::LookupRequest& request, const char* metadata = nullptr) {
    grpc::ClientContext context;
    if (metadata != nullptr) context.AddMetadata("traceparent", metadata);
    v1::LookupReply reply;
    return stub_->Lookup(&context, request, &reply);
  }
  // The lines that `calls` leave.
  static Lines LinesOf(const std::function<void()>& calls) {
    ::testing::internal::CaptureStderr();
    calls();
    return LinesWith(::testing::internal::GetCapturedStderr(), "I rpc traced request ");
  }
  static void ExpectSpan(std::map<std::string, std::string>& line) {
    EXPECT_EQ(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    EXPECT_EQ(line["parent_id"], "b7ad6b7169203331");
    EXPECT_THAT(line["span_id"], MatchesRegex("[0-9a-f]{16}"));
    EXPECT_NE(line["span_id"], line["parent_id"]);
    EXPECT_EQ(line["session"], absl::StrCat(ToInt(kSession)));
    EXPECT_EQ(line["rows"], "3");
  }

  const ClusterKeyPtr key_ = std::make_shared<const ClusterKey>(ClusterKey::Generate());
  testing::LocalCluster cluster_{{.devices_per_node = 2}};
  BufferPool pool_;
  Metrics metrics_;
  std::unique_ptr<DataService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::DataService::Stub> stub_;
};

TEST_F(RequestTraceTest, ASampledRequestLeavesALineWithTheTimeOfEachDevice) {
  Lines lines = LinesOf([&] { EXPECT_THAT(Lookup(LookupOf(kSampled)), IsOk()); });
  ASSERT_THAT(lines, SizeIs(1));
  ExpectSpan(lines[0]);
  EXPECT_EQ(lines[0]["method"], "Lookup");
  EXPECT_EQ(lines[0]["status"], "OK");
  EXPECT_EQ(lines[0]["tables"], "clicks");
  EXPECT_GT(std::stoi(lines[0]["request_bytes"]), 3 * 8);
  EXPECT_GT(std::stoi(lines[0]["reply_bytes"]), 3 * 4 * kDim);
  EXPECT_THAT(lines[0]["queue_seconds"], MatchesRegex("[0-9]+\\.[0-9]{6}"));
  EXPECT_THAT(lines[0]["device_seconds"], MatchesRegex("0:[0-9]+\\.[0-9]{6},1:[0-9]+\\.[0-9]{6}"));
  EXPECT_GT(std::stod(lines[0]["device_seconds"].substr(2)), 0.0);
  EXPECT_EQ(lines[0].count("error"), 0u);
}

TEST_F(RequestTraceTest, UpdatesAndRequestsOfStreamsLeaveThemToo) {
  Lines lines = LinesOf([&] {
    grpc::ClientContext context;
    const auto stream = stub_->Stream(&context);
    v1::StreamRequest request;
    v1::StreamReply reply;
    *request.mutable_update() = UpdateOf(kSampled);
    ASSERT_TRUE(stream->Write(request) && stream->Read(&reply));
    *request.mutable_lookup() = LookupOf(kSampled);
    ASSERT_TRUE(stream->Write(request) && stream->Read(&reply));
    stream->WritesDone();
    EXPECT_THAT(stream->Finish(), IsOk());
  });
  ASSERT_THAT(lines, SizeIs(2));
  for (auto& line : lines) {
    ExpectSpan(line);
    EXPECT_THAT(line["device_seconds"], MatchesRegex("0:[0-9.]+,1:[0-9.]+"));
  }
  EXPECT_EQ(lines[0]["method"], "Update");
  EXPECT_EQ(lines[1]["method"], "Lookup");
}

TEST_F(RequestTraceTest, AUnaryCallMayStateItAsMetadata) {
  Lines lines = LinesOf([&] { EXPECT_THAT(Lookup(LookupOf(""), kSampled), IsOk()); });
  ASSERT_THAT(lines, SizeIs(1));
  ExpectSpan(lines[0]);
}

TEST_F(RequestTraceTest, ARefusedRequestLeavesItsError) {
  Lines lines = LinesOf([&] {
    EXPECT_EQ(Lookup(LookupOf(kSampled, 404)).error_code(), grpc::StatusCode::NOT_FOUND);
  });
  ASSERT_THAT(lines, SizeIs(1));
  ExpectSpan(lines[0]);
  EXPECT_EQ(lines[0]["status"], "NOT_FOUND");
  EXPECT_EQ(lines[0]["tables"], "404");
  EXPECT_EQ(lines[0].count("device_seconds"), 0u);
  EXPECT_EQ(lines[0].count("error"), 1u);
}

TEST_F(RequestTraceTest, WhatIsNotSampledOrComesFromAStrangerLeavesNone) {
  const Lines lines = LinesOf([&] {
    for (const char* const text : {"", kNotSampled, "ff-no traceparent", "\xff\xfe"}) {
      EXPECT_THAT(Lookup(LookupOf(text)), IsOk()) << text;
    }
    v1::LookupRequest stranger = LookupOf(kSampled);
    stranger.clear_session();
    stranger.clear_session_proof();
    EXPECT_THAT(Lookup(stranger, kSampled), IsOk());
    stranger.set_session(ToInt(kSession));
    stranger.set_session_proof(std::string(16, 'x'));
    EXPECT_EQ(Lookup(stranger).error_code(), grpc::StatusCode::PERMISSION_DENIED);
    ClosedSessions closed;
    closed.refused.Insert(kSession);
    gate().Close(closed);
    EXPECT_THAT(Lookup(LookupOf(kSampled)), IsOk());
    grpc::ClientContext context;
    v1::UpdateReply reply;
    EXPECT_EQ(stub_->Update(&context, UpdateOf(kSampled), &reply).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  });
  EXPECT_THAT(lines, SizeIs(0));
}

TEST_F(RequestTraceTest, LinesBeyondTheBoundAreCounted) {
  const ShardMetrics metrics(&metrics_);
  RequestTraces traces(cluster_.node(kNode), metrics.trace_lines_dropped);
  LookupBatch batch;
  batch.session = kSession;
  batch.trace = TraceContext::Parse(kSampled);
  constexpr int kMore = 7;
  const Lines lines = LinesOf([&] {
    for (int i = 0; i < SpanLog::kLinesPerSecondMax + kMore; ++i) {
      const RequestTracePtr trace = traces.Begin(batch, absl::UnixEpoch());
      ASSERT_NE(trace, nullptr);
      traces.End(*trace, absl::UnixEpoch(), absl::OkStatus(), 1, 1);
    }
  });
  EXPECT_THAT(lines, SizeIs(SpanLog::kLinesPerSecondMax));
  EXPECT_EQ(metrics.trace_lines_dropped.value(), kMore);
}

}  // namespace
}  // namespace embla::request_trace_test
