#include "core/socket/receiving_wait.h"

#include <time.h>

#include <atomic>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "core/base/testing/status_matchers.h"
#include "core/socket/testing/frame_ends.h"
#include "core/wire/frame.h"

namespace embla {
namespace {

using ::embla::testing::AreInOrder;
using ::embla::testing::Connection;
using ::embla::testing::End;
using ::embla::testing::ExpectClosedOnce;
using ::embla::testing::FrameOf;
using ::embla::testing::FrameSocketTest;
using ::embla::testing::kLarge;
using ::embla::testing::kMedium;
using ::embla::testing::kPatience;
using ::embla::testing::StatusIs;

// Takes frames as they come, from now on. `end`: at the end of each.
void WantAll(
    End& end, std::function<absl::Status()> at_end = [] { return absl::OkStatus(); }) {
  end.Behave({.wants_more = true, .end = std::move(at_end)});
  end.socket().Want();
}

// Has a frame come to `a`, which takes all: both links are ready then.
bool BecomesReady(Connection& connection) {
  WantAll(connection.a);
  connection.b.socket().Send(wire::MakeFrame(""));
  return connection.a.AwaitEnded(1);
}

// Adds the socket once its poller's thread lets go of it.
void AddSoon(ReceivingWait& wait, End& end) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!wait.receives() && absl::Now() < deadline) wait.Add(end.shared_socket());
  ASSERT_TRUE(wait.receives());
}

absl::Duration TimeOf(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return absl::DurationFromTimespec(time);
}

// Processor time of all threads but this one.
absl::Duration OthersTime() {
  return TimeOf(CLOCK_PROCESS_CPUTIME_ID) - TimeOf(CLOCK_THREAD_CPUTIME_ID);
}

// Whether the ends have TLS.
class ReceivingWaitTest : public FrameSocketTest, public ::testing::WithParamInterface<bool> {
 protected:
  bool has_tls() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Links, ReceivingWaitTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Plain"; });

TEST_P(ReceivingWaitTest, WhoWaitsReceivesItself) {
  constexpr int kFrames = 100;
  Connection connection(*poller_, *other_poller_, has_tls());
  std::atomic<int> elsewhere = 0;
  const std::thread::id self = std::this_thread::get_id();
  WantAll(connection.a, [&] {
    elsewhere += std::this_thread::get_id() == self ? 0 : 1;
    return absl::OkStatus();
  });
  WantAll(connection.b);
  // Both are ready once something has come.
  connection.b.socket().Send(wire::MakeFrame(""));
  ASSERT_TRUE(connection.a.AwaitEnded(1));
  ReceivingWait wait;
  AddSoon(wait, connection.a);
  elsewhere = 0;
  for (int i = 1; i <= kFrames; ++i) {
    connection.b.socket().Send(FrameOf(static_cast<std::uint64_t>(i) | (i % 8 == 0 ? kLarge : 0)));
    while (connection.a.ended() <= i) wait.Wait();
  }
  EXPECT_EQ(elsewhere, 0);
  EXPECT_TRUE(AreInOrder(connection.a.told().numbers));

  // The poller's thread goes on where this one ends.
  wait.Release();
  EXPECT_FALSE(wait.receives());
  connection.b.socket().Send(FrameOf(kMedium));
  EXPECT_TRUE(connection.a.AwaitEnded(kFrames + 2));
  AwaitTurn(*poller_);  // It has left EndFrame.
  EXPECT_EQ(elsewhere, 1);
}

TEST_P(ReceivingWaitTest, AnotherThreadWakesWhoWaits) {
  Connection connection(*poller_, *other_poller_, has_tls());
  ASSERT_TRUE(BecomesReady(connection));
  ReceivingWait wait;
  AddSoon(wait, connection.a);
  wait.Wake();  // By the thread itself: nothing.
  std::atomic<bool> woken = false;
  std::thread other([&] {
    woken = true;
    wait.Wake();
  });
  while (!woken) wait.Wait();
  other.join();
  EXPECT_EQ(connection.a.ended(), 1);
}

TEST_P(ReceivingWaitTest, OneThreadReceivesAtATime) {
  Connection connection(*poller_, *other_poller_, has_tls());
  ASSERT_TRUE(BecomesReady(connection));
  ReceivingWait first, second;
  AddSoon(first, connection.a);
  second.Add(connection.a.shared_socket());
  second.Add(nullptr);
  EXPECT_FALSE(second.receives());
  first.Release();
  AddSoon(second, connection.a);
}

TEST_P(ReceivingWaitTest, ThreadsThatTakeTurnsLoseNothing) {
  constexpr int kFrames = 600;
  constexpr int kThreads = 3;
  Connection connection(*poller_, *other_poller_, has_tls());
  WantAll(connection.a);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (connection.a.ended() < kFrames) {
        ReceivingWait wait;
        wait.Add(connection.a.shared_socket());
        if (wait.receives() && connection.a.ended() < kFrames) wait.Wait();
      }
    });
  }
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    connection.b.socket().Send(i % 8 == 7 ? wire::MakeFrame("") : FrameOf(i));
  }
  ASSERT_TRUE(connection.a.AwaitEnded(kFrames));
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(AreInOrder(connection.a.told().numbers));
  EXPECT_EQ(connection.a.told().begun, kFrames);
}

TEST_P(ReceivingWaitTest, APeerThatEndsEndsTheWait) {
  Connection connection(*poller_, *other_poller_, has_tls());
  ASSERT_TRUE(BecomesReady(connection));
  ReceivingWait wait;
  AddSoon(wait, connection.a);
  connection.b.socket().Shutdown();
  while (wait.receives()) wait.Wait();
  EXPECT_TRUE(connection.a.AwaitClosed());
  ExpectClosedOnce(connection.a);
}

TEST_P(ReceivingWaitTest, APeerThatEndsWhileNobodyLooksIsNoticedAfterwards) {
  Connection connection(*poller_, *other_poller_, has_tls());
  ASSERT_TRUE(BecomesReady(connection));
  {
    ReceivingWait wait;
    AddSoon(wait, connection.a);
    connection.b.socket().Shutdown();
    ASSERT_TRUE(connection.b.AwaitClosed());
    AwaitTurn(*poller_);
    EXPECT_FALSE(connection.a.is_closed());  // Its owner is this thread's.
    // The poller's thread does not look again and again meanwhile.
    const absl::Duration before = OthersTime();
    const absl::Duration until = TimeOf(CLOCK_THREAD_CPUTIME_ID) + absl::Milliseconds(50);
    while (TimeOf(CLOCK_THREAD_CPUTIME_ID) < until) {
    }
    EXPECT_LT(OthersTime() - before, absl::Milliseconds(10));
  }
  EXPECT_TRUE(connection.a.AwaitClosed());
  ExpectClosedOnce(connection.a);
}

TEST_P(ReceivingWaitTest, AnOwnersErrorClosesTheConnection) {
  Connection connection(*poller_, *other_poller_, has_tls());
  std::atomic<bool> fails = false;
  WantAll(connection.a, [&] { return fails ? absl::DataLossError("torn") : absl::OkStatus(); });
  connection.b.socket().Send(wire::MakeFrame(""));
  ASSERT_TRUE(connection.a.AwaitEnded(1));
  ReceivingWait wait;
  AddSoon(wait, connection.a);
  fails = true;
  connection.b.socket().Send(FrameOf(7));
  while (wait.receives()) wait.Wait();
  ASSERT_TRUE(connection.a.AwaitClosed());
  EXPECT_THAT(connection.a.told().why, StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace embla
