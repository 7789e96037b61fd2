#include "server/table/device_executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;

class FunctionTask final : public DeviceTask {
 public:
  FunctionTask(
      std::function<void(std::uint32_t)> run, std::function<void()> finish = [] {})
      : run_(std::move(run)), finish_(std::move(finish)) {}
  void Run(std::uint32_t device) override { run_(device); }
  void Finish() override { finish_(); }

 private:
  const std::function<void(std::uint32_t)> run_;
  const std::function<void()> finish_;
};

// A task that keeps its devices busy until it is opened.
class Gate {
 public:
  std::unique_ptr<DeviceTask> Task() {
    return std::make_unique<FunctionTask>([this](std::uint32_t) {
      MutexLock lock(mu_);
      ++arrived_;
      changed_.NotifyAll();
      while (!open_) changed_.Wait(mu_);
    });
  }
  void AwaitArrivals(int count) {
    MutexLock lock(mu_);
    while (arrived_ < count) changed_.Wait(mu_);
  }
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int arrived_ ABSL_GUARDED_BY(mu_) = 0;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(DeviceSetRank, CountsDevicesBelow) {
  const DeviceSet set = DeviceSet::Of(1) | DeviceSet::Of(5) | DeviceSet::Of(63);
  EXPECT_EQ(set.size(), 3u);
  EXPECT_EQ(set.lowest(), 1u);
  EXPECT_EQ(set.RankOf(5), 1u);
  EXPECT_EQ(set.RankOf(63), 2u);
  EXPECT_EQ(DeviceSet::First(64).size(), 64u);
}

TEST(DeviceExecutorsSubmit, TwoTasksStandInTheSameOrderOnEveryDevice) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  constexpr std::uint32_t kDevices = 4;
  constexpr int kTasksPerThread = 500;
  std::vector<std::vector<int>> seen(kDevices);  // Each written by its device's thread only.
  {
    DeviceExecutors executors({.devices = kDevices, .tasks_max_per_device = 10'000});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(seed + t);
        for (int i = 0; i < kTasksPerThread; ++i) {
          DeviceSet devices = DeviceSet::Of(random() % kDevices);
          if (random() % 2 == 0) devices |= DeviceSet::Of(random() % kDevices);
          const int number = t * kTasksPerThread + i;
          std::unique_ptr<DeviceTask> task = std::make_unique<FunctionTask>(
              [&seen, number](std::uint32_t device) { seen[device].push_back(number); });
          ASSERT_THAT(executors.Submit(task, devices, 1), IsOk());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (std::uint32_t a = 0; a < kDevices; ++a) {
    for (std::uint32_t b = 0; b < a; ++b) {
      const auto common = [](const std::vector<int>& own, std::vector<int> other) {
        std::sort(other.begin(), other.end());
        std::vector<int> kept;
        std::copy_if(own.begin(), own.end(), std::back_inserter(kept), [&](int number) {
          return std::binary_search(other.begin(), other.end(), number);
        });
        return kept;
      };
      EXPECT_EQ(common(seen[a], seen[b]), common(seen[b], seen[a]));
    }
  }
}

TEST(DeviceExecutorsSubmit, FinishRunsOnceAfterEveryDevice) {
  std::vector<std::atomic<int>> done(3);  // Devices go on while a task's Finish looks.
  int finished = 0;
  {
    DeviceExecutors executors({.devices = 3});
    for (int i = 0; i < 200; ++i) {
      std::unique_ptr<DeviceTask> task =
          std::make_unique<FunctionTask>([&](std::uint32_t device) { ++done[device]; },
                                         [&, i] {
                                           ++finished;
                                           EXPECT_THAT(done, ::testing::Each(::testing::Ge(i + 1)));
                                         });
      ASSERT_THAT(executors.Submit(task, DeviceSet::First(3), 0), IsOk());
    }
  }
  EXPECT_EQ(finished, 200);
}

TEST(DeviceExecutorsSubmit, FullQueueRefusesOnAllDevicesAndLeavesTheTask) {
  Gate gate;
  DeviceExecutors executors({.devices = 2, .tasks_max_per_device = 1, .node_name = "n7"});
  std::unique_ptr<DeviceTask> blocker = gate.Task();
  ASSERT_THAT(executors.Submit(blocker, DeviceSet::Of(1), 0), IsOk());
  gate.AwaitArrivals(1);
  const auto idle = [] { return std::make_unique<FunctionTask>([](std::uint32_t) {}); };
  std::unique_ptr<DeviceTask> fits = idle();
  ASSERT_THAT(executors.Submit(fits, DeviceSet::Of(1), 0), IsOk());
  std::unique_ptr<DeviceTask> refused = idle();
  const absl::Status status = executors.Submit(refused, DeviceSet::First(2), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("device 1 of node n7"));
  EXPECT_NE(refused, nullptr);
  gate.Open();
}

TEST(DeviceExecutorsSubmit, BytesAreBoundedAndGivenBack) {
  Gate gate;
  DeviceExecutors executors({.devices = 1, .bytes_max = 100});
  std::unique_ptr<DeviceTask> blocker = gate.Task();
  ASSERT_THAT(executors.Submit(blocker, DeviceSet::Of(0), 60), IsOk());
  std::unique_ptr<DeviceTask> refused = std::make_unique<FunctionTask>([](std::uint32_t) {});
  EXPECT_EQ(executors.Submit(refused, DeviceSet::Of(0), 41).code(),
            absl::StatusCode::kResourceExhausted);
  gate.Open();
  RunOnDevices(executors, DeviceSet::Of(0), [](std::uint32_t) {});
  EXPECT_EQ(executors.queued_bytes(), 0u);
}

// The tasks that one device ran, in its order.
class Trace {
 public:
  std::unique_ptr<DeviceTask> Task(char name) {
    return std::make_unique<FunctionTask>([this, name](std::uint32_t) { names_ += name; });
  }
  // After the executors.
  const std::string& names() const { return names_; }

 private:
  std::string names_;  // Written by the device's thread.
};

TEST(DeviceExecutorsTurns, ALightOriginGoesBeforeTheBacklogOfOthersAndControlTasksBehindIt) {
  Gate gate;
  Trace trace;
  {
    DeviceExecutors executors({.devices = 1});
    executors.SubmitControl(gate.Task(), DeviceSet::Of(0));
    gate.AwaitArrivals(1);
    const auto submit = [&](char name, std::uint64_t origin, std::size_t bytes) {
      std::unique_ptr<DeviceTask> request = trace.Task(name);
      ASSERT_THAT(executors.Submit(request, DeviceSet::Of(0), bytes, RequestOrigin{origin}),
                  IsOk());
    };
    submit('1', 1, 1 << 20);
    submit('2', 1, 1 << 20);
    submit('3', 2, 1 << 20);
    submit('l', 3, 64);
    executors.SubmitControl(trace.Task('|'), DeviceSet::Of(0));
    submit('m', 3, 64);
    gate.Open();
  }
  EXPECT_THAT(trace.names(), ::testing::AnyOf("l132|m", "l312|m"));
}

TEST(DeviceExecutorsTurns, ADeviceTakesWhatAnotherOneHasMadeFirst) {
  Gate gate;
  std::atomic<bool> has_run = false;
  DeviceExecutors executors({.devices = 2});
  executors.SubmitControl(gate.Task(), DeviceSet::Of(0));
  gate.AwaitArrivals(1);
  // Both are of one origin, so the second one waits for the first, and its device is idle.
  std::unique_ptr<DeviceTask> first = std::make_unique<FunctionTask>([](std::uint32_t) {});
  std::unique_ptr<DeviceTask> second =
      std::make_unique<FunctionTask>([&](std::uint32_t) { has_run = true; });
  ASSERT_THAT(executors.Submit(first, DeviceSet::Of(0), 0), IsOk());
  ASSERT_THAT(executors.Submit(second, DeviceSet::Of(1), 0), IsOk());
  gate.Open();
  AwaitFor([&] { return has_run.load(); }, absl::Seconds(60), "the task has run");
}

TEST(DeviceExecutorsTurns, ReadsDoNotWaitForRequestsAndDoNotKeepThemFromRunning) {
  std::atomic<bool> has_run = false;
  DeviceExecutors executors({.devices = 1});
  // Two reads that queue each other's next: the queue is never empty.
  std::function<void()> again = [&] {
    if (has_run) return;
    executors.SubmitRead(std::make_unique<FunctionTask>([](std::uint32_t) {}, [&] { again(); }),
                         DeviceSet::Of(0));
  };
  for (int i = 0; i < 2; ++i) {
    executors.SubmitRead(std::make_unique<FunctionTask>([](std::uint32_t) {}, [&] { again(); }),
                         DeviceSet::Of(0));
  }
  std::unique_ptr<DeviceTask> request =
      std::make_unique<FunctionTask>([&](std::uint32_t) { has_run = true; });
  ASSERT_THAT(executors.Submit(request, DeviceSet::Of(0), 0), IsOk());
  AwaitFor([&] { return has_run.load(); }, absl::Seconds(60), "the task has run");
  ReadOnDevices(executors, DeviceSet::Of(0), [](std::uint32_t) {});
}

TEST(DeviceExecutorsRunHere, ASmallRequestOfAnIdleDeviceRunsOnTheThreadThatSubmitsIt) {
  DeviceExecutors executors({.devices = 2, .run_here_bytes_max = 100});
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id ran;
  const auto run = [&](DeviceSet devices, std::size_t bytes) {
    std::atomic<bool> finished = false;
    std::unique_ptr<DeviceTask> task =
        std::make_unique<FunctionTask>([&ran](std::uint32_t) { ran = std::this_thread::get_id(); },
                                       [&finished] {
                                         finished = true;
                                         finished.notify_one();
                                       });
    EXPECT_THAT(executors.SubmitOrRun(task, devices, bytes, RequestOrigin{}), IsOk());
    finished.wait(false);
  };
  // Its thread may not have come so far yet.
  EXPECT_TRUE(AwaitFor(
      [&] {
        run(DeviceSet::Of(1), 100);
        return ran == here;
      },
      absl::Seconds(60), "the device's thread is idle"));
  run(DeviceSet::Of(1), 101);
  EXPECT_NE(ran, here);
  run(DeviceSet::Of(1), 0);
  EXPECT_NE(ran, here);
  run(DeviceSet::First(2), 1);
  EXPECT_NE(ran, here);
}

// A task that is submitted while a request runs so waits for it, and is not forgotten.
TEST(DeviceExecutorsRunHere, ADeviceRunsOneTaskAtATimeInTheirOrder) {
  std::mt19937_64 random(embla::testing::TestSeed());
  DeviceExecutors executors({.devices = 2, .run_here_bytes_max = 100});
  std::atomic<int> running[2] = {};
  std::atomic<int> overlaps = 0;
  std::atomic<int> left = 0;
  constexpr int kThreads = 4;
  constexpr int kTasks = 3000;
  // By thread and device: what ran last of it. Requests of an origin keep their order.
  std::array<std::array<int, 2>, kThreads> last = {};
  std::atomic<int> disorders = 0;
  const auto work = [&](int thread, std::uint64_t seed) {
    std::mt19937_64 choices(seed);
    for (int i = 1; i <= kTasks; ++i) {
      const DeviceSet devices =
          choices() % 4 == 0 ? DeviceSet::First(2) : DeviceSet::Of(choices() % 2);
      ++left;
      auto make = [&](bool ordered) -> std::unique_ptr<DeviceTask> {
        return std::make_unique<FunctionTask>(
            [&, thread, i, ordered](std::uint32_t device) {
              if (running[device].fetch_add(1) != 0) ++overlaps;
              if (ordered && std::exchange(last[thread][device], i) > i) ++disorders;
              running[device].fetch_sub(1);
            },
            [&left] { --left; });
      };
      std::unique_ptr<DeviceTask> task = make(true);
      switch (choices() % 8) {
        case 0:
          executors.SubmitControl(make(false), devices);
          break;
        case 1:
          executors.SubmitBackground(make(false), devices);
          break;
        default:
          while (!executors
                      .SubmitOrRun(task, devices, choices() % 200,
                                   RequestOrigin{static_cast<std::uint64_t>(thread)})
                      .ok()) {
            std::this_thread::yield();
          }
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t, random());
  for (std::thread& thread : threads) thread.join();
  executors.Stop();
  EXPECT_EQ(left, 0);
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(disorders, 0);
}

TEST(DeviceExecutorsBackground, LaterTasksGoFirstAndEarlierOnesAlways) {
  Gate gate;
  Trace trace;
  {
    DeviceExecutors executors({.devices = 1});
    executors.SubmitControl(gate.Task(), DeviceSet::Of(0));
    gate.AwaitArrivals(1);
    executors.SubmitControl(trace.Task('1'), DeviceSet::Of(0));
    executors.SubmitBackground(trace.Task('a'), DeviceSet::Of(0));
    executors.SubmitBackground(trace.Task('b'), DeviceSet::Of(0));
    std::unique_ptr<DeviceTask> request = trace.Task('2');
    ASSERT_THAT(executors.Submit(request, DeviceSet::Of(0), 0), IsOk());
    gate.Open();
  }
  // The background tasks may have waited for long enough while the gate was closed.
  EXPECT_THAT(trace.names(), ::testing::AnyOf("12ab", "1a2b"));
}

TEST(DeviceExecutorsBackground, RunsOnADeviceThatAlwaysHasSomethingElseToDo) {
  std::atomic<bool> has_run = false;
  std::atomic<int> requests = 0;
  std::function<void()> again;  // Until the last task has run.
  DeviceExecutors executors({.devices = 1});
  // Two tasks that queue each other's next: the queue is never empty.
  again = [&] {
    ++requests;
    if (has_run) return;
    executors.SubmitFollowUp(std::make_unique<FunctionTask>([](std::uint32_t) {}, [&] { again(); }),
                             DeviceSet::Of(0));
  };
  for (int i = 0; i < 2; ++i) {
    executors.SubmitControl(std::make_unique<FunctionTask>([](std::uint32_t) {}, [&] { again(); }),
                            DeviceSet::Of(0));
  }
  executors.SubmitBackground(std::make_unique<FunctionTask>([&](std::uint32_t) { has_run = true; }),
                             DeviceSet::Of(0));
  RunOnDevices(executors, DeviceSet::Of(0), [](std::uint32_t) {});
  AwaitFor([&] { return has_run.load(); }, absl::Seconds(60), "the task has run");
  EXPECT_GT(requests, 2);
}

TEST(DeviceExecutorsRequestDelay, IsThatOfRequestsAndNotOfOtherTasks) {
  Gate gate;
  DeviceExecutors executors({.devices = 2});
  EXPECT_EQ(executors.request_delay(), absl::ZeroDuration());
  RunOnDevices(executors, DeviceSet::First(2), [](std::uint32_t) {});
  EXPECT_EQ(executors.request_delay(), absl::ZeroDuration());
  executors.SubmitControl(gate.Task(), DeviceSet::Of(1));
  gate.AwaitArrivals(1);
  std::unique_ptr<DeviceTask> request = std::make_unique<FunctionTask>([](std::uint32_t) {});
  ASSERT_THAT(executors.Submit(request, DeviceSet::Of(1), 0), IsOk());
  gate.Open();
  RunOnDevices(executors, DeviceSet::Of(1), [](std::uint32_t) {});
  EXPECT_GT(executors.request_delay(), absl::ZeroDuration());
}

TEST(QueueDelayMean, ForgetsWhatIsLongAgo) {
  const QueueDelay::TimePoint start{std::chrono::seconds(1000)};
  QueueDelay delay;
  EXPECT_EQ(delay.Mean(start), absl::ZeroDuration());
  delay.Add(absl::Milliseconds(4), start);
  EXPECT_EQ(delay.Mean(start + QueueDelay::kLately), absl::Milliseconds(4));
  EXPECT_EQ(delay.Mean(start + QueueDelay::kLately + std::chrono::milliseconds(1)),
            absl::ZeroDuration());
  delay.Add(absl::Milliseconds(1), start + QueueDelay::kHalfLife);
  EXPECT_EQ(delay.Mean(start + QueueDelay::kHalfLife), absl::Milliseconds(2));
}

TEST(DeviceExecutorsRunOnDevices, WaitsForAllDevices) {
  DeviceExecutors executors({.devices = 3});
  std::vector<int> ran(3, 0);
  RunOnDevices(executors, DeviceSet::Of(0) | DeviceSet::Of(2),
               [&](std::uint32_t device) { ran[device] = 1; });
  EXPECT_THAT(ran, ::testing::ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace embla
