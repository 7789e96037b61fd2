// Clients of earlier builds, from 0.2.0 on: every field and method is as it was recorded, and
// exchanges whose requests are sent as recorded bytes are answered by the recorded bytes.
// `EMBLA_RECORD=1 recorded_messages_test` in the source directory records anew: lines may come,
// none may change or go within a MINOR (docs/compatibility.md).
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/cluster_key.h"
#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "core/planner/placement.h"
#include "embla/v1/data.pb.h"
#include "server/rpc/data_service.h"
#include "server/rpc/raw_call_test_support.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/session_gate.h"
#include "server/shard/testing/local_cluster.h"

namespace embla::recorded_messages_test {
namespace {

using ::embla::testing::IsOk;

constexpr char kFieldsFile[] = "tests/golden/messages_v1.txt";
constexpr char kExchangesFile[] = "tests/golden/exchanges_v1.txt";
constexpr SessionId kSession{(std::uint64_t{5} << 32) + 1};
constexpr NodeId kNode{1};
constexpr std::uint32_t kDim = 4;

bool Records() { return std::getenv("EMBLA_RECORD") != nullptr; }

void Write(const char* path, const std::vector<std::string>& lines) {
  std::ofstream(path) << absl::StrJoin(lines, "\n") << "\n";
}

std::vector<std::string> ReadLines(const char* path) {
  const auto content = ReadFile(path);
  EXPECT_THAT(content, IsOk());
  return absl::StrSplit(content.value_or(""), '\n', absl::SkipEmpty());
}

// ---------------------------------------------------------------- fields and methods

void AddEnum(const google::protobuf::EnumDescriptor& values, std::vector<std::string>& lines) {
  for (int v = 0; v < values.value_count(); ++v) {
    const google::protobuf::EnumValueDescriptor& value = *values.value(v);
    lines.push_back(absl::StrCat(values.full_name(), " ", value.number(), " ", value.name()));
  }
}

void AddMessage(const google::protobuf::Descriptor& message, std::vector<std::string>& lines) {
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    std::string type = field.type_name();
    if (field.message_type() != nullptr) type = field.message_type()->full_name();
    if (field.enum_type() != nullptr) type = field.enum_type()->full_name();
    lines.push_back(absl::StrCat(message.full_name(), " ", field.number(), " ", field.name(), " ",
                                 field.is_repeated() ? "repeated " : "", type));
  }
  for (int i = 0; i < message.nested_type_count(); ++i) AddMessage(*message.nested_type(i), lines);
  for (int i = 0; i < message.enum_type_count(); ++i) AddEnum(*message.enum_type(i), lines);
}

void AddFile(const google::protobuf::FileDescriptor& file, std::vector<std::string>& lines) {
  for (int i = 0; i < file.message_type_count(); ++i) AddMessage(*file.message_type(i), lines);
  for (int i = 0; i < file.enum_type_count(); ++i) AddEnum(*file.enum_type(i), lines);
  for (int i = 0; i < file.service_count(); ++i) {
    const google::protobuf::ServiceDescriptor& service = *file.service(i);
    for (int m = 0; m < service.method_count(); ++m) {
      const google::protobuf::MethodDescriptor& method = *service.method(m);
      lines.push_back(absl::StrCat(method.full_name(), method.client_streaming() ? " stream " : " ",
                                   method.input_type()->full_name(),
                                   method.server_streaming() ? " stream " : " ",
                                   method.output_type()->full_name()));
    }
  }
}

TEST(RecordedMessages, EveryFieldAndMethodIsAsItWas) {
  std::vector<std::string> lines;
  for (const char* const name :
       {"admin", "coordinator", "data", "inspect", "plan", "redirect", "status", "types"}) {
    const auto* const file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
        absl::StrCat("embla/v1/", name, ".proto"));
    ASSERT_NE(file, nullptr) << name;
    AddFile(*file, lines);
  }
  if (Records()) Write(kFieldsFile, lines);
  EXPECT_THAT(ReadLines(kFieldsFile), ::testing::IsSubsetOf(lines))
      << "a line that is gone, or another one for the same number: other builds speak so still";
  EXPECT_EQ(ReadLines(kFieldsFile).size(), lines.size())
      << "record what is new, so that it stays as it is";
}

// ---------------------------------------------------------------- exchanges

struct Exchange {
  std::string method;
  std::string request;
  std::string reply;  // All answers of a stream, one after the other; of an error its code.
  bool operator==(const Exchange&) const = default;
};

std::string LineOf(const Exchange& exchange) {
  return absl::StrCat(exchange.method, " ", absl::BytesToHexString(exchange.request), " ",
                      absl::BytesToHexString(exchange.reply));
}

Exchange FromLine(const std::string& line) {
  const std::vector<std::string> parts = absl::StrSplit(line, ' ');
  return {parts.at(0), absl::HexStringToBytes(parts.at(1)), absl::HexStringToBytes(parts.at(2))};
}

template <typename T>
std::string BytesOfValues(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class RecordedExchanges : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto key = ClusterKey::Parse(absl::StrCat("embla-cluster-key 1 ", std::string(64, '7')));
    ASSERT_THAT(key, IsOk());
    key_ = std::make_shared<const ClusterKey>(*key);
    std::vector<TablePlan> tables;
    for (const OptimizerKind optimizer :
         {OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
      TableSpec spec;
      spec.id = TableId{static_cast<std::uint32_t>(tables.size() + 1)};
      spec.name = absl::StrCat("t", tables.size());
      spec.rows = 16;
      spec.dim = kDim;
      spec.seed = 7;
      spec.optimizer.kind = optimizer;
      spec.optimizer.learning_rate = 0.5f;
      spec.init = {InitKind::kUniform, -1.0f, 1.0f};
      spec.SetDefaults();
      auto table = PlaceTable(spec, {.sharding = ShardingType::kTableWise}, nodes_.specs(), {});
      ASSERT_THAT(table, IsOk());
      tables.push_back(*std::move(table));
    }
    ASSERT_THAT(nodes_.Install(tables), IsOk());
    nodes_.node(kNode).sessions().SetKey(key_);
    service_ =
        std::make_unique<DataService>(nodes_.node(kNode), pool_, nullptr, DataServiceOptions());
    grpc::Service* const services[] = {service_.get()};
    auto started = RpcServer::Start({.listen = "127.0.0.1:0"}, services);
    ASSERT_THAT(started, IsOk());
    server_ = *std::move(started);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  }

  std::string ReplyTo(const std::string& method, const std::string& request) {
    std::string reply;
    const grpc::Status status = CallRaw(*stub_, method, request, RawReplies::kAll, &reply);
    return status.ok() ? reply : absl::StrCat("code ", status.error_code());
  }

  std::string Lookup(v1::Pooling pooling, v1::WireDType wire, std::uint32_t table) {
    return LookupOf(pooling, wire, table).SerializeAsString();
  }
  v1::LookupRequest LookupOf(v1::Pooling pooling, v1::WireDType wire, std::uint32_t table) {
    v1::LookupRequest request;
    request.set_plan_version(ToInt(nodes_.plan()->version()));
    request.set_wire_dtype(wire);
    v1::LookupPart& part = *request.add_parts();
    part.set_table_id(table);
    part.set_pooling(pooling);
    part.set_column_end(kDim);
    const std::vector<std::int64_t> ids = {3, 5, 3, 11};
    part.set_ids_count(static_cast<std::uint32_t>(ids.size()));
    request.set_ids(BytesOfValues(ids));
    if (pooling == v1::POOLING_NONE) return request;
    const std::vector<std::uint32_t> lengths = {3, 0, 1};
    part.set_bags_count(static_cast<std::uint32_t>(lengths.size()));
    request.set_lengths(BytesOfValues(lengths));
    if (pooling == v1::POOLING_MEAN) return request;
    part.set_weighted(true);
    request.set_weights(BytesOfValues<float>({1.0f, 0.5f, -2.0f, 0.25f}));
    return request;
  }
  std::string Update(std::uint64_t seq, v1::GradientForm form, std::uint32_t table) {
    v1::UpdateRequest request;
    request.set_plan_version(ToInt(nodes_.plan()->version()));
    request.set_session(ToInt(kSession));
    request.set_session_proof(std::string(BytesOf(ProveSession(*key_, kSession))));
    request.set_seq(seq);
    request.set_first_incomplete(seq);
    request.set_step(seq);
    request.set_wire_dtype(v1::WIRE_DTYPE_FP32);
    v1::UpdatePart& part = *request.add_parts();
    part.set_table_id(table);
    part.set_form(form);
    part.set_column_end(kDim);
    const std::vector<std::int64_t> ids = {3, 5, 3};
    part.set_ids_count(static_cast<std::uint32_t>(ids.size()));
    request.set_ids(BytesOfValues(ids));
    std::size_t rows = ids.size();
    if (form == v1::GRADIENT_FORM_BAGS) {
      part.set_pooling(v1::POOLING_MEAN);
      const std::vector<std::uint32_t> lengths = {2, 1};
      rows = lengths.size();
      part.set_bags_count(static_cast<std::uint32_t>(rows));
      request.set_lengths(BytesOfValues(lengths));
    }
    std::vector<float> gradients(rows * kDim);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = 0.125f * static_cast<float>(i) - 0.5f;
    }
    request.set_gradients(BytesOfValues(gradients));
    return request.SerializeAsString();
  }
  std::string ReadRows(std::uint32_t table) {
    v1::ReadRowsRequest request;
    request.set_table_id(table);
    request.set_row_end(16);
    request.set_with_state(true);
    return request.SerializeAsString();
  }

  // Requests of every form, in this order: later replies depend on earlier updates.
  std::vector<Exchange> Requests() {
    constexpr char kLookup[] = "/embla.v1.DataService/Lookup";
    constexpr char kUpdate[] = "/embla.v1.DataService/Update";
    constexpr char kReadRows[] = "/embla.v1.DataService/ReadRows";
    std::vector<Exchange> exchanges;
    for (std::uint32_t table = 1; table <= 3; ++table) {
      for (const v1::WireDType wire :
           {v1::WIRE_DTYPE_FP32, v1::WIRE_DTYPE_FP16, v1::WIRE_DTYPE_BF16, v1::WIRE_DTYPE_INT8}) {
        exchanges.push_back({kLookup, Lookup(v1::POOLING_NONE, wire, table), ""});
      }
      const std::uint64_t seq = 3 * table;
      exchanges.push_back({kUpdate, Update(seq, v1::GRADIENT_FORM_ROWS, table), ""});
      exchanges.push_back({kUpdate, Update(seq, v1::GRADIENT_FORM_ROWS, table), ""});
      exchanges.push_back({kUpdate, Update(seq + 1, v1::GRADIENT_FORM_BAGS, table), ""});
      exchanges.push_back({kReadRows, ReadRows(table), ""});
      for (const v1::Pooling pooling : {v1::POOLING_SUM, v1::POOLING_MEAN}) {
        exchanges.push_back({kLookup, Lookup(pooling, v1::WIRE_DTYPE_FP32, table), ""});
      }
    }
    v1::StreamRequest stream;
    stream.set_sequence(9);
    *stream.mutable_lookup() = LookupOf(v1::POOLING_NONE, v1::WIRE_DTYPE_FP32, 1);
    exchanges.push_back({"/embla.v1.DataService/Stream", stream.SerializeAsString(), ""});
    // Unknown table; a field that says less than it should.
    exchanges.push_back({kLookup, Lookup(v1::POOLING_NONE, v1::WIRE_DTYPE_FP32, 404), ""});
    v1::LookupRequest cut_short = LookupOf(v1::POOLING_NONE, v1::WIRE_DTYPE_FP32, 1);
    cut_short.mutable_ids()->pop_back();
    exchanges.push_back({kLookup, cut_short.SerializeAsString(), ""});
    return exchanges;
  }

  std::shared_ptr<const ClusterKey> key_;
  testing::LocalCluster nodes_{testing::LocalCluster::Options()};
  BufferPool pool_;
  std::unique_ptr<DataService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

TEST_F(RecordedExchanges, RecordedRequestsGetTheRecordedReplies) {
  if (Records()) {
    std::vector<std::string> lines;
    for (Exchange& exchange : Requests()) {
      exchange.reply = ReplyTo(exchange.method, exchange.request);
      lines.push_back(LineOf(exchange));
    }
    Write(kExchangesFile, lines);
    return;
  }
  const std::vector<std::string> lines = ReadLines(kExchangesFile);
  EXPECT_GE(lines.size(), 30u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Exchange recorded = FromLine(lines[i]);
    EXPECT_EQ(absl::BytesToHexString(ReplyTo(recorded.method, recorded.request)),
              absl::BytesToHexString(recorded.reply))
        << "line " << i + 1 << ", " << recorded.method;
  }
}

}  // namespace
}  // namespace embla::recorded_messages_test
