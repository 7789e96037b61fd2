#include "server/app/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace embla {
namespace {

using ::testing::ExitedWithCode;

// Ends by StopSignal only.
void Linger() {
  while (true) ::pause();
}

TEST(StopSignalDeathTest, ASecondSignalEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignal stop_signal;
        ::kill(::getpid(), SIGTERM);
        if (stop_signal.Wait() == SIGTERM) ::kill(::getpid(), SIGTERM);
        Linger();
      },
      ExitedWithCode(128 + SIGTERM), "second signal");
}

// The order in which a process takes two signals is not specified.
bool EndedByEither(int status) {
  return ExitedWithCode(128 + SIGINT)(status) || ExitedWithCode(128 + SIGTERM)(status);
}

TEST(StopSignalDeathTest, AlsoBeforeAnybodyWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignal stop_signal;
        ::kill(::getpid(), SIGTERM);
        ::kill(::getpid(), SIGINT);
        Linger();
      },
      EndedByEither, "second signal");
}

}  // namespace
}  // namespace embla
