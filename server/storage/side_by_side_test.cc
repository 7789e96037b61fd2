#include "server/storage/side_by_side.h"

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::ElementsAre;

TEST(RunSideBySide, RunsEveryJobOnceForAnySizesAndThreadCount) {
  const JobSizes all[] = {{},       {7},        {0, 0, 0},          {5000, 1, 1, 5000, 3},
                          {10'000}, {300, 300}, JobSizes(500, 8),   JobSizes(26, 4096),
                          {0, 900}, {900, 0},   {1, 2, 3, 4, 5, 6}, {100'000, 0, 0, 99'999}};
  for (const std::size_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (const JobSizes& sizes : all) {
      std::vector<std::atomic<int>> seen(sizes.size());
      const absl::Status status = RunSideBySide(pool, sizes, [&](std::size_t job) {
        ++seen[job];
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
  const absl::Status status = RunSideBySide(pool, {256, 256}, [&](std::size_t) {
    ++inside;
    AwaitFor([&] { return inside == 2; }, absl::Seconds(60), "two jobs run");
    return absl::OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(RunSideBySide, AJobOfMoreThanAThreadsShareHasThemAll) {
  ThreadPool pool(2);
  std::vector<std::size_t> order;  // Too few rows beside for two threads.
  const absl::Status status = RunSideBySide(pool, {100, 9000, 100}, [&](std::size_t job) {
    order.push_back(job);
    if (job != 1) return absl::OkStatus();
    std::atomic<int> inside = 0;
    pool.ParallelFor(2, 1, [&](std::size_t, std::size_t) {
      ++inside;
      AwaitFor([&] { return inside == 2; }, absl::Seconds(60), "two threads run");
    });
    return absl::OkStatus();
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_THAT(order, ElementsAre(1, 0, 2));
}

TEST(RunSideBySide, SmallJobsTakeTheThreadsTogether) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  // Not worth a second thread.
  const auto run_here = [&](std::size_t) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    return absl::OkStatus();
  };
  EXPECT_THAT(RunSideBySide(pool, JobSizes(63, 8), run_here), IsOk());
  // The first of each half waits for the other one.
  std::atomic<int> inside = 0;
  const auto run_beside = [&](std::size_t job) {
    if (job % 32 != 0) return absl::OkStatus();
    ++inside;
    AwaitFor([&] { return inside == 2; }, absl::Seconds(60), "two threads run");
    return absl::OkStatus();
  };
  EXPECT_THAT(RunSideBySide(pool, JobSizes(64, 8), run_beside), IsOk());
}

TEST(RunSideBySide, ReturnsTheFirstError) {
  for (const std::size_t threads : {1u, 4u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      const absl::Status status =
          RunSideBySide(pool, JobSizes(100, 256), [](std::size_t job) -> absl::Status {
            if (job < 40) return absl::OkStatus();
            return absl::InternalError(absl::StrCat("job ", job));
          });
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "job 40"));
    }
  }
}

}  // namespace
}  // namespace embla
