// A server's connections: how many it takes, that it goes on after it had no descriptors, and that
// it ends those that reset streams without end.
#include "server/rpc/connection_acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "core/metrics/metrics.h"
#include "embla/v1/data.grpc.pb.h"
#include "server/rpc/descriptor_limit.h"
#include "server/rpc/http2_fixture.h"
#include "server/rpc/rpc_server.h"

namespace embla::connection_acceptor_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(30);

bool IsAnswered(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  grpc::Slice empty;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(&empty, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status.ok();
}

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void Start(RpcServerOptions options = {}) {
    options.metrics = &metrics_;
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(options, services_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }
  double open() { return ConnectionMetrics(&metrics_).connections.value(); }
  double refused(std::string_view reason) {
    return metrics_.MakeCounter(MetricNamed("embla_connections_refused_total"), {reason}).value();
  }
  double ended() {
    return metrics_.MakeCounter(MetricNamed("embla_connections_ended_total"), {"resets"}).value();
  }

  Metrics metrics_;
  v1::DataService::CallbackService service_;  // gRPC starts no server without any.
  grpc::Service* const services_[1] = {&service_};
  std::unique_ptr<RpcServer> server_;
};

using ConnectionAcceptorAccept = ConnectionAcceptorTest;

TEST_F(ConnectionAcceptorAccept, AddressOverItsBoundIsRefusedUntilOneOfItsConnectionsEnds) {
  Start({.connections = {.per_address_max = 3}});
  std::vector<FileDescriptor> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(http2::Connect(server_->address()));
  for (const FileDescriptor& socket : taken) {
    AwaitFor([&] { return http2::IsServed(socket); }, kLimit,
             "a connection within the bound is served");
  }
  const FileDescriptor fourth = http2::Connect(server_->address());
  AwaitFor([&] { return http2::IsClosed(fourth); }, kLimit, "the fourth connection is closed");
  EXPECT_EQ(refused("address"), 1);
  EXPECT_EQ(open(), 3);
  taken.pop_back();
  AwaitFor([&] { return open() == 2; }, kLimit, "the end of a connection is noticed");
  EXPECT_TRUE(IsAnswered(server_->address()));
}

TEST_F(ConnectionAcceptorAccept, UnixSocketIsBoundedByUserAndRemovedAtTheEnd) {
  const testing::TempDirectory directory;
  const std::string address = "unix:" + directory.path() + "/socket";
  Start({.listen = address, .connections = {.per_address_max = 1}});
  {
    const FileDescriptor taken = http2::Connect(address);
    AwaitFor([&] { return http2::IsServed(taken); }, kLimit, "the first connection is served");
    const FileDescriptor second = http2::Connect(address);
    AwaitFor([&] { return http2::IsClosed(second); }, kLimit, "the second connection is closed");
  }
  AwaitFor([&] { return open() == 0; }, kLimit, "the end of a connection is noticed");
  EXPECT_TRUE(AwaitFor([&] { return IsAnswered(address); }, kLimit, "the user has room again"));
  EXPECT_THAT(RpcServer::Start({.listen = address}, services_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("in use")));
  EXPECT_TRUE(AwaitFor([&] { return IsAnswered(address); }, kLimit, "the first still serves"));
  server_.reset();
  EXPECT_NE(::access(address.c_str() + 5, F_OK), 0);
}

TEST_F(ConnectionAcceptorAccept, UnixSocketThatNobodyServesIsTakenOver) {
  const testing::TempDirectory directory;
  const std::string address = "unix:" + directory.path() + "/socket";
  {
    const FileDescriptor left(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, address.c_str() + 5, sizeof(name.sun_path) - 1);
    ASSERT_EQ(::bind(left.number(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }
  Start({.listen = address});
  EXPECT_TRUE(IsAnswered(address));
}

TEST_F(ConnectionAcceptorAccept, NameAndIpv6AreServedOnTheirPort) {
  Start({.listen = "localhost:0"});
  EXPECT_TRUE(IsAnswered(server_->address()));
  const auto v6 = RpcServer::Start({.listen = "[::1]:0"}, services_);
  if (!v6.ok()) GTEST_SKIP() << "no IPv6 here: " << v6.status();
  EXPECT_TRUE(IsAnswered((*v6)->address()));
}

// While it lives, the process may have this many descriptors.
class ScopedDescriptorLimit {
 public:
  explicit ScopedDescriptorLimit(rlim_t descriptors) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit{.rlim_cur = descriptors, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~ScopedDescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// gRPC's own listener is dead for good after this (CVE-2023-4785).
TEST_F(ConnectionAcceptorAccept, ServerThatRanOutOfDescriptorsTakesConnectionsAgain) {
  const ScopedDescriptorLimit limit(128);
  Start();
  std::vector<FileDescriptor> sockets;
  for (int i = 0; i < 400; ++i) {
    FileDescriptor socket = http2::Connect(server_->address());
    if (!socket.is_open()) break;  // The client is this process, too.
    sockets.push_back(std::move(socket));
  }
  EXPECT_GT(sockets.size(), 20u);
  AwaitFor([&] { return refused("descriptors") > 0; }, kLimit, "connections are refused");
  sockets.clear();
  AwaitFor([&] { return open() == 0; }, kLimit, "the ends of all connections are noticed");
  // Connections that were never taken still come out of the kernel's queue.
  EXPECT_TRUE(AwaitFor([&] { return IsAnswered(server_->address()); }, kLimit, "it answers again"));
}

TEST(RaiseDescriptorLimit, RefusesAHardLimitThatIsTooLow) {
  EXPECT_THAT(RaiseDescriptorLimit(64), IsOk());
  EXPECT_THAT(RaiseDescriptorLimit(std::size_t{1} << 62),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("LimitNOFILE")));
}

using ConnectionAcceptorEnd = ConnectionAcceptorTest;

TEST_F(ConnectionAcceptorEnd, PeerThatResetsStreamsByTheThousandIsCutOff) {
  Start({.connections = {.open_calls_max = 100, .resets_max = 2'000, .resets_per_second = 0}});
  const FileDescriptor socket = http2::Connect(server_->address());
  ASSERT_TRUE(http2::Send(socket, http2::Hello()));
  std::uint32_t stream = 1;
  const auto reset_some = [&] {
    std::string frames;
    for (int i = 0; i < 50; ++i, stream += 2) {
      frames += http2::Headers(stream, "/grpc.health.v1.Health/Watch") + http2::Reset(stream);
    }
    (void)http2::Send(socket, frames);
    return http2::IsClosed(socket);
  };
  AwaitFor(reset_some, kLimit, "the connection is ended");
  EXPECT_EQ(ended(), 1) << "after " << stream / 2 << " streams";
  EXPECT_TRUE(IsAnswered(server_->address()));
}

TEST_F(ConnectionAcceptorEnd, ClientThatCancelsHundredsOfCallsIsLeftAlone) {
  Start({.connections = {.open_calls_max = 100, .resets_max = 2'000, .resets_per_second = 0}});
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  for (int i = 0; i < 500; ++i) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, "/grpc.health.v1.Health/Watch", &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
  }
  EXPECT_EQ(ended(), 0);
  EXPECT_EQ(open(), 1);
}

}  // namespace
}  // namespace embla::connection_acceptor_test
