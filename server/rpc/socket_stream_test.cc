// Data sockets, as a client in any language would use them: docs/data_sockets.md.
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/testing/status_matchers.h"
#include "core/socket/link.h"
#include "core/tls/testing/test_authority.h"
#include "core/wire/seal.h"
#include "server/rpc/data_fixture.h"
#include "server/rpc/data_socket_fixture.h"
#include "server/rpc/http2_fixture.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using data_socket::Append;
using data_socket::Array;
using data_socket::Frame;
using data_socket::kGradients;
using data_socket::kIds;
using data_socket::kUpdateIds;
using data_socket::Peer;
using data_socket::ToBytes;

class SocketStreamTest : public DataFixture {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>;

  // A lookup that shows a session, and asks for a data socket.
  v1::StreamRequest Asking(std::uint64_t sequence = 1) const {
    v1::StreamRequest request;
    request.set_sequence(sequence);
    request.set_asks_data_socket(true);
    *request.mutable_lookup() = LookupOf({3});
    const SessionProof proof = ProveSession(*cluster_key_, kSession);
    request.mutable_lookup()->set_session(ToInt(kSession));
    request.mutable_lookup()->set_session_proof(proof.data(), proof.size());
    return request;
  }

  v1::DataSocket Ask() {
    stream_.reset();
    context_ = std::make_unique<grpc::ClientContext>();
    stream_ = stub_->Stream(context_.get());
    v1::StreamReply reply;
    EXPECT_TRUE(stream_->Write(Asking()));
    EXPECT_TRUE(stream_->Read(&reply));
    const v1::DataSocket offer = reply.data_socket();
    EXPECT_EQ(reply.sequence(), 0u);
    EXPECT_EQ(offer.ticket().size(), 32u);
    EXPECT_TRUE(stream_->Read(&reply));
    EXPECT_EQ(reply.sequence(), 1u);
    return offer;
  }

  // A connection whose ticket was taken.
  std::unique_ptr<Peer> Connect() {
    const v1::DataSocket offer = Ask();
    auto peer = std::make_unique<Peer>(offer.address());
    peer->Send(ToBytes(offer.ticket(), {}));
    const std::optional<Frame> welcome = peer->Receive();
    EXPECT_TRUE(welcome.has_value());
    if (welcome.has_value()) {
      EXPECT_EQ(welcome->text, "");
      EXPECT_TRUE(welcome->arrays.empty());
    }
    return peer;
  }

  // Both of session kSession.
  std::string LookupFrame(std::uint64_t sequence, const std::vector<std::int64_t>& ids,
                          std::uint32_t columns = 2) const {
    v1::StreamRequest request = Asking(sequence);
    request.mutable_lookup()->mutable_parts(0)->set_ids_count(
        static_cast<std::uint32_t>(ids.size()));
    request.mutable_lookup()->mutable_parts(0)->set_column_end(columns);
    request.mutable_lookup()->clear_ids();
    return ToBytes(
        request.SerializeAsString(),
        {{kIds, std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8)}});
  }
  std::string UpdateFrame(std::uint64_t sequence, std::uint64_t seq, std::size_t rows,
                          std::size_t gradient_bytes) const {
    return UpdateFrame(sequence, seq, rows, {{kGradients, std::string(gradient_bytes, '\0')}});
  }
  std::string UpdateFrame(std::uint64_t sequence, std::uint64_t seq, std::size_t rows,
                          std::vector<Array> arrays) const {
    v1::StreamRequest request;
    request.set_sequence(sequence);
    *request.mutable_update() = UpdateOf(seq, rows);
    request.mutable_update()->clear_ids();
    request.mutable_update()->clear_gradients();
    arrays.insert(arrays.begin(), {kUpdateIds, std::string(rows * 8, '\0')});
    return ToBytes(request.SerializeAsString(), arrays);
  }

  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();
  std::unique_ptr<Stream> stream_;
};

TEST_F(SocketStreamTest, RequestsOfAStreamGoOnByIt) {
  Start();
  const std::unique_ptr<Peer> peer = Connect();
  std::vector<std::int64_t> ids(3000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 7);
  peer->Send(LookupFrame(10, ids, 64) + UpdateFrame(11, 1, 20'000, 160'000));
  const auto [looked_up, rows] = peer->Reply();
  EXPECT_EQ(looked_up.sequence(), 10u);
  EXPECT_EQ(looked_up.code(), 0);
  EXPECT_EQ(looked_up.lookup().plan_version(), 3u);
  EXPECT_TRUE(looked_up.lookup().rows().empty());
  EXPECT_TRUE(rows == RowsOf(ids, 64));
  const auto [updated, none] = peer->Reply();
  EXPECT_EQ(updated.sequence(), 11u);
  EXPECT_EQ(updated.code(), 0) << updated.message();
  EXPECT_TRUE(updated.has_update());
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(node_.Await([](const FakeShardNode& node) { return node.updated_rows() == 20'000; }));
  // The stream is as good as before.
  v1::StreamReply reply;
  v1::StreamRequest silent = Asking(12);
  silent.clear_asks_data_socket();
  ASSERT_TRUE(stream_->Write(silent));
  ASSERT_TRUE(stream_->Read(&reply));
  EXPECT_EQ(reply.sequence(), 12u);
  EXPECT_EQ(reply.lookup().rows(), RowsOf({3}));
}

// From another host, as it were: the port of gRPC takes it, too.
TEST_F(SocketStreamTest, ThePortTakesTheTicketAfterAGreeting) {
  Start();
  const v1::DataSocket offer = Ask();
  ASSERT_TRUE(offer.by_port());
  Peer peer(http2::Connect(server_->address()));
  peer.Send("EMBLA/1\n" + ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(peer.Receive().has_value());
  peer.Send(LookupFrame(10, {5, 6, 7}));
  EXPECT_EQ(peer.Reply().second, RowsOf({5, 6, 7}));
  for (const std::string& greeting :
       {"EMBLA/2\n" + ToBytes(Ask().ticket(), {}), "E" + ToBytes(Ask().ticket(), {}),
        "EMBLA/1\n" + ToBytes(std::string(32, '0'), {}), ToBytes(Ask().ticket(), {}),
        std::string("EMBLA/1\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n0123456789012345678901234567890")}) {
    Peer stranger(http2::Connect(server_->address()));
    stranger.Send(greeting);
    EXPECT_TRUE(stranger.IsOver()) << greeting;
  }
  // It speaks HTTP/2 all the while, and closes nobody who is slow to say what he speaks.
  Peer slow(http2::Connect(server_->address()));
  v1::LookupReply reply;
  EXPECT_THAT(Lookup(LookupOf({1, 2}), reply), IsOk());
  const std::string ticket = Ask().ticket();
  slow.Send("EMBL");
  slow.Send("A/1\n");
  for (const char byte : ToBytes(ticket, {})) slow.Send(std::string(1, byte));
  EXPECT_TRUE(slow.Receive().has_value());
}

// A blocking connection over TLS to the port, whose ticket is shown. False: it is not served.
bool IsServedOverTls(const std::string& address, const TlsPtr& tls, const std::string& ticket) {
  FileDescriptor socket = http2::Connect(address);
  ::fcntl(socket.number(), F_SETFL, O_NONBLOCK);
  const auto link = Link::ToServer(std::move(socket), ClientContext(tls).value(), {});
  const auto await = [&](short events) {
    pollfd polled{.fd = link->number(), .events = events, .revents = 0};
    ::poll(&polled, 1, 10'000);
  };
  while (true) {
    const absl::StatusOr<std::uint32_t> waits = link->Prepare();
    if (!waits.ok()) return false;
    if (*waits == 0) break;
    await(static_cast<short>(*waits));
  }
  std::string frame = ToBytes(ticket, {});
  const iovec piece = {.iov_base = frame.data(), .iov_len = frame.size()};
  EXPECT_EQ(link->Send({&piece, 1}), static_cast<ssize_t>(frame.size()));
  char welcome[8];
  const iovec place = {.iov_base = welcome, .iov_len = sizeof(welcome)};
  ssize_t count = link->Receive({&place, 1});
  for (; count < 0 && errno == EAGAIN; count = link->Receive({&place, 1})) await(POLLIN);
  return count == sizeof(welcome);
}

TEST_F(SocketStreamTest, OverTlsATicketIsGoodForItsTrainerAlone) {
  const testing::TestAuthority authority;
  tls_ = authority.Load(Role::kTrainer, "t1");
  DataServiceOptions options;
  options.tls = authority.Load(Role::kNode, "n1");
  Start(options);
  EXPECT_TRUE(IsServedOverTls(server_->address(), tls_, Ask().ticket()));
  const std::string stolen = Ask().ticket();
  EXPECT_FALSE(IsServedOverTls(server_->address(), authority.Load(Role::kTrainer, "t2"), stolen));
  // Nor in the clear.
  Peer peer(http2::Connect(server_->address()));
  peer.Send("EMBLA/1\n" + ToBytes(Ask().ticket(), {}));
  EXPECT_TRUE(peer.IsOver());
}

TEST_F(SocketStreamTest, OverTlsATicketOfANodeIsGoodForThatNodeAlone) {
  const testing::TestAuthority authority;
  tls_ = authority.Load(Role::kNode, "n2");
  DataServiceOptions options;
  options.tls = authority.Load(Role::kNode, "n1");
  Start(options);
  const auto greet = [this] { return GreetAs("n2").welcome.data_socket().ticket(); };
  EXPECT_TRUE(IsServedOverTls(server_->address(), tls_, greet()));
  const TlsPtr other = authority.Load(Role::kNode, "n3");
  EXPECT_FALSE(IsServedOverTls(server_->address(), other, greet()));
}

TEST_F(SocketStreamTest, WhoIsRefusedOverTlsIsCounted) {
  const testing::TestAuthority authority;
  const testing::TestAuthority foreign;
  tls_ = authority.Load(Role::kTrainer, "t1");
  DataServiceOptions options;
  options.tls = authority.Load(Role::kNode, "n1");
  Start(options);
  const TlsFiles shown = authority.Issue(Role::kTrainer, "t2");
  const absl::StatusOr<TlsPtr> stranger = Tls::Load(shown);
  ASSERT_THAT(stranger, IsOk());
  std::filesystem::copy_file(foreign.Issue(Role::kTrainer, "t2").certificate, shown.certificate,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(IsServedOverTls(server_->address(), *stranger, Ask().ticket()));
  const auto refused = [&] {
    return metrics_.MakeCounter(MetricNamed("embla_tls_refused_total"), {"foreign"}).value();
  };
  EXPECT_EQ(refused(), 1);
}

TEST_F(SocketStreamTest, OfferedToSessionsThatAsk) {
  Start();
  const std::unique_ptr<Stream> stream = stub_->Stream(context_.get());
  v1::StreamReply reply;
  v1::StreamRequest stranger;
  stranger.set_sequence(1);
  stranger.set_asks_data_socket(true);
  *stranger.mutable_lookup() = LookupOf({3});
  ASSERT_TRUE(stream->Write(stranger));
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_TRUE(reply.has_lookup());
  v1::StreamRequest silent = Asking(2);
  silent.clear_asks_data_socket();
  ASSERT_TRUE(stream->Write(silent));
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_TRUE(reply.has_lookup());
  ASSERT_TRUE(stream->Write(Asking(3)));
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_TRUE(reply.has_data_socket());
}

TEST_F(SocketStreamTest, AStreamHasOneTicketAndOneSocket) {
  Start();
  const v1::DataSocket first = Ask();
  v1::StreamReply reply;
  ASSERT_TRUE(stream_->Write(Asking(2)));
  ASSERT_TRUE(stream_->Read(&reply));
  const v1::DataSocket second = reply.data_socket();
  ASSERT_TRUE(stream_->Read(&reply));
  Peer late(first.address());
  late.Send(ToBytes(first.ticket(), {}));
  EXPECT_TRUE(late.IsOver());
  Peer peer(second.address());
  peer.Send(ToBytes(second.ticket(), {}));
  EXPECT_TRUE(peer.Receive().has_value());
  // A stream that asks again has lost its socket.
  ASSERT_TRUE(stream_->Write(Asking(3)));
  ASSERT_TRUE(stream_->Read(&reply));
  EXPECT_TRUE(reply.has_data_socket());
  EXPECT_TRUE(peer.IsOver());
}

TEST_F(SocketStreamTest, NoneIsOfferedWhereTheNodeHasNone) {
  Start({.data_sockets = false});
  const std::unique_ptr<Stream> stream = stub_->Stream(context_.get());
  v1::StreamReply reply;
  ASSERT_TRUE(stream->Write(Asking()));
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_TRUE(reply.has_lookup());
}

TEST_F(SocketStreamTest, WithoutItsTicketNobodyIsServed) {
  Start();
  const v1::DataSocket offer = Ask();
  std::string wrong = offer.ticket();
  wrong[31] = wrong[31] == '0' ? '1' : '0';
  for (const std::string& shown :
       {ToBytes(wrong, {}), ToBytes(offer.ticket().substr(1), {}), std::string(100, '\0'),
        ToBytes(offer.ticket() + "0", {}), ToBytes(offer.ticket(), {{1, "x"}})}) {
    Peer peer(offer.address());
    peer.Send(shown + LookupFrame(1, {1}));
    EXPECT_TRUE(peer.IsOver());
  }
  // One that goes on with a stranger's request.
  Peer first(offer.address());
  first.Send(ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(first.Receive().has_value());
  Peer second(offer.address());
  second.Send(ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(second.IsOver());
  first.Send(LookupFrame(5, {1, 2}));
  EXPECT_EQ(first.Reply().second, RowsOf({1, 2}));
}

// Linux gives each thread a user of its own; glibc's setresuid changes that of all of them.
TEST_F(SocketStreamTest, AnotherUserOfTheMachineIsNotServed) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can act as another user";
  constexpr uid_t kNobody = 65534;
  Start();
  const v1::DataSocket offer = Ask();
  std::thread([&] {
    ASSERT_EQ(::syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
    Peer peer(offer.address());
    peer.Send(ToBytes(offer.ticket(), {}));
    EXPECT_TRUE(peer.IsOver());
  }).join();
  // The ticket is good still, for the node's own user.
  Peer peer(offer.address());
  peer.Send(ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(peer.Receive().has_value());
}

// They have no thread and no memory, and the oldest goes.
TEST_F(SocketStreamTest, ConnectionsThatShowNothingMakeRoom) {
  Start();
  const v1::DataSocket offer = Ask();
  std::deque<Peer> silent;
  for (int i = 0; i < 256; ++i) silent.emplace_back(offer.address());
  Peer peer(offer.address());
  EXPECT_TRUE(silent.front().IsOver());
  peer.Send(ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(peer.Receive().has_value());
}

TEST_F(SocketStreamTest, AnAnswerUnderTheSequenceIfArraysDoNotFit) {
  Start();
  const std::unique_ptr<Peer> peer = Connect();
  peer->Send(UpdateFrame(1, 1, 10, 79));
  const auto [short_of, none] = peer->Reply();
  EXPECT_EQ(short_of.sequence(), 1u);
  EXPECT_EQ(short_of.code(), static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_THAT(short_of.message(), HasSubstr("gradients"));
  // An array that is none of a lookup is dropped.
  v1::StreamRequest request = Asking(2);
  request.mutable_lookup()->clear_ids();
  peer->Send(ToBytes(request.SerializeAsString(), {{kGradients, std::string(50'000, 'x')}}));
  EXPECT_THAT(peer->Reply().first.message(), HasSubstr("`ids`"));
  // So is one that was in the text.
  peer->Send(ToBytes(Asking(3).SerializeAsString(), {}));
  EXPECT_THAT(peer->Reply().first.message(), HasSubstr("`ids`"));
  v1::StreamRequest unknown;
  unknown.set_sequence(4);
  peer->Send(ToBytes(unknown.SerializeAsString(), {{1, std::string(100'000, 'x')}}));
  EXPECT_EQ(peer->Reply().first.code(), static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  peer->Send(LookupFrame(5, {1, 2}));
  EXPECT_EQ(peer->Reply().second, RowsOf({1, 2}));
  EXPECT_EQ(node_.taken(), 2u);  // The one that asked, and the last one.
}

TEST_F(SocketStreamTest, GradientsAreLookedAtAsTheyCome) {
  Start();
  const std::unique_ptr<Peer> peer = Connect();
  const Array finite{kGradients, std::string(160'000, '\0')};
  Array bad = finite;
  bad.bytes.replace(159'996, 4, "\xff\xff\xff\xff");
  const auto finite_updates = [&](std::uint64_t seq, const std::vector<Array>& arrays) {
    peer->Send(UpdateFrame(seq, seq, 20'000, arrays));
    EXPECT_EQ(peer->Reply().first.code(), static_cast<int>(grpc::StatusCode::OK));
    return node_.finite_updates();
  };
  EXPECT_EQ(finite_updates(1, {finite}), 1u);
  EXPECT_EQ(finite_updates(2, {bad}), 1u);  // Its table's policy decides.
  // A field that occurs again takes the place of the earlier one.
  EXPECT_EQ(finite_updates(3, {finite, bad}), 1u);
  EXPECT_EQ(finite_updates(4, {bad, finite}), 2u);
}

// Its sender may have changed the memory that it was read from.
TEST_F(SocketStreamTest, AnUpdateWhoseSealIsBrokenIsNotApplied) {
  Start();
  EXPECT_TRUE(Ask().takes_seals());
  const std::unique_ptr<Peer> peer = Connect();
  const auto sealed = [&](std::uint64_t sequence, std::uint64_t word) {
    const Array seal{wire::Seal::kArray,
                     std::string(reinterpret_cast<const char*>(&word), sizeof(word))};
    return UpdateFrame(sequence, sequence, 20'000,
                       {{kGradients, std::string(160'000, '\0')}, seal});
  };
  peer->Send(sealed(11, 0) + sealed(12, wire::Seal::kWhole) + sealed(13, wire::Seal::kWhole + 1));
  std::map<std::uint64_t, absl::StatusCode> codes;
  for (int i = 0; i < 3; ++i) {
    const v1::StreamReply reply = peer->Reply().first;
    codes[reply.sequence()] = static_cast<absl::StatusCode>(reply.code());
  }
  EXPECT_THAT(codes,
              ElementsAre(Pair(11, absl::StatusCode::kCancelled), Pair(12, absl::StatusCode::kOk),
                          Pair(13, absl::StatusCode::kCancelled)));
  EXPECT_TRUE(node_.Await([](const FakeShardNode& node) { return node.updated_rows() == 20'000; }));
}

TEST_F(SocketStreamTest, BytesThatAreNoFramesEndTheSocketAlone) {
  Start();
  std::string huge;
  Append(huge, std::uint32_t{0xffffffff});
  Append(huge, std::uint32_t{0});
  std::string arrays;
  Append(arrays, std::uint32_t{0});
  Append(arrays, std::uint32_t{9});
  for (const std::string& bytes : {huge, arrays, ToBytes("no message", {})}) {
    const std::unique_ptr<Peer> peer = Connect();
    peer->Send(bytes + LookupFrame(7, {1}));
    EXPECT_TRUE(peer->IsOver());
    v1::StreamReply reply;
    v1::StreamRequest silent = Asking(2);
    silent.clear_asks_data_socket();
    ASSERT_TRUE(stream_->Write(silent));
    ASSERT_TRUE(stream_->Read(&reply));
    EXPECT_EQ(reply.sequence(), 2u);
  }
}

TEST_F(SocketStreamTest, RequestsBeyondTheirShareTakeNoMemory) {
  Start({.in_flight = {.bytes_max = std::size_t{4} << 20}});
  const std::unique_ptr<Peer> peer = Connect();
  pool_.ReturnIdle();
  pool_.ReturnIdle();
  const std::size_t retained = pool_.retained_bytes();
  node_.Hold();
  peer->Send(UpdateFrame(1, 1, 100, 800));
  peer->Send(UpdateFrame(3, 3, std::size_t{1} << 18, std::size_t{2} << 20));
  const auto [refused, none] = peer->Reply();
  EXPECT_EQ(refused.sequence(), 3u);
  EXPECT_EQ(refused.code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_GE(refused.retry_after_ms(), 10u);
  EXPECT_LT(pool_.retained_bytes(), retained + (std::size_t{1} << 20));
  node_.Release();
  EXPECT_EQ(peer->Reply().first.sequence(), 1u);
  peer->Send(UpdateFrame(4, 4, 100, 800));
  EXPECT_EQ(peer->Reply().first.code(), 0);
}

TEST_F(SocketStreamTest, ARequestThatStopsInItsMiddleGivesItsMemoryBack) {
  Start({.in_flight = {.bytes_max = std::size_t{4} << 20}});
  // More than a half: with the memory of another one held, or any other request, it is refused.
  const std::string most = UpdateFrame(1, 1, std::size_t{150'000}, 150'000 * 8);
  {
    const std::unique_ptr<Peer> peer = Connect();
    peer->Send(most.substr(0, most.size() - 1));
  }
  const std::unique_ptr<Peer> peer = Connect();
  int code = 0;
  for (int i = 0; i < 10'000; ++i) {  // The node hears of the end in its own time.
    peer->Send(most);
    code = peer->Reply().first.code();
    if (code == 0) break;
    EXPECT_EQ(code, static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  }
  EXPECT_EQ(code, 0);
}

TEST_F(SocketStreamTest, WhoDoesNotReadRepliesIsNotRead) {
  Start({.stream_bytes_max = std::size_t{8} << 20});
  const std::unique_ptr<Peer> peer = Connect();
  constexpr std::uint64_t kRequests = 200;
  const std::vector<std::int64_t> ids(1024, 3);
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kRequests; ++i) peer->Send(LookupFrame(i, ids, 256));
  });
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.taken() >= 8; }));
  std::size_t ahead_max = 0;
  const std::string rows = RowsOf(ids, 256);
  for (std::uint64_t read = 0; read < kRequests; ++read) {
    const auto reply = peer->Reply();
    ASSERT_EQ(reply.first.sequence(), read);
    ASSERT_TRUE(reply.second == rows);
    node_.Await([&](const FakeShardNode& node) {
      ahead_max = std::max<std::size_t>(ahead_max, node.taken() - read);
      return true;
    });
  }
  writer.join();
  EXPECT_LT(ahead_max, 20u);
}

// Its replies come first.
TEST_F(SocketStreamTest, EndsWithItsStream) {
  Start();
  const std::unique_ptr<Peer> peer = Connect();
  node_.Hold();
  peer->Send(LookupFrame(5, {1}));
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  stream_->WritesDone();
  node_.Release();
  EXPECT_EQ(peer->Reply().second, RowsOf({1}));
  EXPECT_TRUE(peer->IsOver());
  v1::StreamReply reply;
  EXPECT_FALSE(stream_->Read(&reply));
  EXPECT_THAT(stream_->Finish(), IsOk());
}

TEST_F(SocketStreamTest, EndsAtOnceWithAStreamThatIsCancelled) {
  Start();
  const std::unique_ptr<Peer> peer = Connect();
  node_.Hold();
  peer->Send(LookupFrame(5, {1}));
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  context_->TryCancel();
  EXPECT_TRUE(peer->IsOver());
  node_.Release();
}

TEST_F(SocketStreamTest, ATicketIsWorthNothingWhenItsStreamIsOver) {
  Start();
  const v1::DataSocket offer = Ask();
  stream_->WritesDone();
  EXPECT_THAT(stream_->Finish(), IsOk());
  Peer peer(offer.address());
  peer.Send(ToBytes(offer.ticket(), {}));
  EXPECT_TRUE(peer.IsOver());
}

TEST_F(SocketStreamTest, ADrainAnswersWhatIsInFlight) {
  Start();
  const std::unique_ptr<Peer> peer = Connect();
  node_.Hold();
  peer->Send(LookupFrame(5, {1}));
  ASSERT_TRUE(node_.Await([](const FakeShardNode& node) { return node.held() == 1; }));
  service_->Drain();
  peer->Send(LookupFrame(6, {2}));
  std::thread stopper([this] { server_->Shutdown(absl::Seconds(60)); });
  node_.Release();
  EXPECT_EQ(peer->Reply().second, RowsOf({1}));
  EXPECT_TRUE(peer->IsOver());
  v1::StreamReply reply;
  EXPECT_FALSE(stream_->Read(&reply));
  EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  stopper.join();
}

TEST_F(SocketStreamTest, AClientThatReadsNothingDoesNotKeepTheNodeFromStopping) {
  Start();
  const std::unique_ptr<Peer> peer = Connect();
  const std::vector<std::int64_t> ids(1024, 3);
  for (std::uint64_t i = 0; i < 20; ++i) peer->Send(LookupFrame(i, ids, 256));
  service_->Drain();
  server_->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace embla
