// The threads of a node's devices: each executes tasks in the order in which they were queued.
//
// A task for several devices enters all their queues at one moment, so any two tasks stand in the
// same order on every device that has both. That order is what collectives between devices, the
// replay windows and replicated tables rely on.
//
// Background tasks are the exception: each device runs them, in their order, when it has nothing
// else to do, so they fall behind tasks that were queued after them, but never run before one that
// was queued earlier. They do not starve: a device that always has something else to do runs one of
// them every kBackgroundWaitMax.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "server/table/queue_delay.h"

namespace embla {

inline constexpr std::uint32_t kDevicesPerNodeMax = 64;
inline constexpr std::chrono::milliseconds kBackgroundWaitMax(20);

// Devices of one node.
class DeviceSet {
 public:
  constexpr DeviceSet() = default;
  static constexpr DeviceSet Of(std::uint32_t device) {
    return DeviceSet(std::uint64_t{1} << device);
  }
  // Devices 0..count-1.
  static constexpr DeviceSet First(std::uint32_t count) {
    return DeviceSet(count == kDevicesPerNodeMax ? ~std::uint64_t{0}
                                                 : (std::uint64_t{1} << count) - 1);
  }

  constexpr bool Has(std::uint32_t device) const { return (bits_ >> device & 1) != 0; }
  constexpr std::uint32_t size() const { return static_cast<std::uint32_t>(std::popcount(bits_)); }
  constexpr bool empty() const { return bits_ == 0; }
  // The lowest device. Requires: not empty.
  constexpr std::uint32_t lowest() const {
    return static_cast<std::uint32_t>(std::countr_zero(bits_));
  }
  // How many devices of the set are below `device`.
  constexpr std::uint32_t RankOf(std::uint32_t device) const {
    return static_cast<std::uint32_t>(std::popcount(bits_ & ((std::uint64_t{1} << device) - 1)));
  }
  constexpr DeviceSet operator|(DeviceSet other) const { return DeviceSet(bits_ | other.bits_); }
  constexpr DeviceSet& operator|=(DeviceSet other) { return *this = *this | other; }
  constexpr bool operator==(const DeviceSet&) const = default;

 private:
  explicit constexpr DeviceSet(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_ = 0;
};

// Work for one or several devices.
class DeviceTask {
 public:
  virtual ~DeviceTask() = default;

  // Once on each of the task's devices, on that device's thread. Devices run at the same time.
  virtual void Run(std::uint32_t device) = 0;
  // Once, when every Run has returned (and sees what they did), on the thread of the last one; the
  // task is destroyed then.
  virtual void Finish() {}

 private:
  friend class DeviceExecutors;
  std::atomic<std::uint32_t> devices_left_ = 0;  // Release by each device, acquire by the last.
  std::size_t bytes_ = 0;
  // Constant once it is queued.
  bool is_request_ = false;
  std::uint64_t number_ = 0;  // In the order of all tasks.
  std::chrono::steady_clock::time_point queued_at_;
};

// Thread safety: every method may be called from any thread, but none from inside a task's Run or
// Finish except Submit, SubmitControl, SubmitBackground, SubmitFollowUp and the accessors.
class DeviceExecutors {
 public:
  struct Options {
    std::uint32_t devices = 1;  // 1..kDevicesPerNodeMax
    std::size_t tasks_max_per_device = 1024;
    std::size_t bytes_max = std::size_t{512} << 20;  // Of all tasks that are not finished.
    std::string node_name = {};                      // For messages.
    Metrics* metrics = nullptr;                      // Not owned; may be null.
  };
  explicit DeviceExecutors(Options options);
  // Executes what is queued, then joins the threads.
  ~DeviceExecutors();

  // Queues `task` on `devices`, on all or none; takes it only when that succeeds. `bytes` is the
  // memory that it holds. ResourceExhausted says which limit is reached.
  absl::Status Submit(std::unique_ptr<DeviceTask>& task, DeviceSet devices, std::size_t bytes);

  // The same without limits: for changes of the node itself, of which few are ever queued.
  void SubmitControl(std::unique_ptr<DeviceTask> task, DeviceSet devices);

  // The same, for work that can wait and needs no order with what is queued later: each device runs
  // it when it has nothing else to do (see above). It must not meet other devices in a collective.
  void SubmitBackground(std::unique_ptr<DeviceTask> task, DeviceSet devices);

  // The same as SubmitControl, from inside a task's Finish. Once the executors are being destroyed
  // it queues nothing: some of the devices might have ended already.
  void SubmitFollowUp(std::unique_ptr<DeviceTask> task, DeviceSet devices);

  std::uint32_t devices() const { return options_.devices; }
  std::size_t queued_bytes() const;
  // How long what was submitted lately waited for a device, in the mean of the slowest device;
  // zero: nothing was.
  absl::Duration request_delay() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Queue {
    // Owned by whichever device finishes the task.
    std::deque<DeviceTask*> tasks;
    std::deque<DeviceTask*> background;
    TimePoint background_ran;  // When the last one began.
    CondVar changed;
    DeviceMetrics metrics;
    QueueDelay delay;
  };

  void Enqueue(std::unique_ptr<DeviceTask> task, DeviceSet devices, std::size_t bytes,
               std::deque<DeviceTask*> Queue::*into = &Queue::tasks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work(std::uint32_t device);
  DeviceTask* Next(std::uint32_t device);
  static DeviceTask* TakeNext(Queue& queue, TimePoint now);
  void Execute(DeviceTask* task, std::uint32_t device);

  const Options options_;

  mutable Mutex mu_;
  std::vector<Queue> queues_ ABSL_GUARDED_BY(mu_);
  std::size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t tasks_queued_ ABSL_GUARDED_BY(mu_) = 0;  // Ever.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // By device; constant after construction.
  std::vector<Counter> busy_seconds_;
  std::vector<Histogram> queue_delays_;
  std::vector<std::thread> threads_;
};

// Runs `on_device(device)` on each of `devices` in queue order and waits for all of them.
// Must not be called on a device thread.
void RunOnDevices(DeviceExecutors& executors, DeviceSet devices,
                  const std::function<void(std::uint32_t device)>& on_device);

}  // namespace embla
