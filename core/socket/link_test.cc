// Links over real sockets: the same bytes arrive, in the clear and inside TLS, and who is not
// believed hears nothing.
#include "core/socket/link.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/tls/testing/test_authority.h"

namespace embla::link_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TestAuthority;
using ::testing::HasSubstr;

std::array<FileDescriptor, 2> ConnectedPair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

TlsPtr LoadTls(const TlsFiles& files) {
  const absl::StatusOr<TlsPtr> tls = Tls::Load(files);
  EXPECT_THAT(tls, IsOk());
  return *tls;
}

TlsContext OfServer(const TlsFiles& files) { return ServerContext(LoadTls(files)).value(); }
TlsContext OfClient(const TlsFiles& files) { return ClientContext(LoadTls(files)).value(); }

// Until both are ready, or one is over.
std::pair<absl::Status, absl::Status> PrepareBoth(Link& client, Link& server) {
  for (int turn = 0; turn < 100; ++turn) {
    const absl::StatusOr<std::uint32_t> of_client = client.Prepare();
    const absl::StatusOr<std::uint32_t> of_server = server.Prepare();
    const bool is_over = !of_client.ok() || !of_server.ok();
    if (is_over || (*of_client == 0 && *of_server == 0)) {
      return {of_client.status(), of_server.status()};
    }
  }
  ADD_FAILURE() << "they never are";
  return {};
}

class LinkTest : public ::testing::TestWithParam<bool> {
 protected:
  LinkTest() {
    auto [of_client, of_server] = ConnectedPair();
    const bool has_tls = GetParam();
    client_ = Link::ToServer(std::move(of_client),
                             has_tls ? OfClient(authority_.Issue(Role::kTrainer, "t1")) : nullptr,
                             {.role = Role::kNode, .name = "n1"});
    server_ = Link::FromClient(std::move(of_server),
                               has_tls ? OfServer(authority_.Issue(Role::kNode, "n1")) : nullptr);
  }

  const TestAuthority authority_;
  std::unique_ptr<Link> client_;
  std::unique_ptr<Link> server_;
};

INSTANTIATE_TEST_SUITE_P(PlainAndTls, LinkTest, ::testing::Bool());

TEST_P(LinkTest, BytesArriveAsTheyWereSentHoweverTheyAreCut) {
  const auto [of_client, of_server] = PrepareBoth(*client_, *server_);
  ASSERT_THAT(of_client, IsOk());
  ASSERT_THAT(of_server, IsOk());
  std::mt19937_64 random(testing::TestSeed());
  std::string sent(3 << 20, '\0');
  for (char& byte : sent) byte = static_cast<char>(random());
  std::string received(sent.size(), '\0');
  std::size_t sent_bytes = 0;
  std::size_t received_bytes = 0;
  // Bytes that have been offered once are offered again, as Send wants it.
  std::size_t offered = 0;
  while (received_bytes < sent.size()) {
    if (sent_bytes < sent.size()) {
      const std::size_t begun = std::max(offered, sent_bytes);
      offered = std::min(sent.size(), begun + random() % 90'000);
      std::vector<iovec> pieces;
      for (std::size_t at = sent_bytes; at < offered;) {
        const std::size_t size =
            std::min<std::size_t>(offered - at, 1 + random() % (random() % 2 == 0 ? 100 : 50'000));
        pieces.push_back({.iov_base = sent.data() + at, .iov_len = size});
        at += size;
        if (pieces.size() == 60) offered = std::max(at, begun);
      }
      const ssize_t count = pieces.empty() ? 0 : client_->Send(pieces);
      if (count < 0) {
        ASSERT_EQ(errno, EAGAIN);
      }
      sent_bytes += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    }
    const std::size_t left = sent.size() - received_bytes;
    const std::size_t first = std::min<std::size_t>(left, 1 + random() % 60'000);
    std::string rest(std::min<std::size_t>(left - first, random() % 60'000), '\0');
    const std::array<iovec, 2> places = {
        iovec{.iov_base = received.data() + received_bytes, .iov_len = first},
        iovec{.iov_base = rest.data(), .iov_len = rest.size()}};
    const ssize_t count = server_->Receive(std::span(places).first(rest.empty() ? 1 : 2));
    if (count < 0) {
      ASSERT_EQ(errno, EAGAIN);
      continue;
    }
    ASSERT_GT(count, 0);
    const auto size = static_cast<std::size_t>(count);
    if (size > first) rest.copy(received.data() + received_bytes + first, size - first);
    received_bytes += size;
  }
  EXPECT_TRUE(received == sent);
  client_->Shutdown();
  char byte = 0;
  const iovec place = {.iov_base = &byte, .iov_len = 1};
  EXPECT_EQ(server_->Receive({&place, 1}), 0);
  EXPECT_EQ(server_->Send({&place, 1}), -1);  // No signal: the program lives.
}

TEST_P(LinkTest, TheOtherEndIsWhoItsCertificateNames) {
  const auto [of_client, of_server] = PrepareBoth(*client_, *server_);
  ASSERT_THAT(of_client, IsOk());
  ASSERT_THAT(of_server, IsOk());
  ASSERT_EQ(server_->peer().has_value(), GetParam());
  if (GetParam()) {
    EXPECT_EQ(server_->peer()->name, "t1");
  }
}

// The client's status, of node n1's trainer, at a server with the certificate of `server`.
absl::Status ConnectedTo(const TestAuthority& authority, const TlsFiles& server) {
  auto [of_client, of_server] = ConnectedPair();
  const auto client =
      Link::ToServer(std::move(of_client), OfClient(authority.Issue(Role::kTrainer, "t1")),
                     {.role = Role::kNode, .name = "n1"});
  const auto other = Link::FromClient(std::move(of_server), OfServer(server));
  return PrepareBoth(*client, *other).first;
}

TEST(LinkToServer, IsOverWhereTheServerIsAnother) {
  const TestAuthority authority;
  EXPECT_THAT(ConnectedTo(authority, authority.Issue(Role::kNode, "n1")), IsOk());
  EXPECT_THAT(ConnectedTo(authority, authority.Issue(Role::kNode, "n2")),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not of node n1")));
  EXPECT_THAT(ConnectedTo(authority, authority.Issue(Role::kTrainer, "n1")),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("shake hands")));
  EXPECT_THAT(ConnectedTo(authority, TestAuthority().Issue(Role::kNode, "n1")),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("shake hands")));
}

TEST(LinkFromClient, IsOverForWhoCannotShakeHands) {
  const TestAuthority authority;
  auto [of_client, of_server] = ConnectedPair();
  const auto server =
      Link::FromClient(std::move(of_server), OfServer(authority.Issue(Role::kNode, "n1")));
  Link client(std::move(of_client));
  std::string garbage(kHello);
  garbage += "this is no handshake, and never will be one";
  const iovec piece = {.iov_base = garbage.data(), .iov_len = garbage.size()};
  ASSERT_EQ(client.Send({&piece, 1}), static_cast<ssize_t>(garbage.size()));
  EXPECT_THAT(server->Prepare().status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("shake hands")));
}

TEST(LinkFromClient, IsOverForWhoDoesNotGreet) {
  auto [of_client, of_server] = ConnectedPair();
  const auto server = Link::FromClient(std::move(of_server), nullptr);
  EXPECT_EQ(server->Prepare().value(), std::uint32_t{EPOLLIN});
  ASSERT_EQ(::send(of_client.number(), "EMB", 3, 0), 3);
  EXPECT_EQ(server->Prepare().value(), std::uint32_t{EPOLLIN});
  ASSERT_EQ(::send(of_client.number(), "RYO/1\n", 6, 0), 6);
  EXPECT_THAT(server->Prepare().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not greet")));
}

}  // namespace
}  // namespace embla::link_test
