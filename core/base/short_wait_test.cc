#include "core/base/short_wait.h"

#include <unistd.h>

#include <chrono>

#include <gtest/gtest.h>

namespace embla {
namespace {

struct Counts {
  int slept = 0;
  int looked = 0;  // Waits that looked before they slept, or instead.
};

// Waits of one thread. It finds something when it looks, or never does, and sleeps for `sleep`.
Counts WaitOften(int waits, std::chrono::microseconds sleep, bool finds,
                 ShortWait wait = ShortWait()) {
  Counts counts;
  for (int i = 0; i < waits; ++i) {
    bool looked = false;
    wait.Until([&](bool sleeps) {
      if (!sleeps) {
        looked = true;
        return finds;
      }
      if (sleep > sleep.zero()) ::usleep(static_cast<useconds_t>(sleep.count()));
      ++counts.slept;
      return true;
    });
    counts.looked += looked ? 1 : 0;
  }
  return counts;
}

TEST(ShortWaitTest, AfterAShortSleepItLooks) {
  const Counts counts = WaitOften(1000, std::chrono::microseconds(0), true);
  EXPECT_EQ(counts.slept + counts.looked, 1000);
  EXPECT_GT(counts.looked, 900);  // A sleep is long where the machine is busy.
}

TEST(ShortWaitTest, AfterALongSleepItSleeps) {
  const Counts counts = WaitOften(50, std::chrono::milliseconds(1), true);
  EXPECT_EQ(counts.slept, 50);
  EXPECT_EQ(counts.looked, 0);
}

TEST(ShortWaitTest, ASleepIsShortBesideHowLongItLooks) {
  const ShortWait patient(std::chrono::seconds(1));
  const Counts counts = WaitOften(50, std::chrono::milliseconds(1), true, patient);
  EXPECT_EQ(counts.slept + counts.looked, 50);
  EXPECT_GT(counts.looked, 40);
}

TEST(ShortWaitTest, LookingInVainIsRare) {
  const Counts counts = WaitOften(340, std::chrono::microseconds(0), false);
  EXPECT_EQ(counts.slept, 340);
  EXPECT_GE(counts.looked, 1);
  EXPECT_LE(counts.looked, 11);  // One in 33.
}

}  // namespace
}  // namespace embla
