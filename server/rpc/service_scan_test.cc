// No service parses a message before its fields are counted: parsed, each would have many times
// its bytes.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "core/base/testing/status_matchers.h"
#include "server/rpc/coordinator_fixture.h"
#include "server/rpc/data_service.h"
#include "server/rpc/fake_shard_node.h"
#include "server/rpc/inspect_service.h"
#include "server/rpc/raw_call_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::google::protobuf::DescriptorPool;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::MethodDescriptor;
using ::google::protobuf::ServiceDescriptor;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Field 15: 1. Protobuf keeps what it does not know.
constexpr std::string_view kTinyField("\x78\x01", 2);
// More than any method may have.
constexpr std::size_t kTinyFields = 365'000;

std::string Delimited(int number, const std::string& content) {
  std::string text;
  for (std::size_t rest : {static_cast<std::size_t>(number) << 3 | 2, content.size()}) {
    for (; rest >= 0x80; rest >>= 7) text.push_back(static_cast<char>(rest | 0x80));
    text.push_back(static_cast<char>(rest));
  }
  return text + content;
}

std::string TinyFields() {
  std::string fields;
  for (std::size_t i = 0; i < kTinyFields; ++i) fields += kTinyField;
  return fields;
}

// Every service that the program's protocol has.
std::vector<const ServiceDescriptor*> Services() {
  std::vector<std::string> files;
  DescriptorPool::internal_generated_database()->FindAllFileNames(&files);
  std::vector<const ServiceDescriptor*> services;
  for (const std::string& name : files) {
    if (!name.starts_with("embla/")) continue;
    const auto* const file = DescriptorPool::generated_pool()->FindFileByName(name);
    for (int i = 0; i < file->service_count(); ++i) services.push_back(file->service(i));
  }
  return services;
}

class ServiceScan : public CoordinatorFixture {
 protected:
  void SetUp() override {
    Start();
    data_ = std::make_unique<DataService>(node_, pool_, nullptr, DataServiceOptions());
    data_->ServeMoves([](PeerMessage) { return absl::OkStatus(); });
    inspect_ = std::make_unique<InspectService>(node_);
    grpc::Service* const services[] = {data_.get(), inspect_.get()};
    auto shard = RpcServer::Start({.listen = "127.0.0.1:0"}, services);
    ASSERT_THAT(shard, IsOk());
    shard_ = *std::move(shard);
  }
  void TearDown() override {
    if (shard_ != nullptr) shard_->Shutdown(absl::ZeroDuration());
    CoordinatorFixture::TearDown();
  }

  const std::string& AddressOf(const ServiceDescriptor& service) const {
    const bool is_shards = service.name() == "DataService" || service.name() == "InspectService";
    return is_shards ? shard_->address() : server_->address();
  }

  // A call of any kind with one message that has just these bytes.
  grpc::Status Call(const MethodDescriptor& method, const std::string& bytes) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    grpc::GenericStub stub(grpc::CreateCustomChannel(
        AddressOf(*method.service()), grpc::InsecureChannelCredentials(), arguments));
    return CallRaw(stub, "/" + method.service()->full_name() + "/" + method.name(), bytes,
                   RawReplies::kAll);
  }

  void ExpectRefused(const MethodDescriptor& method, const std::string& bytes) {
    const grpc::Status status = Call(method, bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method.full_name();
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr("more than"),
                      AnyOf(HasSubstr(" fields"), HasSubstr(" bytes beside its payloads"))))
        << method.full_name();
  }

  FakeShardNode node_;
  BufferPool pool_;
  std::unique_ptr<DataService> data_;
  std::unique_ptr<InspectService> inspect_;
  std::unique_ptr<RpcServer> shard_;
};

TEST_F(ServiceScan, EveryMethodRefusesManyTinyFields) {
  const std::vector<const ServiceDescriptor*> services = Services();
  ASSERT_EQ(services.size(), 4u) << "a new service: let this test serve it";
  for (const ServiceDescriptor* const service : services) {
    for (int i = 0; i < service->method_count(); ++i) {
      ExpectRefused(*service->method(i), TinyFields());
    }
  }
}

TEST_F(ServiceScan, EveryMethodRefusesManyTinyFieldsInsideOfAMessage) {
  int methods = 0;
  for (const ServiceDescriptor* const service : Services()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const MethodDescriptor& method = *service->method(i);
      for (int f = 0; f < method.input_type()->field_count(); ++f) {
        const FieldDescriptor& field = *method.input_type()->field(f);
        if (field.message_type() == nullptr) continue;
        SCOPED_TRACE(field.full_name());
        ExpectRefused(method, Delimited(field.number(), TinyFields()));
        ++methods;
      }
    }
  }
  EXPECT_GT(methods, 10);
}

// Half a million devices, 2 bytes each, which would have 60 bytes and more.
TEST_F(ServiceScan, HeartbeatBombIsRefusedBeforeItIsParsed) {
  std::string devices;
  for (int i = 0; i < 500'000; ++i) devices += std::string("\x2a\x00", 2);
  const MethodDescriptor& link =
      *DescriptorPool::generated_pool()->FindMethodByName("embla.v1.CoordinatorService.NodeLink");
  ExpectRefused(link, Delimited(v1::NodeReport::kHeartbeatFieldNumber, devices));
}

TEST_F(ServiceScan, StrangersReportsToTheCoordinatorHaveAtMostAMebibyte) {
  const MethodDescriptor& link =
      *DescriptorPool::generated_pool()->FindMethodByName("embla.v1.CoordinatorService.NodeLink");
  v1::NodeReport report;
  report.mutable_heartbeat()->set_failure_message(std::string(12 << 20, 'x'));
  const std::string bytes = report.SerializeAsString();
  const grpc::Status status = Call(link, bytes);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("at most 1048576 before the node's proof"));
}

}  // namespace
}  // namespace embla
