// How much of a server's memory each of its clients can take, and that it is given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "client/include/embla/client.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/used_memory.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "embla/v1/data.pb.h"
#include "server/rpc/http2_fixture.h"
#include "server/rpc/http2_sender.h"
#include "tests/testing/process_cluster.h"

namespace embla::memory_shares_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::ProcessCluster;
using ::embla::testing::UsedBytes;

constexpr double kMiB = 1 << 20;
constexpr std::int64_t kRows = 4096;
constexpr std::uint32_t kDim = 1024;
constexpr absl::Duration kGivenBackIn = absl::Seconds(10);
// gRPC may have received as much before it hears that the connection is ended.
constexpr double kReadAhead = 8;

class MemoryShares : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cluster = ProcessCluster::Start({.nodes = 1, .devices_per_node = 1});
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    const auto [printed, code] = cluster_->Embla(
        absl::StrCat("table create --name t --sharding row_wise --rows ", kRows, " --dim ", kDim));
    ASSERT_EQ(code, 0) << printed;
    // Rows, threads and pools exist from now on.
    const auto warm = cluster_->Connect();
    ASSERT_THAT(warm, IsOk());
    ASSERT_THAT(TryLookup(**warm, 1), IsOk());
    Watch(cluster_->node(0), cluster_->node_address(0), cluster_->node_metrics_address(0));
  }

  // From now on the tests look at the memory of `program` and connect to its `address`.
  void Watch(const testing::ChildProcess& program, const std::string& address,
             const std::string& metrics) {
    pid_ = program.pid();
    address_ = address;
    metrics_ = metrics;
    before_ = MiBUsed();
  }

  // A coordinator that has had no load: malloc may keep what a load had.
  void WatchCoordinator(bool is_admin) {
    ASSERT_NO_FATAL_FAILURE(SetUp());
    Watch(cluster_->coordinator(),
          is_admin ? cluster_->admin_address() : cluster_->coordinator_address(),
          cluster_->coordinator_metrics_address());
  }

  double MiBUsed() const { return static_cast<double>(UsedBytes(pid_)) / kMiB; }
  double MiBTaken() const { return MiBUsed() - before_; }

  // The most of many looks while `work` runs.
  double MostTakenDuring(const std::function<void()>& work) const {
    std::atomic<bool> is_done = false;
    double most = 0;
    std::thread looks([&] {
      while (!is_done) most = std::max(most, MiBTaken());
    });
    work();
    is_done = true;
    looks.join();
    return most;
  }

  // How many connections the program has ended because they held too much.
  double Ended() const {
    const FileDescriptor socket = http2::Connect(metrics_);
    EXPECT_TRUE(
        http2::Send(socket, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    std::string page;
    char bytes[4096];
    for (ssize_t count = 1; count > 0;) {
      count = ::recv(socket.number(), bytes, sizeof(bytes), 0);
      if (count > 0) page.append(bytes, static_cast<std::size_t>(count));
    }
    const std::string series = R"(embla_connections_ended_total{reason="memory"} )";
    const std::size_t at = page.find(series);
    return at == std::string::npos ? 0 : std::stod(page.substr(at + series.size()));
  }

  static absl::Status TryLookup(Client& client, std::size_t rows) {
    const std::vector<std::int64_t> ids(rows, 3);
    std::vector<float> values(rows * kDim);
    FeatureLookup feature{.table = "t", .ids = ids, .rows_out = values};
    return client.Lookup({&feature, 1},
                         {.timeout = testing::kAwaitMax, .combine_duplicates = false});
  }

  // A connection that asks for `replies` of 1 MiB and reads none of them.
  FileDescriptor ConnectUnreading(int replies) const {
    const std::vector<std::int64_t> ids(256, 3);
    v1::LookupRequest request;
    v1::LookupPart& part = *request.add_parts();
    part.set_table_id(1);
    part.set_pooling(v1::POOLING_NONE);
    part.set_column_end(kDim);
    part.set_ids_count(static_cast<std::uint32_t>(ids.size()));
    request.set_ids(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8));
    const std::string lookup = request.SerializeAsString();
    FileDescriptor socket = http2::Connect(address_);
    EXPECT_TRUE(http2::Send(socket, http2::Hello(http2::NoWindow())));
    for (int i = 0; i < replies; ++i) {
      const auto stream = static_cast<std::uint32_t>(2 * i + 1);
      EXPECT_TRUE(http2::Send(socket, http2::Headers(stream, "/embla.v1.DataService/Lookup") +
                                          http2::Message(stream, lookup)));
    }
    return socket;
  }

  v1::OpenSessionReply OpenSession() const {
    const auto stub = v1::CoordinatorService::NewStub(
        grpc::CreateChannel(cluster_->coordinator_address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::OpenSessionReply reply;
    const grpc::Status status = stub->OpenSession(&context, v1::OpenSessionRequest(), &reply);
    EXPECT_THAT(status, IsOk());
    return reply;
  }

  // A message that is never complete.
  struct Endless {
    std::string path = "/embla.v1.DataService/Lookup";
    std::uint32_t stated_bytes = 61 << 20;
  };
  // Begins as many messages, and sends up to `bytes` of each. Returns how many bytes were taken.
  static std::size_t SendParts(http2::Sender& sender, int streams, std::size_t bytes,
                               const http2::Sender::Shape& shape, const Endless& message) {
    for (int i = 0; i < streams; ++i) {
      sender.Begin(static_cast<std::uint32_t>(2 * i + 3), message.path, message.stated_bytes);
    }
    std::size_t sent = 0;
    for (int i = 0; i < streams && !sender.is_closed(); ++i) {
      sent +=
          sender.SendMore(static_cast<std::uint32_t>(2 * i + 3), bytes, shape, testing::kAwaitMax);
    }
    return sent;
  }

  void ExpectGivenBack() {
    EXPECT_TRUE(AwaitFor([&] { return MiBTaken() < 8; }, kGivenBackIn, "memory is given back"))
        << MiBTaken() << " MiB are kept";
  }

  // Each of the connections sends `bytes` of one message.
  void ExpectAThousandConnectionsHave64MiB(std::size_t bytes, const Endless& message) {
    double most = 0;
    {
      std::vector<std::unique_ptr<http2::Sender>> senders;
      most = MostTakenDuring([&] {
        for (int i = 0; i < 1000; ++i) {
          senders.push_back(std::make_unique<http2::Sender>(address_));
          SendParts(*senders.back(), 1, bytes, {}, message);
        }
        // Otherwise the connections hold too little for this test to show anything.
        EXPECT_TRUE(AwaitFor([&] { return Ended() >= 1; }, testing::kAwaitMax, "one is ended"));
      });
    }
    std::cout << "1,000 requests of which " << bytes << " bytes come: " << most << " MiB\n";
    EXPECT_LE(most, 64);
    ExpectGivenBack();
  }

  std::unique_ptr<ProcessCluster> cluster_;
  pid_t pid_ = -1;
  std::string address_;
  std::string metrics_;
  double before_ = 0;
};

TEST_F(MemoryShares, ConnectionWithoutASessionHas16MiB) {
  {
    const FileDescriptor socket = ConnectUnreading(30);
    ASSERT_TRUE(http2::AwaitAnswers(socket, 30));
    std::cout << "one connection: " << MiBTaken() << " MiB\n";
    EXPECT_LE(MiBTaken(), 16);
    EXPECT_GE(MiBTaken(), 8) << "the replies are not held: this test shows nothing";
  }
  ExpectGivenBack();
}

TEST_F(MemoryShares, AThousandConnectionsWithoutASessionHave64MiB) {
  {
    std::vector<FileDescriptor> sockets;
    double most = 0;
    for (int i = 0; i < 1000; ++i) {
      sockets.push_back(ConnectUnreading(2));
      ASSERT_TRUE(http2::AwaitAnswers(sockets.back(), 2));
      most = std::max(most, MiBTaken());
    }
    std::cout << "1,000 connections: " << most << " MiB\n";
    EXPECT_LE(most, 64);
    EXPECT_GE(most, 32) << "the replies are not held: this test shows nothing";
  }
  ExpectGivenBack();
}

// Parts of messages are held, too: a connection that holds more than its share of such is
// ended.
TEST_F(MemoryShares, StrangersRequestsThatNeverEndHave16MiB) {
  for (const int streams : {1, 20, 200}) {
    double most = 0;
    std::size_t sent = 0;
    ASSERT_NO_FATAL_FAILURE(SetUp());  // malloc may keep what the last round had.
    {
      http2::Sender sender(address_);
      most = MostTakenDuring([&] { sent = SendParts(sender, streams, 60 << 20, {}, {}); });
      EXPECT_TRUE(sender.is_closed());
    }
    std::cout << streams << " streams, " << static_cast<double>(sent) / kMiB
              << " MiB sent: " << most << " MiB\n";
    EXPECT_LE(most, 16 + kReadAhead);
    EXPECT_GE(Ended(), 1);
    ExpectGivenBack();
  }
}

// Few bytes of a message hold the buffer that they came in.
TEST_F(MemoryShares, StrangersRequestsInSmallPiecesHave16MiB) {
  for (const std::size_t garbage : {std::size_t{0}, std::size_t{2000}, std::size_t{64} << 10}) {
    double most = 0;
    ASSERT_NO_FATAL_FAILURE(SetUp());  // malloc may keep what the last round had.
    std::size_t sent = 0;
    {
      http2::Sender sender(address_);
      most = MostTakenDuring([&] {
        sent = SendParts(sender, 1, (64 << 20) / (64 + garbage),
                         {.frame_bytes = 1, .garbage = garbage}, {});
      });
    }
    std::cout << sent << " bytes, " << garbage << " between: " << most << " MiB\n";
    EXPECT_LE(most, 16 + kReadAhead);
    ExpectGivenBack();
  }
}

TEST_F(MemoryShares, AThousandConnectionsWithRequestsThatNeverEndHave64MiB) {
  for (const std::size_t bytes : {48 << 10, 256 << 10, 2 << 20}) {
    ASSERT_NO_FATAL_FAILURE(SetUp());  // malloc may keep what the last round had.
    ExpectAThousandConnectionsHave64MiB(bytes, {});
  }
}

// The coordinator's two listeners share a process: the strangers of each have 64 MiB.
TEST_F(MemoryShares, StrangersOfTheCoordinatorHaveNoMoreThanThoseOfANode) {
  const Endless messages[] = {
      {.path = "/embla.v1.CoordinatorService/NodeLink", .stated_bytes = 61 << 20},
      {.path = "/embla.v1.AdminService/PutSolvedPlan", .stated_bytes = 4 << 20}};
  for (const bool is_admin : {false, true}) {
    const Endless& message = messages[is_admin ? 1 : 0];
    SCOPED_TRACE(message.path);
    ASSERT_NO_FATAL_FAILURE(WatchCoordinator(is_admin));
    double most = 0;
    {
      http2::Sender sender(address_);
      most = MostTakenDuring([&] { SendParts(sender, 20, message.stated_bytes - 1, {}, message); });
      EXPECT_TRUE(sender.is_closed());
    }
    std::cout << message.path << ": " << most << " MiB\n";
    EXPECT_LE(most, 16 + kReadAhead);
    EXPECT_GE(Ended(), 1);
    ExpectGivenBack();
    ASSERT_NO_FATAL_FAILURE(WatchCoordinator(is_admin));
    ExpectAThousandConnectionsHave64MiB(256 << 10, message);
  }
}

// The longest message, and as much again.
TEST_F(MemoryShares, SessionsRequestsThatNeverEndHave512MiB) {
  double most = 0;
  std::size_t sent = 0;
  {
    const v1::OpenSessionReply grant = OpenSession();
    http2::Sender sender(address_);
    v1::StreamRequest shown;
    shown.set_sequence(1);
    shown.mutable_lookup()->set_session(grant.session());
    shown.mutable_lookup()->set_session_proof(grant.proof());
    sender.Open(1, "/embla.v1.DataService/Stream");
    sender.SendMessage(1, shown.SerializeAsString());
    ASSERT_TRUE(AwaitFor([&] { return sender.Answers(1); }, testing::kAwaitMax, "it is answered"));
    most = MostTakenDuring([&] { sent = SendParts(sender, 20, 60 << 20, {}, {}); });
    EXPECT_TRUE(sender.is_closed());
  }
  std::cout << static_cast<double>(sent) / kMiB << " MiB sent: " << most << " MiB\n";
  EXPECT_GE(most, 256);
  // A session's connection reads in larger pieces than a stranger's.
  EXPECT_LE(most, 512 + 2 * kReadAhead);
  ExpectGivenBack();
}

// The first message of a connection is longer than what a stranger may send.
TEST_F(MemoryShares, SessionsFirstRequestMayBeLong) {
  constexpr std::size_t kIds = 8192;
  const std::vector<std::int64_t> ids(kIds, 3);
  const std::vector<float> gradients(kIds * kDim, 1e-6f);
  const FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
  for (const client::Transport transport :
       {client::Transport::kStream, client::Transport::kUnary}) {
    const auto session = cluster_->Connect({.transport = transport});
    ASSERT_THAT(session, IsOk());
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT((*session)->Update({&feature, 1},
                                     {.timeout = testing::kAwaitMax, .combine_duplicates = false}),
                  IsOk());
    }
  }
}

// A session may have four times its request in flight, and its reply.
TEST_F(MemoryShares, SessionHasWhatItHasInFlight) {
  constexpr std::size_t kIds = 8192;  // Beside 32 MiB of rows all else is less than 1 MiB.
  constexpr double kRowsMiB = kIds * kDim * sizeof(float) / kMiB;
  constexpr double kIdsMiB = kIds * 8 / kMiB;
  constexpr double kPageMiB = 2;  // Buffers that are smaller share one.
  {
    const auto session = cluster_->Connect();
    ASSERT_THAT(session, IsOk());
    const double lookups = MostTakenDuring([&] {
      for (int i = 0; i < 8; ++i) EXPECT_THAT(TryLookup(**session, kIds), IsOk());
    });
    std::cout << "lookups: " << lookups << " MiB\n";
    EXPECT_LE(lookups, 4 * kIdsMiB + kRowsMiB + kPageMiB + 1);

    const std::vector<std::int64_t> ids(kIds, 3);
    const std::vector<float> gradients(kIds * kDim, 1e-6f);
    const FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
    // The least of a few rounds, each after the memory of the one before has been given back: what
    // is freed goes back to the system when the allocator sees fit, and counts until then. Requests
    // that were kept would count in every round, and would not be given back.
    constexpr double kAllowedMiB = 4 * (kIdsMiB + kRowsMiB);
    double updates = std::numeric_limits<double>::max();
    for (int round = 0; round < 6 && updates > kAllowedMiB; ++round) {
      ExpectGivenBack();
      updates = MostTakenDuring([&] {
        for (int i = 0; i < 8; ++i) {
          EXPECT_THAT((*session)->Update({&feature, 1}, {.timeout = testing::kAwaitMax,
                                                         .combine_duplicates = false}),
                      IsOk());
        }
      });
      std::cout << "updates: " << updates << " MiB\n";
    }
    EXPECT_LE(updates, kAllowedMiB);
  }
  ExpectGivenBack();
}

}  // namespace
}  // namespace embla::memory_shares_test
