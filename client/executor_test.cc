#include "client/executor.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace embla::client {
namespace {

TEST(Executor, RunsNothingInsidePostHoweverMuchWaits) {
  std::promise<void> go_on;
  std::thread::id ran_on;
  {
    Executor executor(1, /*queued_max=*/2);
    executor.Post([&] { go_on.get_future().wait(); });
    EXPECT_FALSE(executor.IsFull());
    for (int i = 0; i < 3; ++i) executor.Post([] {});
    EXPECT_TRUE(executor.IsFull());
    executor.Post([&] { ran_on = std::this_thread::get_id(); });
    EXPECT_EQ(ran_on, std::thread::id()) << "it waits";
    go_on.set_value();
  }
  EXPECT_NE(ran_on, std::thread::id());
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

}  // namespace
}  // namespace embla::client
