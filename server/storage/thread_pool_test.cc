#include "server/storage/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;

TEST(ThreadPoolParallelFor, CoversEveryIndexOnceForAnySizeGrainAndThreadCount) {
  for (const std::size_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::size_t n : {0u, 1u, 7u, 64u, 1001u}) {
      for (const std::size_t grain : {1u, 3u, 64u, 5000u}) {
        std::vector<std::atomic<int>> seen(n);
        pool.ParallelFor(n, grain, [&](std::size_t begin, std::size_t end) {
          EXPECT_LT(begin, end);
          EXPECT_LE(end - begin, grain);
          for (std::size_t i = begin; i < end; ++i) ++seen[i];
        });
        for (const auto& count : seen) ASSERT_EQ(count, 1);
      }
    }
  }
}

TEST(ThreadPoolParallelFor, ResultsAreVisibleWhenItReturns) {
  ThreadPool pool(4);
  std::vector<std::size_t> values(1000);
  for (std::size_t round = 1; round < 200; ++round) {
    pool.ParallelFor(values.size(), 10, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) values[i] += round;  // Not atomic, on purpose.
    });
  }
  for (const std::size_t value : values) ASSERT_EQ(value, 199u * 200 / 2);
}

TEST(ThreadPoolParallelFor, OtherThreadsTakePart) {
  ThreadPool pool(2);
  std::atomic<int> inside = 0;
  // Each range waits for the other: it ends only if two threads run.
  pool.ParallelFor(2, 1, [&](std::size_t, std::size_t) {
    ++inside;
    AwaitFor([&] { return inside == 2; }, absl::Seconds(60), "two threads run");
  });
  EXPECT_EQ(inside, 2);
}

TEST(ThreadPoolKeepOut, FewerThreadsTakePart) {
  ThreadPool pool(4);
  for (const std::size_t kept_out : {2u, 3u, 9u, 0u, 2u}) {
    pool.KeepOut(kept_out);
    const std::size_t threads = pool.threads();
    EXPECT_EQ(threads, 4 - std::min<std::size_t>(kept_out, 3));
    Mutex mu;
    std::set<std::thread::id> seen;
    std::atomic<std::size_t> inside = 0;
    // A range for each thread that may run, and none ends before all of them do.
    pool.ParallelFor(threads, 1, [&](std::size_t, std::size_t) {
      {
        MutexLock lock(mu);
        seen.insert(std::this_thread::get_id());
      }
      ++inside;
      AwaitFor([&] { return inside >= threads; }, absl::Seconds(60), "threads run");
    });
    EXPECT_EQ(seen.size(), threads);
    // A thread that is late finds no place.
    seen.clear();
    pool.ParallelFor(1000, 1, [&](std::size_t, std::size_t) {
      MutexLock lock(mu);
      seen.insert(std::this_thread::get_id());
    });
    EXPECT_LE(seen.size(), threads);
  }
}

}  // namespace
}  // namespace embla
