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
#include "core/socket/testing/frame_ends.h"
#include "core/wire/frame.h"
#include "core/wire/large_fields.h"

namespace embla {
namespace {

using ::embla::testing::AreInOrder;
using ::embla::testing::Behaviour;
using ::embla::testing::BytesOf;
using ::embla::testing::ConnectedPair;
using ::embla::testing::Connection;
using ::embla::testing::End;
using ::embla::testing::ExpectClosedOnce;
using ::embla::testing::FrameOf;
using ::embla::testing::FrameSocketTest;
using ::embla::testing::IsOk;
using ::embla::testing::kLarge;
using ::embla::testing::kMedium;
using ::embla::testing::kPatience;
using ::embla::testing::kTextAlone;
using ::embla::testing::kTextBytesMax;
using ::embla::testing::MessageOf;
using ::embla::testing::StatusIs;
using ::embla::testing::Told;

void SendMany(FrameSocket& socket, std::uint64_t thread, int frames) {
  for (int i = 0; i < frames; ++i) {
    std::uint64_t number = (thread << 32) + static_cast<std::uint64_t>(i);
    if (i % 8 == 3) number |= kLarge;
    socket.Send(i % 8 == 7 ? wire::MakeFrame("") : FrameOf(number));
  }
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

// Each array is overwritten as soon as Send has returned.
TEST_P(FrameSocketSend, BorrowedArraysAreNotReadAfterwards) {
  constexpr std::uint64_t kThreads = 3;
  constexpr int kFrames = 24;
  const auto [has_two, has_tls] = GetParam();
  Connection connection(*poller_, has_two ? *other_poller_ : *poller_, has_tls);
  connection.b.Behave({.wants_more = true});
  connection.b.socket().Want();
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < kFrames; ++i) {
        wire::SplitMessage message = MessageOf((thread << 32) + i +
                                               (i % 3 == 0   ? kLarge
                                                : i % 3 == 1 ? kMedium
                                                             : 0));
        std::vector<std::string> memory;
        for (const wire::LargeField& field : message.fields) {
          memory.emplace_back(reinterpret_cast<const char*>(field.slice.begin()),
                              field.slice.size());
        }
        message.fields.clear();
        // The kernel takes 1,024 pieces at once.
        const std::size_t pieces = i % 4 == 0 ? 2'500 : 1 + i % 5;
        for (std::size_t j = 0; j < memory.size(); ++j) {
          for (std::size_t piece = 0; piece < pieces; ++piece) {
            const std::size_t begin = memory[j].size() * piece / pieces;
            const std::size_t end = memory[j].size() * (piece + 1) / pieces;
            message.fields.emplace_back(
                static_cast<int>(j + 1),
                grpc::Slice(memory[j].data() + begin, end - begin, grpc::Slice::STATIC_SLICE));
          }
        }
        message.borrows = true;
        connection.a.socket().Send(wire::MakeFrame(message));
        for (std::string& bytes : memory) bytes.assign(bytes.size(), '?');
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(connection.b.AwaitEnded(kThreads * kFrames));
  ASSERT_TRUE(connection.a.AwaitSent(kThreads * kFrames));
  EXPECT_TRUE(AreInOrder(connection.b.told().numbers));
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
  while (MessageOf(number).envelope.size() > 100)
    ++number;  // The kernel has room for this many pieces.
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
