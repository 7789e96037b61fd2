#include "core/socket/short_wait.h"

#include <unistd.h>

#include <chrono>

#include <gtest/gtest.h>

namespace embla {
namespace {

// A thread that has slept for `sleep` at first. Returns how often it has slept in `waits` waits for
// something that comes after it has looked `looks` times.
int Sleeps(std::chrono::microseconds sleep, int waits, int looks) {
  ShortWait wait;
  int slept = 0;
  for (int i = 0; i < waits; ++i) {
    int looked = 0;
    wait.Until([&](bool sleeps) {
      if (!sleeps) return ++looked > looks;
      if (sleep > sleep.zero()) ::usleep(static_cast<useconds_t>(sleep.count()));
      ++slept;
      return true;
    });
  }
  return slept;
}

constexpr int kAlways = 1 << 30;

TEST(ShortWaitTest, AfterAShortSleepItLooks) {
  // The machine may be busy for a moment: then it tries again a while later.
  EXPECT_LT(Sleeps(std::chrono::microseconds(0), 1000, 1), 500);
}

TEST(ShortWaitTest, AfterALongSleepItSleeps) {
  EXPECT_EQ(Sleeps(std::chrono::milliseconds(1), 50, 0), 50);
}

TEST(ShortWaitTest, LookingInVainIsRare) {
  constexpr int kWaits = 330;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Sleeps(std::chrono::microseconds(0), kWaits, kAlways), kWaits);
  // At most one in 33 looks, for 0.1 ms; and a busy machine may stretch each of these.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200));
}

}  // namespace
}  // namespace embla
