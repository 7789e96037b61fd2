#include "server/mover/move_pace.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

constexpr absl::Duration kUsual = absl::Microseconds(200);

class MovePaceTest : public ::testing::Test {
 protected:
  // Looks for `duration`, once per millisecond; chunks are sent as fast as they may, at most
  // `chunks_per_ms` at once. `delay` says how long requests wait beside so many chunks per second.
  template <typename Delay>
  double Run(absl::Duration duration, int chunks_per_ms, const Delay& delay) {
    const absl::Time end = now_ + duration;
    int sent = 0;
    for (; now_ < end; now_ += absl::Milliseconds(1)) {
      pace_.Look(delay(pace_.chunks_per_second()), now_);
      for (int i = 0; i < chunks_per_ms && pace_.Wait(now_) <= absl::ZeroDuration(); ++i) {
        pace_.Take(now_);
        ++sent;
      }
    }
    return sent / absl::ToDoubleSeconds(duration);
  }
  void Rest(absl::Duration delay) {
    Run(absl::Seconds(3), 0, [delay](double) { return delay; });
  }

  static MovePaceOptions WithoutMax() {
    MovePaceOptions options;
    options.chunks_per_second_max = 100'000;
    return options;
  }

  const MovePaceOptions options_ = WithoutMax();
  MovePace pace_{options_};
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(MovePaceTest, WithoutRequestsThereIsNoLimit) {
  EXPECT_GT(Run(absl::Seconds(1), 20, [](double) { return absl::ZeroDuration(); }), 19'000);
}

TEST_F(MovePaceTest, BesideRequestsThereIsAlwaysALimit) {
  pace_ = MovePace(MovePaceOptions{});
  Rest(kUsual);
  const auto usual = [](double) { return kUsual; };
  const double most = MovePaceOptions{}.chunks_per_second_max;  // Whole milliseconds round it down.
  const auto at_most = ::testing::AllOf(::testing::Gt(0.9 * most), ::testing::Le(most));
  EXPECT_THAT(Run(absl::Seconds(2), 20, usual), at_most);
  EXPECT_GT(Run(absl::Seconds(2), 20, [](double) { return absl::ZeroDuration(); }), 15'000);
  EXPECT_LT(Run(absl::Seconds(2), 20, usual), 2 * most);
}

TEST_F(MovePaceTest, LearnsWhatIsUsualAtRestOnly) {
  Rest(kUsual);
  EXPECT_EQ(pace_.delay_at_rest(), kUsual);
  pace_.Take(now_);
  Run(absl::Seconds(1), 20, [](double) { return 5 * kUsual; });
  EXPECT_EQ(pace_.delay_at_rest(), kUsual);
}

TEST_F(MovePaceTest, RequestsThatDoNotWaitLetItGrow) {
  Rest(kUsual);
  Run(absl::Seconds(1), 20, [](double) { return kUsual; });
  EXPECT_GE(pace_.chunks_per_second(), 10'000);
}

TEST_F(MovePaceTest, RequestsThatWaitLeaveTheLeastThatIsPromised) {
  Rest(kUsual);
  Run(absl::Seconds(1), 20, [](double) { return 10 * kUsual; });
  EXPECT_NEAR(Run(absl::Seconds(1), 20, [](double) { return 10 * kUsual; }),
              options_.chunks_per_second_min, 2);
}

// Chunks take a hundredth of a thousandth of the device each: it waits as a queue does.
TEST_F(MovePaceTest, SettlesWhereRequestsWaitTwiceAsLong) {
  Rest(kUsual);
  const auto queue = [](double chunks_per_second) {
    return kUsual / (1 - std::min(chunks_per_second / 1000, 0.99));
  };
  pace_.Take(now_);
  Run(absl::Seconds(1), 20, queue);
  const double sent = Run(absl::Seconds(5), 20, queue);
  EXPECT_GT(sent, 300);
  EXPECT_LT(sent, 500);
}

TEST_F(MovePaceTest, ADelayBelowTheFloorIsNoSign) {
  Rest(absl::Microseconds(1));
  Run(absl::Seconds(1), 20, [](double) { return absl::Microseconds(150); });
  EXPECT_GE(pace_.chunks_per_second(), 10'000);
}

TEST_F(MovePaceTest, BeginsAnewAfterARest) {
  Rest(kUsual);
  Run(absl::Seconds(1), 20, [](double) { return 10 * kUsual; });
  Rest(kUsual);
  EXPECT_EQ(pace_.chunks_per_second(), options_.chunks_per_second_max);
}

}  // namespace
}  // namespace embla
