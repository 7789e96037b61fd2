// Servers and channels over TLS, with the certificates of core/tls/testing.
#include "core/tls/tls.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/tls/testing/test_authority.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TestAuthority;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(20);

// Answers every call with the caller's identity, as the message of ABORTED.
class WhoAmI final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override {
    class Answer final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Answer(const std::string& who) {
        Finish(grpc::Status(grpc::StatusCode::ABORTED, who));
      }
      void OnDone() override { delete this; }
    };
    const std::optional<Identity> caller = CallerOf(*call);
    return new Answer(caller.has_value() ? UriOf(*caller) : "nobody");
  }
};

class Server {
 public:
  explicit Server(std::shared_ptr<grpc::ServerCredentials> credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", std::move(credentials), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~Server() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  WhoAmI service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct Answer {
  grpc::Status status;
  std::string certificate;  // The server's.
};

// A channel that shares no connection with another.
std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address,
                                          const std::shared_ptr<grpc::ChannelCredentials>& as) {
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, as, own);
}

Answer Call(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& as) {
  grpc::GenericStub stub(OwnChannel(address, as));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/any/Method", grpc::ByteBuffer(), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  Answer answer;
  call->Finish(&reply, &answer.status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  const auto shown = context.auth_context()->FindPropertyValues("x509_pem_cert");
  if (!shown.empty()) answer.certificate.assign(shown.front().data(), shown.front().size());
  return answer;
}

// The lines of a server's log.
class Refusals {
 public:
  Tls::OnRefused OnRefused() {
    return [this](TlsRefusal why, const absl::Status& status) {
      MutexLock lock(mu_);
      heard_.push_back(absl::StrCat(std::string(NameOf(why)), ": ", embla::Message(status)));
    };
  }
  std::vector<std::string> heard() {
    MutexLock lock(mu_);
    return heard_;
  }

 private:
  Mutex mu_;
  std::vector<std::string> heard_;
};

TEST(TlsCall, TellsTheServerWhoCalls) {
  const TestAuthority authority;
  const TlsPtr node = authority.Load(Role::kNode, "n0");
  const Server server(node->ForServer(nullptr));
  const TlsPtr trainer = authority.Load(Role::kTrainer, "t1");
  const Answer answer = Call(server.address(), trainer->ForChannelTo({.role = Role::kNode}));
  EXPECT_EQ(answer.status.error_message(), "spiffe://test/trainer/t1");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::ABORTED);
}

TEST(TlsCall, RefusesAServerThatIsNotWhomTheCallerExpects) {
  const TestAuthority authority;
  const TestAuthority foreign;
  const TlsPtr caller = authority.Load(Role::kTrainer, "t1");
  const auto ask = [&](const TlsPtr& serving, const ExpectedPeer& expected) {
    const Server server(serving->ForServer(nullptr));
    return Call(server.address(), caller->ForChannelTo(expected)).status;
  };
  const TlsPtr node = authority.Load(Role::kNode, "n0");
  EXPECT_EQ(ask(node, {.role = Role::kNode, .name = "n0"}).error_code(), grpc::StatusCode::ABORTED);
  const grpc::Status stolen = ask(node, {.role = Role::kNode, .name = "n1"});
  EXPECT_EQ(stolen.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(stolen.error_message(), HasSubstr("spiffe://test/node/n0, not of node n1"));
  EXPECT_THAT(ask(node, {.role = Role::kCoordinator}).error_message(),
              HasSubstr("not of coordinator"));
  EXPECT_THAT(ask(authority.Load(Role::kTrainer, "t2"), {.role = Role::kTrainer}).error_message(),
              HasSubstr("purpose"));
  EXPECT_THAT(ask(foreign.Load(Role::kNode, "n0"), {.role = Role::kNode}).error_message(),
              HasSubstr("signed by no authority"));
}

TEST(TlsCall, RefusesCallersWhoseCertificateIsWrongAndSaysWhy) {
  const TestAuthority authority;
  const TestAuthority foreign;
  const TestAuthority elsewhere("other");
  Refusals refusals;
  const TlsPtr node = authority.Load(Role::kNode, "n0");
  const Server server(node->ForServer(refusals.OnRefused()));
  // Credentials of a caller that checks nothing about itself.
  const auto as = [](const TlsFiles& files) {
    const std::string pem = *ReadFile(files.certificate);
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            *ReadFile(files.authorities),
            std::vector<grpc::experimental::IdentityKeyCertPair>{{pem, pem}}));
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    options.set_verify_server_certs(false);
    options.set_check_call_host(false);
    options.set_certificate_verifier(
        std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
    return grpc::experimental::TlsCredentials(options);
  };
  grpc::experimental::TlsChannelCredentialsOptions without;
  without.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          authority.pem().certificate));
  without.watch_root_certs();
  without.set_verify_server_certs(false);
  without.set_check_call_host(false);
  without.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  const TlsFiles good = authority.Issue(Role::kTrainer, "good");
  ASSERT_EQ(Call(server.address(), as(good)).status.error_code(), grpc::StatusCode::ABORTED);

  struct Case {
    const char* said;
    std::shared_ptr<grpc::ChannelCredentials> credentials;
  };
  const Case cases[] = {
      {"expired: certificate spiffe://test/trainer/old",
       as(authority.Issue(Role::kTrainer, "old", -absl::Minutes(1)))},
      {"foreign: certificate spiffe://test/trainer/t1", as(foreign.Issue(Role::kTrainer, "t1"))},
      {"foreign: certificate spiffe://other/trainer/t1", as(elsewhere.Issue(Role::kTrainer, "t1"))},
      {"missing: no certificate was shown", grpc::experimental::TlsCredentials(without)},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(Call(server.address(), each.credentials).status.error_code(),
              grpc::StatusCode::UNAVAILABLE)
        << each.said;
    EXPECT_THAT(refusals.heard(), Contains(HasSubstr(each.said)));
  }
  EXPECT_EQ(Call(server.address(), grpc::InsecureChannelCredentials()).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(server.address(), as(good)).status.error_code(), grpc::StatusCode::ABORTED);
}

TEST(TlsLoad, RefusesFilesThatTheOtherEndWouldRefuse) {
  const TestAuthority authority;
  const TestAuthority foreign;
  const TlsFiles expired = authority.Issue(Role::kTrainer, "old", -absl::Minutes(1));
  EXPECT_THAT(Tls::Load(expired).status(),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr(expired.certificate), HasSubstr("has expired on 20"))));
  TlsFiles mixed = foreign.Issue(Role::kTrainer, "t1");
  mixed.authorities = authority.authority_file();
  EXPECT_THAT(Tls::Load(mixed).status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("signed by no authority")));
  TlsFiles halves = authority.Issue(Role::kTrainer, "t1");
  halves.authorities = "";
  EXPECT_THAT(Tls::Load(halves).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tls-ca")));
  TlsFiles crossed = authority.Issue(Role::kTrainer, "t1");
  crossed.key = authority.Issue(Role::kTrainer, "t2").certificate;
  EXPECT_THAT(Tls::Load(crossed).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of another certificate")));
  TlsFiles absent = authority.Issue(Role::kTrainer, "t1");
  absent.certificate += ".absent";
  EXPECT_THAT(Tls::Load(absent).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tls-cert: ")));
  absent.authorities += ".absent";
  EXPECT_THAT(Tls::Load(absent).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tls-ca: ")));
  const absl::StatusOr<TlsPtr> none = Tls::Load({});
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(*none, nullptr);
}

// Lets through whom a server's tokens let through.
class TokenGuard final : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenGuard(TlsPtr tls) : tls_(std::move(tls)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    if (CallerOf(*context).has_value()) return grpc::Status::OK;
    const auto found = metadata.find("authorization");
    const auto caller = tls_->JudgeToken(
        found == metadata.end() ? std::string_view()
                                : std::string_view(found->second.data(), found->second.size()));
    if (caller.ok()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, std::string(caller.status().message())};
  }

 private:
  const TlsPtr tls_;
};

class TlsTokens : public ::testing::Test {
 protected:
  TlsPtr Serving(bool accepts_tokens = true) {
    TlsFiles files = authority_.Issue(Role::kNode, "n0");
    if (accepts_tokens) files.tokens = accepted_;
    auto tls = Tls::Load(files);
    EXPECT_THAT(tls, IsOk());
    return *std::move(tls);
  }
  TlsFiles FilesOf(const std::string& token) {
    const std::string path = authority_.directory() + "/token";
    EXPECT_THAT(AtomicWriteFile(path, token + "\n"), IsOk());
    return {.authorities = authority_.authority_file(), .token = path};
  }
  std::shared_ptr<grpc::ChannelCredentials> Calling(const std::string& token) {
    const auto tls = Tls::Load(FilesOf(token));
    EXPECT_THAT(tls, IsOk());
    return (*tls)->ForChannelTo({.role = Role::kNode});
  }

  const TestAuthority authority_;
  const std::string accepted_ = authority_.directory() + "/accepted";
  const Identity trainer_{.cluster = "test", .role = Role::kTrainer, .name = "t1"};
  const std::string token_ = *NewToken(trainer_);
};

TEST_F(TlsTokens, TakeTheCertificatesPlaceWhereTheyAreAccepted) {
  ASSERT_THAT(AtomicWriteFile(accepted_, LineOfToken(trainer_, token_, absl::InfiniteFuture())),
              IsOk());
  const TlsPtr tls = Serving();
  const Server server(tls->ForServer(nullptr, std::make_shared<TokenGuard>(tls)));
  const Answer answer = Call(server.address(), Calling(token_));
  EXPECT_EQ(answer.status.error_message(), "spiffe://test/trainer/t1");
  EXPECT_THAT(Call(server.address(), Calling(*NewToken(trainer_))).status.error_message(),
              HasSubstr("is not one that is accepted"));
  const TlsPtr reader = authority_.Load(Role::kReader, "r");
  EXPECT_EQ(
      Call(server.address(), reader->ForChannelTo({.role = Role::kNode})).status.error_message(),
      "spiffe://test/reader/r");
  // The client believes no server that the authorities do not.
  const TestAuthority foreign;
  const TlsPtr impostor = foreign.Load(Role::kNode, "n0");
  const Server other(impostor->ForServer(nullptr));
  EXPECT_EQ(Call(other.address(), Calling(token_)).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTokens, AreRefusedInTheHandshakeWhereNoneAreAccepted) {
  ASSERT_THAT(AtomicWriteFile(accepted_, LineOfToken(trainer_, token_, absl::InfiniteFuture())),
              IsOk());
  Refusals refusals;
  const TlsPtr without = Serving(false);
  const Server server(
      without->ForServer(refusals.OnRefused(), std::make_shared<TokenGuard>(without)));
  EXPECT_EQ(Call(server.address(), Calling(token_)).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refusals.heard(), Contains(HasSubstr("missing: no certificate was shown")));
  // Nobody judges tokens there.
  const Server unguarded(Serving()->ForServer(nullptr));
  EXPECT_EQ(Call(unguarded.address(), Calling(token_)).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTokens, GoOverTlsOnly) {
  const TlsFiles files = FilesOf(token_);
  EXPECT_THAT(Tls::Load({.token = files.token}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokens go over TLS only")));
  EXPECT_THAT(Tls::Load({.tokens = accepted_}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("TLS needs --tls-cert")));
  TlsFiles both = authority_.Issue(Role::kTrainer, "t1");
  both.token = files.token;
  EXPECT_THAT(Tls::Load(both).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("takes the place of")));
}

TEST(TlsReload, TakesRenewedFilesWithoutAFailedCall) {
  const TestAuthority authority;
  const TlsPtr node = authority.Load(Role::kNode, "n0");
  const Server server(node->ForServer(nullptr));
  const TlsPtr trainer = authority.Load(Role::kTrainer, "t1");
  const auto credentials = trainer->ForChannelTo({.role = Role::kNode});
  // A connection is open all the time, as in a trainer. Without one gRPC 1.51 forgets the files,
  // and the second of two connections that then start at once fails: it does not wait until the
  // first has brought them back.
  const auto held = OwnChannel(server.address(), credentials);
  ASSERT_TRUE(
      held->WaitForConnected(std::chrono::system_clock::now() + absl::ToChronoSeconds(kLimit)));
  const std::string before = Call(server.address(), credentials).certificate;
  ASSERT_FALSE(before.empty());
  std::atomic<bool> is_over = false;
  std::atomic<int> calls = 0;
  std::vector<std::string> failures;
  std::thread load([&] {
    while (!is_over) {
      const grpc::Status status = Call(server.address(), credentials).status;
      if (status.error_code() != grpc::StatusCode::ABORTED) {
        failures.push_back(status.error_message());
      }
      ++calls;
    }
  });
  for (int i = 0; i < 3; ++i) {
    const std::string shown = Call(server.address(), credentials).certificate;
    authority.Issue(Role::kNode, "n0");
    authority.Issue(Role::kTrainer, "t1");
    EXPECT_TRUE(AwaitFor([&] { return Call(server.address(), credentials).certificate != shown; },
                         kLimit, "the renewed certificate"));
  }
  is_over = true;
  load.join();
  EXPECT_THAT(failures, ::testing::IsEmpty());
  EXPECT_GT(calls, 0);
}

}  // namespace
}  // namespace embla
