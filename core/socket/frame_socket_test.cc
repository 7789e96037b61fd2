#include "core/socket/frame_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "core/base/split_mix.h"
#include "core/base/testing/status_matchers.h"
#include "core/socket/link.h"
#include "core/socket/poller.h"
#include "core/tls/testing/test_authority.h"
#include "core/wire/frame.h"
#include "core/wire/large_fields.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;

constexpr std::size_t kTextBytesMax = 1024;
constexpr absl::Duration kPatience = absl::Seconds(60);

// --- Frames, which follow from a number: a text that begins with it, and arrays.

constexpr std::uint64_t kTextAlone = std::uint64_t{1} << 63;
constexpr std::uint64_t kMedium = std::uint64_t{1} << 62;  // One array of 64 KiB.
constexpr std::uint64_t kLarge = std::uint64_t{1} << 61;   // One array of 3 MiB.

std::string Content(std::uint64_t number, std::size_t size) {
  std::string bytes(size, '\0');
  const std::uint64_t seed = SplitMix64(number);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = SplitMix64(seed + i);
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), size - i));
  }
  return bytes;
}

std::string TextOf(std::uint64_t number) {
  std::string text(reinterpret_cast<const char*>(&number), sizeof(number));
  return text + Content(number, SplitMix64(number) % (kTextBytesMax - sizeof(number)));
}

std::vector<std::size_t> ArrayBytes(std::uint64_t number) {
  if ((number & kTextAlone) != 0) return {};
  if ((number & kMedium) != 0) return {64 << 10};
  std::uint64_t random = SplitMix64(number);
  if ((number & kLarge) != 0 || random % 16 == 0) return {3 << 20};
  std::vector<std::size_t> sizes(random / 16 % 4);
  for (std::size_t& size : sizes) {
    random = SplitMix64(random);
    size = 1 + (random >> 8) % (std::uint64_t{1} << random % 20);
  }
  return sizes;
}

std::string ArrayOf(std::uint64_t number, std::size_t array, std::size_t size) {
  return Content(SplitMix64(number) + array, size);
}

wire::Frame FrameOf(std::uint64_t number) {
  wire::SplitMessage message{.envelope = TextOf(number), .small = {}, .fields = {}};
  const std::vector<std::size_t> sizes = ArrayBytes(number);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    message.fields.emplace_back(static_cast<int>(i + 1), grpc::Slice(ArrayOf(number, i, sizes[i])));
  }
  return wire::MakeFrame(message);
}

std::string BytesOf(const wire::Frame& frame) {
  std::string bytes = frame.head;
  for (const grpc::Slice& array : frame.arrays) {
    bytes.append(reinterpret_cast<const char*>(array.begin()), array.size());
  }
  return bytes;
}

// --- Ends of a connection.

// Counts of the calls of an owner.
struct Told {
  int begun = 0;
  int ended = 0;
  int sent = 0;
  int closed = 0;
  int after_closed = 0;
  absl::Status why;                    // Why the connection was closed.
  std::vector<std::uint64_t> numbers;  // Frames that have ended, without empty ones.
};

// How an owner answers, after it has checked what comes.
struct Behaviour {
  bool wants_more = false;  // EndFrame wants the next one.
  bool dies = false;        // The owner is destroyed in OnClosed.
  std::function<absl::Status()> begin = [] { return absl::OkStatus(); };
  std::function<absl::Status()> end = [] { return absl::OkStatus(); };
  std::function<void()> sent = [] {};
};

class End {
 public:
  // `poller` is not owned and outlives the end.
  End(std::unique_ptr<Link> link, Poller& poller);
  ~End();

  // Requires: nothing is sent by this end, or wanted, yet.
  void Behave(Behaviour behaviour) {
    MutexLock lock(mu_);
    behaviour_ = std::make_shared<const Behaviour>(std::move(behaviour));
  }

  FrameSocket& socket() { return *socket_; }

  // False, and a failure, after kPatience, or when the connection is over: nothing changes then.
  bool Await(const char* what, const std::function<bool(const Told&)>& condition) {
    const absl::Time end = absl::Now() + kPatience;
    MutexLock lock(mu_);
    while (!condition(told_)) {
      if (told_.closed > 0 || absl::Now() >= end) {
        ADD_FAILURE() << what << ": in vain; " << told_.begun << " frames begun, " << told_.ended
                      << " ended, " << told_.sent << " sent, closed: " << told_.why.ToString();
        return false;
      }
      changed_.WaitFor(mu_, end - absl::Now());
    }
    return true;
  }
  bool AwaitEnded(int frames) {
    return Await("frames come", [=](const Told& told) { return told.ended >= frames; });
  }
  bool AwaitSent(int frames) {
    return Await("frames are sent", [=](const Told& told) { return told.sent >= frames; });
  }
  bool AwaitClosed() {
    return Await("the connection closes", [](const Told& told) { return told.closed > 0; });
  }

  Told told() {
    MutexLock lock(mu_);
    return told_;
  }
  int begun() {
    MutexLock lock(mu_);
    return told_.begun;
  }
  int ended() {
    MutexLock lock(mu_);
    return told_.ended;
  }
  bool is_closed() {
    MutexLock lock(mu_);
    return told_.closed > 0;
  }

 private:
  class Owner;

  void Note(const std::function<void(Told&)>& change) {
    MutexLock lock(mu_);
    if (told_.closed > 0) ++told_.after_closed;
    change(told_);
    changed_.NotifyAll();
  }

  std::shared_ptr<const Behaviour> behaviour() {
    MutexLock lock(mu_);
    return behaviour_;
  }

  Mutex mu_;
  std::shared_ptr<const Behaviour> behaviour_ ABSL_GUARDED_BY(mu_) =
      std::make_shared<const Behaviour>();
  CondVar changed_;
  Told told_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Owner> owner_;
  std::shared_ptr<FrameSocket> socket_;
};

// Checks that what comes are frames of FrameOf. Some of their arrays are dropped.
class End::Owner final : public FrameSocket::Owner {
 public:
  explicit Owner(End& end) : end_(end) {}

  absl::Status BeginFrame(std::string_view text, std::span<const wire::FrameArray> arrays,
                          std::span<std::byte*> places) override {
    end_.Note([](Told& told) { ++told.begun; });
    is_empty_ = text.empty();
    arrays_.clear();
    if (text.size() >= sizeof(number_)) std::memcpy(&number_, text.data(), sizeof(number_));
    const std::vector<std::size_t> sizes =
        is_empty_ ? std::vector<std::size_t>() : ArrayBytes(number_);
    const auto is_same = [](const wire::FrameArray& array, std::size_t size) {
      return array.bytes == size;
    };
    if ((!is_empty_ && text != TextOf(number_)) || !std::ranges::equal(arrays, sizes, is_same)) {
      ADD_FAILURE() << "a frame that nobody sent";
      return absl::InternalError("a frame that nobody sent");
    }
    arrays_.resize(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(arrays[i].number, i + 1);
      if ((number_ + i) % 5 == 4) continue;
      arrays_[i].resize(sizes[i]);
      places[i] = reinterpret_cast<std::byte*>(arrays_[i].data());
    }
    return end_.behaviour()->begin();
  }

  absl::Status EndFrame() override {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].empty()) continue;
      EXPECT_TRUE(arrays_[i] == ArrayOf(number_, i, arrays_[i].size())) << "array " << i;
    }
    end_.Note([this](Told& told) {
      ++told.ended;
      if (!is_empty_) told.numbers.push_back(number_);
    });
    if (end_.behaviour()->wants_more) end_.socket_->Want();
    return end_.behaviour()->end();
  }

  void OnSent() override {
    end_.Note([](Told& told) { ++told.sent; });
    end_.behaviour()->sent();
  }

  void OnClosed(const absl::Status& why) override {
    EXPECT_THAT(why, ::testing::Not(IsOk()));
    End& end = end_;
    if (end.behaviour()->dies) end.owner_.reset();
    end.Note([&why](Told& told) {
      ++told.closed;
      told.why = why;
    });
  }

 private:
  End& end_;  // Not owned; outlives this object.
  // The frame that comes now.
  bool is_empty_ = false;
  std::uint64_t number_ = 0;
  std::vector<std::string> arrays_;
};

End::End(std::unique_ptr<Link> link, Poller& poller) : owner_(std::make_unique<Owner>(*this)) {
  auto socket = FrameSocket::Open(std::move(link), *owner_, poller, kTextBytesMax);
  EXPECT_THAT(socket, IsOk());
  socket_ = *std::move(socket);
}

End::~End() {
  socket_->Shutdown();
  AwaitClosed();
}

std::array<FileDescriptor, 2> ConnectedPair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Two ends of one connection, ready, or about to greet and shake hands.
std::array<std::unique_ptr<Link>, 2> LinkedPair(bool has_tls) {
  auto [a, b] = ConnectedPair();
  if (!has_tls) return {std::make_unique<Link>(std::move(a)), std::make_unique<Link>(std::move(b))};
  static const auto& authority = *new testing::TestAuthority();
  static const TlsContext client =
      ClientContext(authority.Load(Role::kTrainer, "t1")).value_or(nullptr);
  static const TlsContext server =
      ServerContext(authority.Load(Role::kNode, "n1")).value_or(nullptr);
  return {Link::ToServer(std::move(a), client, {.role = Role::kNode}),
          Link::FromClient(std::move(b), server)};
}

struct Connection {
  Connection(Poller& poller_of_a, Poller& poller_of_b, bool has_tls = false)
      : links(LinkedPair(has_tls)),
        a(std::move(links[0]), poller_of_a),
        b(std::move(links[1]), poller_of_b) {}

  std::array<std::unique_ptr<Link>, 2> links;
  End a;
  End b;
};

class FrameSocketTest : public ::testing::Test {
 protected:
  FrameSocketTest() : poller_(StartPoller()), other_poller_(StartPoller()) {}

  static std::unique_ptr<Poller> StartPoller() {
    auto poller = Poller::Start();
    EXPECT_THAT(poller, IsOk());
    return *std::move(poller);
  }

  // Returns when `poller` has handled what its sockets had for it before: events wait in a row.
  static void AwaitTurn(Poller& poller) {
    Connection other(poller, poller);
    for (int i = 1; i <= 3; ++i) {
      other.b.socket().Want();
      other.a.socket().Send(wire::MakeFrame(""));
      ASSERT_TRUE(other.b.AwaitEnded(i));
    }
  }
  void AwaitTurns() {
    AwaitTurn(*poller_);
    AwaitTurn(*other_poller_);
  }

  std::unique_ptr<Poller> poller_;
  std::unique_ptr<Poller> other_poller_;
};

// Nothing came twice, and nothing after the close.
void ExpectClosedOnce(End& end) {
  const Told told = end.told();
  EXPECT_EQ(told.closed, 1);
  EXPECT_EQ(told.after_closed, 0);
}

void SendMany(FrameSocket& socket, std::uint64_t thread, int frames) {
  for (int i = 0; i < frames; ++i) {
    std::uint64_t number = (thread << 32) + static_cast<std::uint64_t>(i);
    if (i % 8 == 3) number |= kLarge;
    socket.Send(i % 8 == 7 ? wire::MakeFrame("") : FrameOf(number));
  }
}

// Whether the frames of each thread came in their order. Numbers have the thread's in their upper
// half.
bool AreInOrder(const std::vector<std::uint64_t>& numbers) {
  std::map<std::uint64_t, std::uint64_t> next;
  for (const std::uint64_t with_kind : numbers) {
    const std::uint64_t number = with_kind & ~(kTextAlone | kMedium | kLarge);
    std::uint64_t& least = next[number >> 32];
    if (number < least) return false;
    least = number + 1;
  }
  return true;
}

// Whether each end has a poller of its own; whether they have TLS.
class FrameSocketSend : public FrameSocketTest,
                        public ::testing::WithParamInterface<std::tuple<bool, bool>> {};

TEST_P(FrameSocketSend, FramesOfSeveralThreadsGoBothWaysAtOnce) {
  constexpr int kThreads = 3;
  constexpr int kFrames = 40;
  constexpr int kSent = kThreads * kFrames;
  constexpr int kNumbered = kThreads * (kFrames - kFrames / 8);
  const auto [has_two, has_tls] = GetParam();
  Connection connection(*poller_, has_two ? *other_poller_ : *poller_, has_tls);
  End* const ends[] = {&connection.a, &connection.b};
  for (End* const end : ends) {
    end->Behave({.wants_more = true});
    end->socket().Want();
  }

  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    for (End* const end : ends) {
      threads.emplace_back([=] { SendMany(end->socket(), thread, kFrames); });
    }
  }
  for (std::thread& thread : threads) thread.join();

  for (End* const end : ends) {
    ASSERT_TRUE(end->AwaitEnded(kSent));
    ASSERT_TRUE(end->AwaitSent(kSent));
  }
  for (End* const end : ends) end->socket().Shutdown();
  for (End* const end : ends) {
    ASSERT_TRUE(end->AwaitClosed());
    ExpectClosedOnce(*end);
    const Told told = end->told();
    EXPECT_EQ(told.begun, kSent);
    EXPECT_EQ(told.ended, kSent);
    EXPECT_EQ(told.sent, kSent);
    EXPECT_EQ(told.numbers.size(), std::size_t{kNumbered});
    EXPECT_TRUE(AreInOrder(told.numbers));
  }
}

INSTANTIATE_TEST_SUITE_P(Pollers, FrameSocketSend,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Two" : "One") +
                                  (std::get<1>(info.param) ? "Tls" : "");
                         });

TEST_F(FrameSocketTest, OnSentMaySendTheNextFrame) {
  constexpr int kFrames = 1000;
  std::atomic<std::uint64_t> next = 0;
  Connection connection(*poller_, *other_poller_);
  connection.a.Behave({.sent = [&] {
    const std::uint64_t number = ++next;
    if (number < kFrames) connection.a.socket().Send(FrameOf(number | kMedium));
  }});
  connection.b.Behave({.wants_more = true});
  connection.b.socket().Want();
  connection.a.socket().Send(FrameOf(kMedium));
  EXPECT_TRUE(connection.b.AwaitEnded(kFrames));
  EXPECT_TRUE(connection.a.AwaitSent(kFrames));
  EXPECT_TRUE(AreInOrder(connection.b.told().numbers));
}

TEST_F(FrameSocketTest, ManyConnectionsShareAPoller) {
  constexpr int kConnections = 100;
  constexpr int kFrames = 8;
  std::vector<std::unique_ptr<Connection>> connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<Connection>(*poller_, *poller_));
    connections.back()->b.Behave({.wants_more = true});
    connections.back()->b.socket().Want();
  }
  for (std::uint64_t number = 0; number < kFrames; ++number) {
    for (const auto& connection : connections) {
      connection->a.socket().Send(FrameOf(number | (number % 2 == 0 ? kTextAlone : kMedium)));
    }
  }
  for (const auto& connection : connections) {
    ASSERT_TRUE(connection->b.AwaitEnded(kFrames));
    EXPECT_TRUE(AreInOrder(connection->b.told().numbers));
  }
}

TEST_F(FrameSocketTest, NothingIsTakenUntilItIsWanted) {
  constexpr int kFrames = 100;
  Connection connection(*poller_, *other_poller_);
  for (std::uint64_t i = 0; i < kFrames; ++i) connection.a.socket().Send(FrameOf(i | kMedium));

  // The kernel's buffer is full.
  AwaitTurns();
  const int sent = connection.a.told().sent;
  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, kFrames);
  EXPECT_EQ(connection.b.begun(), 0);

  for (int i = 1; i <= kFrames; ++i) {
    connection.b.socket().Want();
    ASSERT_TRUE(connection.b.AwaitEnded(i));
    if (i % 10 == 0) AwaitTurns();
    EXPECT_EQ(connection.b.begun(), i);
  }
  EXPECT_TRUE(connection.a.AwaitSent(kFrames));
  EXPECT_TRUE(AreInOrder(connection.b.told().numbers));
}

// A frame waits for its Want also where the socket has received it together with the one before.
TEST_F(FrameSocketTest, EachWantTakesOneOfManySmallFrames) {
  constexpr int kFrames = 20'000;
  Connection connection(*poller_, *other_poller_);
  std::thread sender([&] {
    for (std::uint64_t i = 0; i < kFrames; ++i) connection.a.socket().Send(FrameOf(i | kTextAlone));
  });
  int wanted = 0;
  for (bool came = true; came && wanted < kFrames;) {
    EXPECT_EQ(connection.b.begun(), wanted);
    connection.b.socket().Want();
    came = connection.b.AwaitEnded(++wanted);
  }
  sender.join();
  EXPECT_EQ(connection.b.ended(), kFrames);
  EXPECT_TRUE(AreInOrder(connection.b.told().numbers));
}

// One thread wants at any moment, also while the poller's finds that nothing is wanted.
TEST_F(FrameSocketTest, WantsAtAnyMomentLoseNothing) {
  constexpr int kFrames = 20'000;
  Connection connection(*poller_, *other_poller_);
  std::thread sender([&] {
    for (std::uint64_t i = 0; i < kFrames; ++i) connection.a.socket().Send(FrameOf(i | kTextAlone));
  });
  const absl::Time end = absl::Now() + kPatience;
  while (connection.b.ended() < kFrames && !connection.b.is_closed() && absl::Now() < end) {
    connection.b.socket().Want();
  }
  sender.join();
  const Told told = connection.b.told();
  EXPECT_EQ(told.closed, 0) << told.why.ToString();
  EXPECT_EQ(told.ended, kFrames);
  EXPECT_TRUE(AreInOrder(told.numbers));
}

// A peer that does not read may not keep a socket from what it has received.
TEST_F(FrameSocketTest, AReceivedFrameIsTakenWhileNothingCanBeSent) {
  Connection connection(*poller_, *other_poller_);
  connection.a.socket().Send(FrameOf(kTextAlone));
  connection.a.socket().Send(FrameOf(kTextAlone | 1));
  connection.b.socket().Want();
  ASSERT_TRUE(connection.b.AwaitEnded(1));
  AwaitTurns();
  for (std::uint64_t i = 0; i < 4; ++i) connection.b.socket().Send(FrameOf(i | kLarge));
  AwaitTurns();
  connection.b.socket().Want();
  EXPECT_TRUE(connection.b.AwaitEnded(2));
}

// --- Ends of connections: by which end, and whether the owners die of it.

struct CloseCase {
  const char* name;
  bool by_sender;
  bool dies;
  bool has_tls = false;
};

class FrameSocketClose : public FrameSocketTest, public ::testing::WithParamInterface<CloseCase> {
 protected:
  End& Closer(Connection& connection) const {
    return GetParam().by_sender ? connection.a : connection.b;
  }
  void ExpectBothClose(Connection& connection) {
    ASSERT_TRUE(connection.a.AwaitClosed());
    ASSERT_TRUE(connection.b.AwaitClosed());
    AwaitTurns();
    ExpectClosedOnce(connection.a);
    ExpectClosedOnce(connection.b);
    EXPECT_THAT(connection.a.told().why, StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_THAT(connection.b.told().why, StatusIs(absl::StatusCode::kUnavailable));
  }
};

TEST_P(FrameSocketClose, ShutdownWhileNothingIsWantedClosesBoth) {
  Connection connection(*poller_, *other_poller_, GetParam().has_tls);
  connection.a.Behave({.dies = GetParam().dies});
  connection.b.Behave({.dies = GetParam().dies});
  connection.a.socket().Send(FrameOf(1));
  Closer(connection).socket().Shutdown();
  ExpectBothClose(connection);
  EXPECT_EQ(connection.b.begun(), 0);
}

TEST_P(FrameSocketClose, ShutdownWhileFramesAreWantedClosesBoth) {
  Connection connection(*poller_, *other_poller_, GetParam().has_tls);
  for (End* const end : {&connection.a, &connection.b}) {
    end->Behave({.wants_more = true, .dies = GetParam().dies});
    end->socket().Want();
  }
  AwaitTurns();
  Closer(connection).socket().Shutdown();
  ExpectBothClose(connection);
}

TEST_P(FrameSocketClose, ShutdownInTheMiddleOfAFrameClosesBoth) {
  Connection connection(*poller_, *other_poller_, GetParam().has_tls);
  connection.a.Behave({.dies = GetParam().dies});
  connection.b.Behave({.dies = GetParam().dies, .begin = [&] {
                         Closer(connection).socket().Shutdown();
                         return absl::OkStatus();
                       }});
  connection.b.socket().Want();
  connection.a.socket().Send(FrameOf(kLarge));
  ExpectBothClose(connection);
  EXPECT_EQ(connection.b.begun(), 1);
  EXPECT_EQ(connection.b.told().ended, 0);
  EXPECT_EQ(connection.a.told().sent, 0);
}

TEST_P(FrameSocketClose, ShutdownWhileOtherThreadsSendClosesBoth) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    Connection connection(*poller_, *other_poller_, GetParam().has_tls);
    connection.a.Behave({.dies = GetParam().dies});
    connection.b.Behave({.wants_more = true, .dies = GetParam().dies});
    connection.b.socket().Want();
    // Goes on for a while after the close, and is never far ahead of what is sent.
    const auto send = [&](std::uint64_t thread) {
      End& end = connection.a;
      for (std::uint64_t i = 0, left = 50; left > 0; ++i) {
        end.socket().Send(FrameOf((thread << 32) + i + (i % 2 == 0 ? kTextAlone : kMedium)));
        const bool goes_on = end.Await("frames are sent", [&](const Told& told) {
          return told.closed > 0 || static_cast<std::uint64_t>(told.sent) + 20 > i;
        });
        if (!goes_on) return;
        if (end.is_closed()) --left;
      }
    };
    std::thread first(send, 1);
    std::thread second(send, 2);
    EXPECT_TRUE(connection.b.AwaitEnded(5 * round));
    Closer(connection).socket().Shutdown();
    first.join();
    second.join();
    ExpectBothClose(connection);
  }
}

TEST_P(FrameSocketClose, NothingHappensAfterwards) {
  Connection connection(*poller_, *other_poller_, GetParam().has_tls);
  connection.a.Behave({.dies = GetParam().dies});
  connection.b.Behave({.dies = GetParam().dies});
  Closer(connection).socket().Shutdown();
  ASSERT_TRUE(connection.a.AwaitClosed());
  ASSERT_TRUE(connection.b.AwaitClosed());
  for (End* const end : {&connection.a, &connection.b}) {
    end->socket().Send(FrameOf(1));
    end->socket().Send(FrameOf(kLarge));
    end->socket().Want();
    end->socket().Shutdown();
  }
  ExpectBothClose(connection);
  EXPECT_EQ(connection.a.told().sent, 0);
  EXPECT_EQ(connection.b.begun(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, FrameSocketClose,
                         ::testing::Values(CloseCase{"BySender", true, false},
                                           CloseCase{"ByReceiver", false, false},
                                           CloseCase{"BySenderAndOwnersDie", true, true},
                                           CloseCase{"ByReceiverAndOwnersDie", false, true},
                                           CloseCase{"BySenderOverTls", true, true, true},
                                           CloseCase{"ByReceiverOverTls", false, true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// --- Errors.

struct ErrorCase {
  const char* name;
  bool at_end;
  std::uint64_t frame;
};

class FrameSocketOwnerError : public FrameSocketTest,
                              public ::testing::WithParamInterface<ErrorCase> {};

TEST_P(FrameSocketOwnerError, ClosesTheConnection) {
  const absl::Status error = absl::DataLossError("the owner's");
  Connection connection(*poller_, *other_poller_);
  const std::function<absl::Status()> fail = [&] { return error; };
  Behaviour behaviour{.dies = true};
  (GetParam().at_end ? behaviour.end : behaviour.begin) = fail;
  connection.b.Behave(std::move(behaviour));
  connection.b.socket().Want();
  connection.a.socket().Send(FrameOf(GetParam().frame));
  ASSERT_TRUE(connection.b.AwaitClosed());
  ASSERT_TRUE(connection.a.AwaitClosed());
  ExpectClosedOnce(connection.a);
  ExpectClosedOnce(connection.b);
  EXPECT_EQ(connection.b.told().why, error);
  EXPECT_EQ(connection.b.begun(), 1);
  EXPECT_THAT(connection.a.told().why, StatusIs(absl::StatusCode::kUnavailable));
}

INSTANTIATE_TEST_SUITE_P(All, FrameSocketOwnerError,
                         ::testing::Values(ErrorCase{"BeginOfText", false, kTextAlone},
                                           ErrorCase{"EndOfText", true, kTextAlone},
                                           ErrorCase{"BeginOfArray", false, kLarge},
                                           ErrorCase{"EndOfArray", true, kLarge}),
                         [](const auto& info) { return std::string(info.param.name); });

// A peer without a FrameSocket.
class FrameSocketPeer : public FrameSocketTest {
 protected:
  FrameSocketPeer()
      : descriptors_(ConnectedPair()),
        peer_(std::move(descriptors_[0])),
        end_(std::make_unique<Link>(std::move(descriptors_[1])), *poller_) {
    end_.Behave({.wants_more = true, .dies = true});
  }

  // Requires: the kernel takes them at once.
  void Write(std::string_view bytes) {
    ASSERT_EQ(::send(peer_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Whether the other end has closed the connection.
  bool IsOver() {
    char byte = 0;
    return ::recv(peer_.number(), &byte, 1, 0) == 0;
  }

  std::array<FileDescriptor, 2> descriptors_;
  FileDescriptor peer_;
  End end_;
};

TEST_F(FrameSocketPeer, GarbageClosesTheConnection) {
  end_.socket().Want();
  Write(std::string(64, '\xff'));
  ASSERT_TRUE(end_.AwaitClosed());
  ExpectClosedOnce(end_);
  EXPECT_THAT(end_.told().why, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(end_.told().begun, 0);
  EXPECT_TRUE(IsOver());
}

TEST_F(FrameSocketPeer, GarbageAfterFramesClosesTheConnection) {
  end_.socket().Want();
  Write(BytesOf(FrameOf(kTextAlone)) + BytesOf(FrameOf(kMedium)) + std::string(64, '\xff'));
  ASSERT_TRUE(end_.AwaitClosed());
  EXPECT_THAT(end_.told().why, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(end_.told().ended, 2);
  EXPECT_TRUE(IsOver());
}

TEST_F(FrameSocketPeer, ATextOverTheLimitClosesTheConnection) {
  end_.socket().Want();
  Write(BytesOf(wire::MakeFrame(std::string(kTextBytesMax + 1, 'x'))).substr(0, 8));
  ASSERT_TRUE(end_.AwaitClosed());
  EXPECT_THAT(end_.told().why, StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FrameSocketPeer, AFrameMayComeByteByByte) {
  end_.socket().Want();
  std::uint64_t number = kTextAlone;
  while (TextOf(number).size() > 100) ++number;  // The kernel has room for this many pieces.
  const std::string bytes = BytesOf(FrameOf(number)) + BytesOf(wire::MakeFrame(""));
  for (const char& byte : bytes) Write(std::string_view(&byte, 1));
  EXPECT_TRUE(end_.AwaitEnded(2));
}

TEST_F(FrameSocketPeer, APeerThatEndsInTheMiddleOfAFrameClosesTheConnection) {
  end_.socket().Want();
  Write(BytesOf(FrameOf(kMedium)).substr(0, 40 << 10));
  ASSERT_TRUE(end_.Await("a frame begins", [](const Told& told) { return told.begun == 1; }));
  peer_.Close();
  ASSERT_TRUE(end_.AwaitClosed());
  ExpectClosedOnce(end_);
  EXPECT_THAT(end_.told().why, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(end_.told().ended, 0);
}

TEST_F(FrameSocketPeer, APeerThatEndsWhileNothingIsWantedClosesTheConnection) {
  end_.socket().Send(FrameOf(kLarge));
  peer_.Close();
  ASSERT_TRUE(end_.AwaitClosed());
  ExpectClosedOnce(end_);
  EXPECT_THAT(end_.told().why, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(end_.told().sent, 0);
}

// The thread that sends may find out before the poller's does.
TEST_F(FrameSocketPeer, SendToAPeerThatHasEndedClosesOnce) {
  peer_.Close();
  for (int i = 0; i < 100; ++i) end_.socket().Send(FrameOf(kTextAlone));
  ASSERT_TRUE(end_.AwaitClosed());
  AwaitTurn(*poller_);
  ExpectClosedOnce(end_);
  EXPECT_EQ(end_.told().sent, 0);
}

}  // namespace
}  // namespace embla
