// Strangers by the ten thousand on a cluster whose connections are over TLS: handshakes that are
// refused, calls that the caller's role may not make, and, where tokens are accepted, calls without
// one that is. Nothing changes, and no server keeps memory of them.
//
// EMBLA_STRANGERS: how many handshakes (default 600); calls are ten times as many.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/file.h"
#include "core/base/file_descriptor.h"
#include "core/base/testing/loopback.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/used_memory.h"
#include "core/tls/testing/test_authority.h"
#include "core/tls/tls.h"
#include "core/tls/token.h"
#include "embla/v1/coordinator.pb.h"
#include "embla/v1/data.pb.h"
#include "tests/testing/process_cluster.h"

namespace embla::strangers_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::ProcessCluster;
using ::embla::testing::TestAuthority;
using ::embla::testing::UsedBytes;
using ::testing::Each;

constexpr int kThreads = 2;
constexpr int kInFlight = 64;  // Calls of a thread.
constexpr std::chrono::milliseconds kLook(10);
constexpr double kMiB = 1 << 20;
constexpr double kTakenMax = 64;
constexpr std::size_t kRows = 64;
constexpr std::uint32_t kDim = 4;

int Handshakes() {
  const char* const asked = std::getenv("EMBLA_STRANGERS");
  return asked == nullptr ? 600 : std::atoi(asked);
}

using ContextPtr = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// Makes that of a client that shows the certificate in `files`; without files, none.
ContextPtr MakeContext(const TlsFiles& files) {
  ContextPtr context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (!files.certificate.empty()) {
    const char* const file = files.certificate.c_str();
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), file), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), file, SSL_FILETYPE_PEM), 1);
  }
  return context;
}

// Whether the server at `address` ended the handshake, or the connection after it.
bool IsRefused(SSL_CTX& context, const std::string& address) {
  const sockaddr_in name = testing::SocketName(address);
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    return false;
  }
  const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(&context), SSL_free);
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(tls.get(), kHttp2, sizeof(kHttp2));
  SSL_set_fd(tls.get(), socket.number());
  if (SSL_connect(tls.get()) != 1) return true;
  // With TLS 1.3 a client is through before the server has seen its certificate. A server that
  // takes the client speaks first.
  char byte = 0;
  return SSL_read(tls.get(), &byte, 1) <= 0;
}

// A call, and how it has to be answered.
struct JudgedCall {
  std::shared_ptr<grpc::Channel> channel;
  std::string method;
  std::string request = {};
  grpc::StatusCode code = grpc::StatusCode::PERMISSION_DENIED;
  std::string words = {};  // The answer's message has them.
  std::vector<std::string> tokens = {};
};

// Makes `call`; `done` has the answer.
void Make(const JudgedCall& call, std::function<void(const grpc::Status&)> done) {
  struct State {
    grpc::GenericStub stub;
    grpc::ClientContext context;
    grpc::ByteBuffer request, reply;
  };
  auto state = std::make_shared<State>(grpc::GenericStub(call.channel));
  for (const std::string& token : call.tokens) {
    state->context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  }
  const grpc::Slice bytes(call.request);
  state->request = grpc::ByteBuffer(&bytes, 1);
  state->stub.UnaryCall(
      &state->context, call.method, grpc::StubOptions(), &state->request, &state->reply,
      [state, done = std::move(done)](const grpc::Status& status) { done(status); });
}

class Strangers : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cluster = ProcessCluster::Start(Options());
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    const auto [printed, code] = cluster_->Embla(
        "table create --name t --rows 64 --dim 4 --sharding row_wise --optimizer sgd "
        "--learning-rate 1 --init constant");
    ASSERT_EQ(code, 0) << printed;
    auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    admin_ = *std::move(admin);
    auto trainer = cluster_->Connect();
    ASSERT_THAT(trainer, IsOk());
    trainer_ = *std::move(trainer);
    ExpectUnchanged();
    plan_version_ = PlanVersion();
  }

  virtual ProcessCluster::Options Options() {
    return {.nodes = 1, .authority = &authority_, .journals = true};
  }

  std::vector<std::string> Addresses() const {
    return {cluster_->node_address(0), cluster_->coordinator_address(), cluster_->admin_address()};
  }
  std::shared_ptr<grpc::Channel> Channel(const std::string& address, Role role) const {
    authority_.Issue(role, "somebody");
    const Role server = address == cluster_->node_address(0) ? Role::kNode : Role::kCoordinator;
    return grpc::CreateChannel(
        address, ChannelCredentialsTo(authority_.Load(role, "somebody"), {.role = server}));
  }

  std::uint64_t PlanVersion() const {
    const auto status = admin_->Call<v1::ClusterStatus>(v1::GetClusterStatusRequest());
    EXPECT_THAT(status, IsOk());
    return status.ok() ? status->plan_version() : 0;
  }
  // The rows are as they were made, and there are no more tables.
  void ExpectUnchanged() {
    std::vector<std::int64_t> ids;
    for (std::size_t row = 0; row < kRows; ++row) ids.push_back(static_cast<std::int64_t>(row));
    std::vector<float> rows(kRows * kDim, 1.0f);
    const client::FeatureLookup feature{.table = "t", .ids = ids, .rows_out = rows};
    EXPECT_THAT(trainer_->Lookup({&feature, 1}, {}), IsOk());
    EXPECT_THAT(rows, Each(0.0f));
  }

  // Runs `work` on several threads, and expects that it leaves no memory behind in any server.
  void ExpectNothingKept(const std::function<void(int thread)>& work) {
    const std::vector<pid_t> servers = {cluster_->node(0).pid(), cluster_->coordinator().pid()};
    std::vector<double> before, most;
    for (const pid_t pid : servers) before.push_back(static_cast<double>(UsedBytes(pid)));
    most = before;
    std::counting_semaphore<kThreads> ended(0);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        work(i);
        ended.release();
      });
    }
    for (int running = kThreads; running > 0;) {
      for (std::size_t i = 0; i < servers.size(); ++i) {
        most[i] = std::max(most[i], static_cast<double>(UsedBytes(servers[i])));
      }
      running -= ended.try_acquire_for(kLook);
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < servers.size(); ++i) {
      const double taken = (most[i] - before[i]) / kMiB;
      EXPECT_LE(taken, kTakenMax) << (i == 0 ? "the node" : "the coordinator");
      std::cout << (i == 0 ? "node" : "coordinator") << " at most " << taken << " MiB more\n";
    }
    EXPECT_EQ(PlanVersion(), plan_version_);
    ExpectUnchanged();
  }

  // Makes ten times as many calls as handshakes, each of `all` in turn.
  void ExpectAllRefused(const std::vector<JudgedCall>& all) {
    const int calls = 10 * Handshakes();
    std::atomic<int> refused = 0;
    std::atomic<int> ended = 0;  // With their connection: a flood looks like one of resets.
    ExpectNothingKept([&](int thread) {
      std::counting_semaphore<kInFlight> room(kInFlight);
      for (int i = thread; i < calls; i += kThreads) {
        room.acquire();
        const JudgedCall& call = all[static_cast<std::size_t>(i / kThreads) % all.size()];
        Make(call, [&](const grpc::Status& status) {
          refused += status.error_code() == call.code &&
                     status.error_message().find(call.words) != std::string::npos;
          ended += status.error_code() == grpc::StatusCode::UNAVAILABLE;
          room.release();
        });
      }
      for (int i = 0; i < kInFlight; ++i) room.acquire();
    });
    EXPECT_EQ(refused + ended, calls);
    EXPECT_LE(ended, calls / 100);
    std::cout << ended << " of " << calls << " calls ended with their connection\n";
  }

  const TestAuthority authority_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<client::Admin> admin_;
  std::unique_ptr<client::Client> trainer_;
  std::uint64_t plan_version_ = 0;
};

TEST_F(Strangers, HandshakesAreRefusedByTheThousandAndLeaveNothing) {
  const TestAuthority foreign;
  const TestAuthority another_cluster("another");
  std::vector<ContextPtr> contexts;
  contexts.push_back(MakeContext({}));
  contexts.push_back(MakeContext(foreign.Issue(Role::kAdmin, "admin")));
  contexts.push_back(MakeContext(another_cluster.Issue(Role::kAdmin, "admin")));
  contexts.push_back(MakeContext(authority_.Issue(Role::kAdmin, "late", -absl::Hours(1))));
  const std::vector<std::string> addresses = Addresses();
  std::atomic<int> refused = 0;
  ExpectNothingKept([&](int thread) {
    for (int i = thread; i < Handshakes(); i += kThreads) {
      refused += IsRefused(*contexts[i % contexts.size()],
                           addresses[i / contexts.size() % addresses.size()]);
    }
  });
  EXPECT_EQ(refused, Handshakes());
}

TEST_F(Strangers, CallsThatARoleMayNotMakeAreRefusedByTheTenThousand) {
  const std::string drop = client::DropTableRequest("t").SerializeAsString();
  const std::string data = cluster_->node_address(0), admin = cluster_->admin_address();
  ExpectAllRefused({
      {Channel(data, Role::kReader), "/embla.v1.DataService/Update", ""},
      {Channel(admin, Role::kTrainer), "/embla.v1.AdminService/DropTable", drop},
      {Channel(admin, Role::kOperator), "/embla.v1.AdminService/DropTable", drop},
      {Channel(cluster_->coordinator_address(), Role::kReader),
       "/embla.v1.CoordinatorService/NodeLink", ""},
  });
}

// Servers that accept an admin's token: a caller whose call were let through could do anything.
class StrangersWithoutACertificate : public Strangers {
 protected:
  ProcessCluster::Options Options() override {
    const std::string file = authority_.directory() + "/tokens";
    EXPECT_THAT(AtomicWriteFile(file, LineOfToken(ann_, accepted_, absl::InfiniteFuture()) + "\n" +
                                          LineOfToken(ann_, late_, absl::UnixEpoch()) + "\n"),
                IsOk());
    ProcessCluster::Options options = Strangers::Options();
    options.coordinator_flags = {"--tokens", file};
    options.shard_flags = {"--tokens", file};
    return options;
  }

  // One that shows no certificate, and does not look at the server's.
  static std::shared_ptr<grpc::Channel> Anonymous(const std::string& address) {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_verify_server_certs(false);
    options.set_check_call_host(false);
    options.set_certificate_verifier(
        std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
    return grpc::CreateChannel(address, grpc::experimental::TlsCredentials(options));
  }

  const Identity ann_{.cluster = "test", .role = Role::kAdmin, .name = "ann"};
  const std::string accepted_ = *NewToken(ann_);
  const std::string late_ = *NewToken(ann_);
};

TEST_F(StrangersWithoutACertificate, CallsWithoutAGoodTokenAreRefusedByTheTenThousand) {
  std::binary_semaphore answered(0);
  Make({.channel = Anonymous(cluster_->admin_address()),
        .method = "/embla.v1.AdminService/ListNodes",
        .tokens = {accepted_}},
       [&](const grpc::Status& status) {
         EXPECT_EQ(status.error_code(), grpc::StatusCode::OK) << status.error_message();
         answered.release();
       });
  answered.acquire();

  struct Kind {
    std::vector<std::string> tokens;
    std::string words;
  };
  const std::vector<Kind> kinds = {
      {{}, "neither a certificate nor a token"},
      {{*NewToken(ann_)}, "the token of spiffe://test/admin/ann is not one that is accepted"},
      {{"guess"}, "the token is not CLUSTER/ROLE/NAME/SECRET"},
      {{late_}, "the token of spiffe://test/admin/ann ended at 1970-01-01"},
      {{accepted_, accepted_}, "several tokens"},
  };
  const std::vector<JudgedCall> methods = {
      {Anonymous(cluster_->admin_address()), "/embla.v1.AdminService/DropTable",
       client::DropTableRequest("t").SerializeAsString()},
      {Anonymous(cluster_->node_address(0)), "/embla.v1.DataService/Update", ""},
      {Anonymous(cluster_->coordinator_address()), "/embla.v1.CoordinatorService/OpenSession", ""},
  };
  std::vector<JudgedCall> all;
  for (const JudgedCall& method : methods) {
    for (const Kind& kind : kinds) {
      all.push_back(method);
      all.back().code = grpc::StatusCode::UNAUTHENTICATED;
      all.back().words = kind.words;
      all.back().tokens = kind.tokens;
    }
  }
  ExpectAllRefused(all);
}

}  // namespace
}  // namespace embla::strangers_test
