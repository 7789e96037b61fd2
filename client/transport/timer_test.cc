#include "client/transport/timer.h"

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/transport/testing/manual_timer.h"

namespace embla::client {
namespace {

TEST(ThreadTimer, RunsInTheOrderOfTimes) {
  ThreadTimer timer;
  std::vector<int> order;
  std::promise<void> done;
  const absl::Time now = timer.Now();
  timer.At(now + absl::Milliseconds(30), [&] {
    order.push_back(3);
    done.set_value();
  });
  timer.At(now + absl::Milliseconds(20), [&] { order.push_back(2); });
  timer.At(now - absl::Seconds(1), [&] { order.push_back(1); });
  done.get_future().wait();
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3));
}

TEST(ThreadTimer, CancelWaitsForAFunctionThatRuns) {
  ThreadTimer timer;
  std::promise<void> started, go_on;
  std::atomic<bool> ended = false;
  const Timer::Id id = timer.At(timer.Now(), [&] {
    started.set_value();
    go_on.get_future().wait();
    ended = true;
  });
  started.get_future().wait();
  const Timer::Id never = timer.At(timer.Now() + absl::Hours(1), [] { ADD_FAILURE(); });
  timer.Cancel(never);
  go_on.set_value();
  timer.Cancel(id);
  EXPECT_TRUE(ended);
}

TEST(Alarm, FiresAtTheEarliestTimeAskedFor) {
  ManualTimer timer(absl::UnixEpoch());
  std::vector<absl::Time> fired;
  Alarm alarm(timer, [&] { fired.push_back(timer.Now()); });
  alarm.NoLaterThan(absl::FromUnixSeconds(10));
  alarm.NoLaterThan(absl::FromUnixSeconds(20));
  alarm.NoLaterThan(absl::FromUnixSeconds(5));
  timer.Advance(absl::Seconds(7));
  EXPECT_THAT(fired, ::testing::ElementsAre(absl::FromUnixSeconds(5)));
  alarm.NoLaterThan(absl::FromUnixSeconds(8));
  timer.Advance(absl::Seconds(2));
  EXPECT_EQ(fired.back(), absl::FromUnixSeconds(8));
}

TEST(Alarm, DoesNotFireAfterItsEnd) {
  ManualTimer timer(absl::UnixEpoch());
  {
    Alarm alarm(timer, [] { ADD_FAILURE(); });
    alarm.NoLaterThan(absl::FromUnixSeconds(10));
  }
  timer.Advance(absl::Seconds(20));
}

}  // namespace
}  // namespace embla::client
