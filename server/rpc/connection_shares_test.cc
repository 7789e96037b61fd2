// A soak of what counts the parts of messages at the socket: millions of tiny messages over TCP and
// unix sockets, in frames, reads and writes that are cut at random places, with streams that are
// reset by either side and connections that are closed in the middle. Afterwards nothing is held.
#include "server/rpc/connection_shares.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/file_descriptor.h"
#include "core/base/testing/seeds.h"
#include "gtest/gtest.h"
#include "server/rpc/http2_fixture.h"

namespace embla {
namespace {

constexpr int kConnections = 4;
constexpr int kMessages = 500'000;                      // Messages on each connection.
constexpr std::size_t kHeldMax = std::size_t{1} << 30;  // By far more than any test sends.

struct Sockets {
  FileDescriptor client;
  FileDescriptor server;
};

Sockets UnixSockets() {
  int numbers[2];
  EMBLA_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, numbers) == 0);
  return {FileDescriptor(numbers[0]), FileDescriptor(numbers[1])};
}

Sockets TcpSockets() {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(name);
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  EMBLA_CHECK(::bind(listener.number(), address, bytes) == 0);
  EMBLA_CHECK(::listen(listener.number(), 1) == 0);
  EMBLA_CHECK(::getsockname(listener.number(), address, &bytes) == 0);
  FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EMBLA_CHECK(::connect(client.number(), address, bytes) == 0);
  FileDescriptor server(::accept(listener.number(), nullptr, nullptr));
  const int at_once = 1;
  for (const int number : {client.number(), server.number()}) {
    EMBLA_CHECK(::setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once)) == 0);
  }
  return {std::move(client), std::move(server)};
}

// One connection, both ends of it on one thread.
class Soak {
 public:
  Soak(Sockets sockets, ConnectionShares& shares, std::uint32_t seed)
      : sockets_(std::move(sockets)), random_(seed) {
    shares.Open(sockets_.server.number());
    out_ = http2::Hello();
  }

  void Run() {
    for (int i = 0; i < kMessages; ++i) {
      Message();
      if (out_.size() > 4096) Pass();
    }
  }
  // Every stream that is open ends, in one way or another.
  void End() {
    while (!open_.empty()) EndStream(open_.size() - 1);
    Pass();
  }
  // Leaves messages that are not complete.
  void Leave() {
    for (int i = 0; i < 10; ++i) Data(OpenStream(), Prefix(100) + "part");
    Pass();
  }
  void Close() { sockets_.server.Close(); }

 private:
  std::size_t Random(std::size_t below) { return random_() % below; }
  static std::string Prefix(std::size_t bytes) {
    return std::string(1, '\0') + http2::BigEndian(static_cast<std::uint32_t>(bytes), 4);
  }
  std::uint32_t OpenStream() {
    last_stream_ += 2;
    out_ += http2::Headers(last_stream_, "/x");
    open_.push_back(last_stream_);
    return last_stream_;
  }
  void Data(std::uint32_t stream, const std::string& bytes) {
    out_ += http2::Frame(http2::kData, 0, stream, bytes);
  }

  // On a stream of its own or another one's, in up to four frames.
  void Message() {
    if (open_.empty() || (open_.size() < 20 && Random(8) == 0)) OpenStream();
    const std::size_t at = Random(open_.size());
    const std::string content(Random(40), 'm');
    std::string message = Prefix(content.size()) + content;
    for (std::size_t frames = Random(3); frames > 0 && !message.empty(); --frames) {
      const std::size_t cut = Random(message.size() + 1);
      Data(open_[at], message.substr(0, cut));
      message.erase(0, cut);
    }
    const bool is_cut_off = Random(64) == 0;
    if (!is_cut_off) Data(open_[at], message);
    // Its next bytes would be taken for the rest of the message.
    if (is_cut_off || Random(32) == 0) EndStream(at);
  }

  void EndStream(std::size_t at) {
    const std::uint32_t stream = std::exchange(open_[at], open_.back());
    open_.pop_back();
    switch (Random(3)) {
      case 0:
        out_ += http2::Frame(http2::kData, 1, stream, "");
        return;
      case 1:
        out_ += http2::Reset(stream);
        return;
      default:
        // The server, which has read what was sent.
        Pass();
        Answer(http2::Reset(stream));
    }
  }

  // The client's words arrive, in pieces.
  void Pass() {
    while (!out_.empty()) {
      const std::size_t piece = std::min(out_.size(), 1 + Random(16384));
      const ssize_t sent = ::send(sockets_.client.number(), out_.data(), piece, MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      out_.erase(0, static_cast<std::size_t>(sent));
      for (std::size_t left = static_cast<std::size_t>(sent); left > 0;) {
        std::array<char, 4096> first;
        std::array<char, 4096> second;
        const std::size_t most = std::min(left, 1 + Random(first.size() + second.size()));
        iovec buffers[] = {{first.data(), std::min(most, 1 + Random(first.size()))},
                           {second.data(), 0}};
        buffers[1].iov_len = std::min(most - buffers[0].iov_len, second.size());
        msghdr message{};
        message.msg_iov = buffers;
        message.msg_iovlen = 2;
        const ssize_t count = ::recvmsg(sockets_.server.number(), &message, 0);
        ASSERT_GT(count, 0);
        left -= static_cast<std::size_t>(count);
      }
    }
  }

  void Answer(std::string bytes) {
    const std::size_t cut = Random(bytes.size() + 1);
    iovec buffers[] = {{bytes.data(), cut}, {bytes.data() + cut, bytes.size() - cut}};
    msghdr message{};
    message.msg_iov = buffers;
    message.msg_iovlen = 2;
    ASSERT_EQ(::sendmsg(sockets_.server.number(), &message, 0), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(::recv(sockets_.client.number(), bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
  }

  Sockets sockets_;
  std::mt19937 random_;
  std::string out_;
  std::uint32_t last_stream_ = 0xffffffff;  // The next one is 1.
  std::vector<std::uint32_t> open_;
};

class ConnectionSharesSoak : public ::testing::TestWithParam<Sockets (*)()> {};

TEST_P(ConnectionSharesSoak, NothingIsHeldAfterMillionsOfTinyMessages) {
  const std::uint32_t seed = testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
  ConnectionShares shares({kHeldMax, kHeldMax, kHeldMax}, nullptr);
  std::vector<std::unique_ptr<Soak>> soaks;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kConnections; ++i) {
    soaks.push_back(std::make_unique<Soak>(GetParam()(), shares, seed + i));
    threads.emplace_back([&soak = *soaks.back()] {
      soak.Run();
      soak.End();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shares.strangers_bytes(), 0u);
  for (const auto& soak : soaks) soak->Leave();
  EXPECT_GT(shares.strangers_bytes(), 0u);
  EXPECT_LT(shares.strangers_bytes(), kHeldMax);
  for (const auto& soak : soaks) soak->Close();
  EXPECT_EQ(shares.strangers_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Of, ConnectionSharesSoak, ::testing::Values(TcpSockets, UnixSockets),
                         [](const auto& info) { return info.index == 0 ? "Tcp" : "Unix"; });

}  // namespace
}  // namespace embla
