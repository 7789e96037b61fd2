#include "server/storage/side_by_side.h"

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;

TEST(RunSideBySide, RunsEveryJobOnceForAnySizesAndThreadCount) {
  const JobSizes all[] = {{},       {7},        {0, 0, 0},          {5000, 1, 1, 5000, 3},
                          {10'000}, {300, 300}, JobSizes(500, 8),   JobSizes(26, 4096),
                          {0, 900}, {900, 0},   {1, 2, 3, 4, 5, 6}, {100'000, 0, 0, 99'999}};
  for (const std::size_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (const JobSizes& sizes : all) {
      std::vector<std::atomic<int>> seen(sizes.size());
      std::atomic<int> running = 0;
      const absl::Status status = RunSideBySide(pool, sizes, [&](Jobs jobs, bool alone) {
        const int others = running++;
        EXPECT_TRUE(!alone || others == 0);
        for (const std::size_t job : jobs) ++seen[job];
        --running;
        return absl::OkStatus();
      });
      EXPECT_THAT(status, IsOk());
      for (const auto& count : seen) ASSERT_EQ(count, 1);
    }
  }
}

TEST(RunSideBySide, EqualJobsShareTheThreads) {
  ThreadPool pool(2);
  std::atomic<int> inside = 0;
  // Each waits for the other.
  const absl::Status status = RunSideBySide(pool, {256, 256}, [&](Jobs jobs, bool alone) {
    EXPECT_EQ(jobs.size(), 1u);
    EXPECT_FALSE(alone);
    ++inside;
    AwaitFor([&] { return inside == 2; }, absl::Seconds(60), "two jobs run");
    return absl::OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(RunSideBySide, AJobOfMoreThanAThreadsShareHasThemAll) {
  ThreadPool pool(2);
  const absl::Status status = RunSideBySide(pool, {100, 9000, 100}, [&](Jobs jobs, bool alone) {
    EXPECT_EQ(alone, jobs.front() == 1);
    EXPECT_EQ(jobs.size(), alone ? 1u : 2u);  // Too few rows for two threads.
    if (!alone) return absl::OkStatus();
    std::atomic<int> inside = 0;
    pool.ParallelFor(2, 1, [&](std::size_t, std::size_t) {
      ++inside;
      AwaitFor([&] { return inside == 2; }, absl::Seconds(60), "two threads run");
    });
    return absl::OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(RunSideBySide, SmallJobsTakeTheThreadsTogether) {
  ThreadPool pool(2);
  std::atomic<std::size_t> calls = 0;
  EXPECT_THAT(RunSideBySide(pool, JobSizes(63, 8),
                            [&](Jobs jobs, bool alone) {
                              EXPECT_TRUE(alone);
                              EXPECT_EQ(jobs.size(), 63u);
                              ++calls;
                              return absl::OkStatus();
                            }),
              IsOk());
  EXPECT_EQ(calls, 1u);  // Not worth a second thread.
  calls = 0;
  EXPECT_THAT(RunSideBySide(pool, JobSizes(64, 8),
                            [&](Jobs jobs, bool) {
                              EXPECT_LE(jobs.size(), 32u);
                              ++calls;
                              return absl::OkStatus();
                            }),
              IsOk());
  EXPECT_EQ(calls, 2u);
}

TEST(RunSideBySide, ReturnsTheFirstError) {
  for (const std::size_t threads : {1u, 4u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      const absl::Status status =
          RunSideBySide(pool, JobSizes(100, 256), [&](Jobs jobs, bool) -> absl::Status {
            for (const std::size_t job : jobs) {
              if (job >= 40) return absl::InternalError(absl::StrCat("job ", job));
            }
            return absl::OkStatus();
          });
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "job 40"));
    }
  }
}

}  // namespace
}  // namespace embla
