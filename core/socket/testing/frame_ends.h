// Two ends of a connection, and frames that both know, for tests of FrameSocket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/file_descriptor.h"
#include "core/base/mutex.h"
#include "core/base/testing/status_matchers.h"
#include "core/socket/frame_socket.h"
#include "core/socket/link.h"
#include "core/socket/poller.h"
#include "core/wire/frame.h"
#include "core/wire/large_fields.h"

namespace embla::testing {

inline constexpr std::size_t kTextBytesMax = 1024;
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// --- Frames, which follow from a number: a text that begins with it, and arrays.

inline constexpr std::uint64_t kTextAlone = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kMedium = std::uint64_t{1} << 62;  // One array of 64 KiB.
inline constexpr std::uint64_t kLarge = std::uint64_t{1} << 61;   // One array of 3 MiB.

std::vector<std::size_t> ArrayBytes(std::uint64_t number);
std::string ArrayOf(std::uint64_t number, std::size_t array, std::size_t size);
wire::SplitMessage MessageOf(std::uint64_t number);
inline wire::Frame FrameOf(std::uint64_t number) { return wire::MakeFrame(MessageOf(number)); }
std::string BytesOf(const wire::Frame& frame);

// Whether the frames of each thread came in their order. Numbers have the thread's in their upper
// half.
bool AreInOrder(const std::vector<std::uint64_t>& numbers);

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
  const std::shared_ptr<FrameSocket>& shared_socket() { return socket_; }

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

// Nothing came twice, and nothing after the close.
void ExpectClosedOnce(End& end);

std::array<FileDescriptor, 2> ConnectedPair();
// Two ends of one connection, ready, or about to greet and shake hands.
std::array<std::unique_ptr<Link>, 2> LinkedPair(bool has_tls);

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
    auto poller = Poller::Start(/*looks=*/true);
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

}  // namespace embla::testing
