// Rules of access over TLS: every method of every service, by every role.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "core/tls/testing/test_authority.h"
#include "core/wire/status_codec.h"
#include "server/rpc/access_rules.h"
#include "server/rpc/coordinator_fixture.h"
#include "server/rpc/data_service.h"
#include "server/rpc/fake_shard_node.h"
#include "server/rpc/inspect_service.h"
#include "server/rpc/raw_call_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TestAuthority;
using ::google::protobuf::DescriptorPool;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string PathOf(const google::protobuf::MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}

// Methods as they are named on the wire.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const char* const name : {"admin", "coordinator", "data", "inspect"}) {
    const auto* const file =
        DescriptorPool::generated_pool()->FindFileByName(absl::StrCat("embla/v1/", name, ".proto"));
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.push_back(PathOf(*file->service(s)->method(m)));
      }
    }
  }
  return methods;
}

TEST(AccessRules, EveryMethodHasOneAndEveryRuleAMethod) {
  const std::vector<std::string> methods = AllMethods();
  EXPECT_GT(methods.size(), 30u);
  for (const std::string& method : methods) {
    EXPECT_NE(FindAccessRule(method), nullptr) << method << " has no rule: nobody may call it";
  }
  for (const AccessRule& rule : AccessRules()) {
    if (rule.method.starts_with("/grpc.")) continue;
    EXPECT_THAT(methods, ::testing::Contains(std::string(rule.method)));
  }
}

TEST(AccessRules, DenyWhatHasNoRule) {
  EXPECT_EQ(FindAccessRule("/embla.v1.DataService/Lookupx"), nullptr);
  EXPECT_EQ(FindAccessRule(""), nullptr);
  EXPECT_THAT(CheckAccess("/x/Y", Identity{.cluster = "c", .role = Role::kAdmin, .name = "a"}),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("has no rule")));
}

TEST(AccessRules, WhatDestroysIsForAdminsAlone) {
  for (const char* const method : {"AdminService/DropTable", "AdminService/ForgetNode",
                                   "AdminService/DropLeftovers", "InspectService/SweepTable"}) {
    const AccessRule* const rule = FindAccessRule(absl::StrCat("/embla.v1.", method));
    ASSERT_NE(rule, nullptr);
    EXPECT_EQ(NamesOf(rule->roles), "admin") << method;
  }
}

// All services behind one listener over TLS.
class Access : public CoordinatorFixture {
 protected:
  void SetUp() override {
    CoordinatorOptions options;
    options.new_cluster_id = "test-cluster";
    options.key = key_;
    auto coordinator = Coordinator::Open(store(), options, Clock::Real().Now());
    ASSERT_THAT(coordinator, IsOk());
    host_ = std::make_unique<CoordinatorHost>(*std::move(coordinator), CoordinatorHostOptions(),
                                              Clock::Real(), &metrics_);
    service_ = std::make_unique<CoordinatorService>(*host_);
    admin_service_ = std::make_unique<AdminService>(*host_);
    data_ = std::make_unique<DataService>(node_, pool_, nullptr, DataServiceOptions());
    node_.sessions().SetKey(key_);
    data_->ServePeers(node_key_);
    inspect_ = std::make_unique<InspectService>(node_);
    auto audit = AuditLog::Open(audit_file_, &metrics_);
    ASSERT_THAT(audit, IsOk());
    audit_ = *std::move(audit);
    grpc::Service* const services[] = {service_.get(), admin_service_.get(), data_.get(),
                                       inspect_.get()};
    auto server = RpcServer::Start({.listen = "127.0.0.1:0",
                                    .tls = authority_.Load(Role::kCoordinator, "c0"),
                                    .audit = audit_.get(),
                                    .metrics = &metrics_},
                                   services);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }
  void TearDown() override {
    channels_.clear();
    node_.Release();
    CoordinatorFixture::TearDown();
  }

  // A connection with a certificate of `role`, whose name is the role's.
  std::shared_ptr<grpc::Channel> As(Role role) {
    std::shared_ptr<grpc::Channel>& channel = channels_[role];
    if (channel == nullptr) {
      const TlsPtr tls = authority_.Load(role, std::string(NameOf(role)));
      channel =
          grpc::CreateChannel(server_->address(), tls->ForChannelTo({.role = Role::kCoordinator}));
    }
    return channel;
  }

  // A call of any kind with one empty message; ended after its first answer.
  grpc::Status Call(const std::string& method, Role role) {
    grpc::GenericStub stub(As(role));
    return CallRaw(stub, method, "", RawReplies::kFirst);
  }

  std::vector<nlohmann::json> AuditLines() const {
    std::vector<nlohmann::json> lines;
    const std::string text = *ReadFile(audit_file_);
    for (const auto& line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      lines.push_back(nlohmann::json::parse(std::string(line)));
    }
    return lines;
  }

  const TestAuthority authority_;
  const testing::TempDirectory directory_;
  const std::string audit_file_ = directory_.path() + "/audit.jsonl";
  std::unique_ptr<AuditLog> audit_;
  NodeKey node_key_{"", key_};
  FakeShardNode node_;
  BufferPool pool_;
  std::unique_ptr<DataService> data_;
  std::unique_ptr<InspectService> inspect_;
  std::map<Role, std::shared_ptr<grpc::Channel>> channels_;
};

TEST_F(Access, EveryRoleMayCallWhatItsRulesAllowAndNothingElse) {
  std::vector<std::string> methods = AllMethods();
  methods.push_back("/grpc.health.v1.Health/Check");
  for (const std::string& method : methods) {
    const RoleSet& roles = FindAccessRule(method)->roles;
    for (const Role role : kAllRoles) {
      const grpc::Status status = Call(method, role);
      const std::string who = absl::StrCat("spiffe://test/", std::string(NameOf(role)), "/");
      if (roles.Has(role)) {
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
        EXPECT_THAT(status.error_message(), Not(HasSubstr("may not call"))) << method;
        continue;
      }
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << method << who;
      EXPECT_THAT(status.error_message(),
                  AllOf(HasSubstr(who), HasSubstr(absl::StrCat("may not call ", method.substr(1))),
                        HasSubstr(absl::StrCat("it is for ", NamesOf(roles)))));
    }
  }
  EXPECT_EQ(Call("/embla.v1.DataService/Unknown", Role::kAdmin).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_GT(metrics_.MakeCounter(MetricNamed("embla_calls_denied_total"), {"reader"}).value(), 0);
}

TEST_F(Access, AReadersStreamCarriesNoUpdates) {
  for (const Role role : {Role::kReader, Role::kTrainer}) {
    const auto stub = v1::DataService::NewStub(As(role));
    grpc::ClientContext context;
    const auto stream = stub->Stream(&context);
    v1::StreamRequest request;
    request.set_sequence(1);
    request.mutable_update()->set_seq(1);
    request.mutable_update()->set_session(1);
    request.mutable_update()->set_session_proof(std::string(16, 'p'));
    v1::StreamReply reply;
    ASSERT_TRUE(stream->Write(request) && stream->Read(&reply));
    const bool is_denied = reply.message().find("may not call") != std::string::npos;
    EXPECT_EQ(is_denied, role == Role::kReader) << reply.ShortDebugString();
    context.TryCancel();
    (void)stream->Finish();
  }
}

// Whether a message of this type says which tables it is about.
bool NamesTables(const google::protobuf::Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.name() == "table_id" || field.name() == "table_ids") return true;
    if (field.message_type() != nullptr && NamesTables(*field.message_type())) return true;
  }
  return false;
}

// Requests about a table, by method, of those that trainers or readers may call.
std::map<std::string, std::string> RequestsAbout(TableId table, const ClusterKey& key) {
  constexpr SessionId kSession{(std::uint64_t{77} << 32) + 1};
  const std::uint32_t id = ToInt(table);
  v1::LookupRequest lookup;
  lookup.add_parts()->set_table_id(id);
  lookup.mutable_parts(0)->set_pooling(v1::POOLING_NONE);
  lookup.mutable_parts(0)->set_column_end(1);
  v1::UpdateRequest update;
  const SessionProof proof = ProveSession(key, kSession);
  update.set_session(ToInt(kSession));
  update.set_session_proof(proof.data(), proof.size());
  update.set_seq(1);
  update.add_parts()->set_table_id(id);
  update.mutable_parts(0)->set_form(v1::GRADIENT_FORM_ROWS);
  update.mutable_parts(0)->set_column_end(1);
  v1::UpdateRequest claim = update;
  claim.clear_parts();
  claim.mutable_claim()->set_table_id(id);
  claim.mutable_claim()->add_units()->set_granule_end(1);
  v1::StreamRequest stream;
  stream.set_sequence(1);
  *stream.mutable_lookup() = lookup;
  v1::StreamRequest stream_update;
  stream_update.set_sequence(1);
  *stream_update.mutable_update() = update;
  v1::ReadRowsRequest rows;
  rows.set_table_id(id);
  v1::SyncRequest sync;
  sync.add_table_ids(id);
  v1::ExplainIdRequest explain;
  explain.set_table_id(id);
  v1::SurveyTableRequest survey;
  survey.set_table_id(id);
  v1::ReadEvictionsRequest evictions;
  evictions.set_table_id(id);
  v1::InspectTableRequest inspect;
  inspect.set_table_id(id);
  return {{"DataService/Lookup", lookup.SerializeAsString()},
          {"DataService/ReadRows", rows.SerializeAsString()},
          {"DataService/Stream", stream.SerializeAsString()},
          {"DataService/Stream of an update", stream_update.SerializeAsString()},
          {"DataService/Sync", sync.SerializeAsString()},
          {"DataService/Update", update.SerializeAsString()},
          {"DataService/Update of a claim", claim.SerializeAsString()},
          {"InspectService/ExplainId", explain.SerializeAsString()},
          {"InspectService/InspectTable", inspect.SerializeAsString()},
          {"InspectService/ReadEvictions", evictions.SerializeAsString()},
          {"InspectService/SurveyTable", survey.SerializeAsString()}};
}

TEST_F(Access, TablesAreForTheCallersThatTheyName) {
  constexpr TableId kTable{7};
  const auto install = [&](std::vector<std::string> callers) {
    TablePlan table;
    table.spec = {.id = kTable, .name = "clicks", .rows = 8, .dim = 1};
    table.spec.callers = std::move(callers);
    table.spec.SetDefaults();
    const auto plan = std::make_shared<const Plan>(PlanVersion{1}, "test", std::vector<NodeSpec>(),
                                                   TableList{table});
    ASSERT_THAT(node_.InstallPlan(plan, NodeId{1}), IsOk());
  };
  const std::map<std::string, std::string> requests = RequestsAbout(kTable, *key_);
  for (const std::string& method : AllMethods()) {
    const std::string name = method.substr(std::string("/embla.v1.").size());
    const auto* const type = DescriptorPool::generated_pool()->FindMethodByName(
        absl::StrReplaceAll(method.substr(1), {{"/", "."}}));
    const RoleSet& roles = FindAccessRule(method)->roles;
    const bool is_here = name.starts_with("DataService") || name.starts_with("InspectService");
    const bool is_limited = roles.Has(Role::kTrainer) || roles.Has(Role::kReader);
    if (!is_here || !is_limited || !NamesTables(*type->input_type())) continue;
    EXPECT_TRUE(requests.contains(name)) << name << " is about tables: who may call it?";
  }
  const auto is_refused = [&](const std::string& method, const std::string& request, Role role) {
    grpc::GenericStub stub(As(role));
    std::string answer;
    const grpc::Status status =
        CallRaw(stub, absl::StrCat("/embla.v1.", method.substr(0, method.find(' '))), request,
                RawReplies::kFirst, &answer);
    return absl::StrCat(status.error_message(), answer).find("may not use table clicks") !=
           std::string::npos;
  };
  for (const auto& [method, request] : requests) {
    const std::string rule = absl::StrCat("/embla.v1.", method.substr(0, method.find(' ')));
    for (const Role role : kAllRoles) {
      if (!FindAccessRule(rule)->roles.Has(role)) continue;
      if (role == Role::kReader && method.ends_with("update")) continue;  // No reader may update.
      const bool is_limited = role == Role::kTrainer || role == Role::kReader;
      install({"somebody", "else"});
      EXPECT_EQ(is_refused(method, request, role), is_limited) << method << " " << NameOf(role);
      install({"somebody", std::string(NameOf(role))});
      EXPECT_FALSE(is_refused(method, request, role)) << method << " " << NameOf(role);
      install({});
      EXPECT_FALSE(is_refused(method, request, role)) << method << " " << NameOf(role);
    }
  }
}

TEST_F(Access, NamesAreThoseOfCertificates) {
  v1::OpenSessionRequest request;
  request.set_client_nonce(1);
  v1::OpenSessionReply reply;
  const auto open = [&](const std::string& trainer) {
    request.set_trainer(trainer);
    grpc::ClientContext context;
    return wire::FromGrpc(v1::CoordinatorService::NewStub(As(Role::kTrainer))
                              ->OpenSession(&context, request, &reply));
  };
  EXPECT_THAT(open("victim"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("spiffe://test/trainer/trainer may not be trainer victim")));
  EXPECT_THAT(open(""), IsOk());
  EXPECT_THAT(open("trainer"), IsOk());

  const auto link_as = [&](const std::string& name) {
    grpc::ClientContext context;
    const auto link = v1::CoordinatorService::NewStub(As(Role::kNode))->NodeLink(&context);
    v1::Registration registration;
    registration.set_name(name);
    registration.set_address("127.0.0.1:1");
    registration.set_boot_id(7);
    registration.add_devices()->set_memory_bytes(1 << 20);
    IntroduceNode(*link, registration, *key_);
    v1::NodeCommand command;
    while (link->Read(&command) && !command.has_registered()) {
    }
    if (command.has_registered()) context.TryCancel();
    return wire::FromGrpc(link->Finish());
  };
  EXPECT_THAT(link_as("victim"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("may not be node victim")));
  EXPECT_THAT(link_as("node"), Not(StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(""))));

  v1::PeerGreeting greeting;
  greeting.set_node("victim");
  v1::PeerWelcome welcome;
  grpc::ClientContext context;
  EXPECT_THAT(wire::FromGrpc(
                  v1::DataService::NewStub(As(Role::kNode))->Greet(&context, greeting, &welcome)),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("may not be node victim")));
}

TEST_F(Access, TheAuditLogSaysWhoDidWhatAndWhatBecameOfIt) {
  const auto admin = v1::AdminService::NewStub(As(Role::kAdmin));
  {
    v1::DropTableRequest request;
    request.set_name("clicks");
    v1::DropTableReply reply;
    grpc::ClientContext context;
    EXPECT_THAT(wire::FromGrpc(admin->DropTable(&context, request, &reply)),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("clicks")));
  }
  {
    v1::GetClusterStatusRequest request;
    v1::ClusterStatus reply;
    grpc::ClientContext context;
    // Changes nothing.
    EXPECT_THAT(wire::FromGrpc(admin->GetClusterStatus(&context, request, &reply)), IsOk());
  }
  v1::OpenSessionRequest request;
  request.set_client_name("a\"b\n");
  v1::OpenSessionReply reply;
  {
    grpc::ClientContext context;
    ASSERT_THAT(wire::FromGrpc(v1::CoordinatorService::NewStub(As(Role::kTrainer))
                                   ->OpenSession(&context, request, &reply)),
                IsOk());
  }
  v1::CloseSessionRequest close;
  close.set_session(reply.session());
  close.set_session_proof(reply.proof());
  {
    v1::CloseSessionReply closed;
    grpc::ClientContext context;
    ASSERT_THAT(wire::FromGrpc(v1::CoordinatorService::NewStub(As(Role::kTrainer))
                                   ->CloseSession(&context, close, &closed)),
                IsOk());
  }
  // Neither a request that cannot be read, nor one that was denied, has a `what`.
  {
    grpc::GenericStub stub(As(Role::kOperator));
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice junk("\xff\xff\xff");
    const auto call = stub.PrepareUnaryCall(&context, "/embla.v1.AdminService/SetTable",
                                            grpc::ByteBuffer(&junk, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer none;
    grpc::Status status;
    call->Finish(&none, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  const std::vector<nlohmann::json> lines = AuditLines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["who"], "spiffe://test/admin/admin");
  EXPECT_EQ(lines[0]["method"], "embla.v1.AdminService/DropTable");
  EXPECT_EQ(lines[0]["what"]["name"], "clicks");
  EXPECT_EQ(lines[0]["result"], "NOT_FOUND");
  EXPECT_EQ(lines[1]["who"], "spiffe://test/trainer/trainer");
  EXPECT_EQ(lines[1]["what"]["clientName"], "a\"b\n");
  EXPECT_EQ(lines[1]["result"], "OK");
  EXPECT_FALSE(lines[2]["what"].contains("sessionProof")) << "a proof is as good as the session";
  EXPECT_EQ(lines[3]["result"], "INVALID_ARGUMENT");
  EXPECT_FALSE(lines[3].contains("what"));
}

TEST_F(Access, TheAuditLogHasWhoChangedWhatServersLog) {
  v1::SetLogLevelRequest request;
  request.set_server("coordinator");
  request.set_level(v1::LOG_LEVEL_INFO);
  v1::SetLogLevelReply reply;
  grpc::ClientContext context;
  EXPECT_THAT(
      wire::FromGrpc(
          v1::AdminService::NewStub(As(Role::kOperator))->SetLogLevel(&context, request, &reply)),
      IsOk());
  const std::vector<nlohmann::json> lines = AuditLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["who"], "spiffe://test/operator/operator");
  EXPECT_EQ(lines[0]["what"]["level"], "LOG_LEVEL_INFO");
}

}  // namespace
}  // namespace embla
