// The threads of a node's devices: each executes tasks in the order in which they were queued.
//
// A task for several devices enters all their queues at one moment, so any two tasks stand in the
// same order on every device that has both. Collectives between devices, the replay windows and
// replicated tables rely on that order.
//
// Requests wait for their turn before they are queued (request_turns.h): a device that has nothing
// to do takes the next one, for all of its devices, so queues hold little more than what runs.
// Requests of one origin keep their order. A control task is a border for all of them: what was
// submitted before it runs before it, and the rest behind it.
//
// A small request (by its bytes) for one device that has nothing to do runs on the thread that
// submits it, which is the device's thread for as long (Options::run_here_bytes_max): to wake
// another one would take longer.
//
// Background tasks are the exception: each device runs them, in their order, when it has nothing
// else to do, so they fall behind tasks that were queued after them, but never run before one that
// was queued earlier. They do not starve: a device that always has something else to do runs one of
// them every kBackgroundWaitMax.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/mutex.h"
#include "core/metrics/instruments.h"
#include "core/rows/device_times.h"
#include "server/table/device_set.h"
#include "server/table/queue_delay.h"
#include "server/table/request_turns.h"

namespace embla {

inline constexpr std::chrono::milliseconds kBackgroundWaitMax(20);

// Work for one or several devices.
class DeviceTask {
 public:
  virtual ~DeviceTask() = default;

  // Once on each of the task's devices, on that device's thread or in its place, so that it runs
  // one task at a time. Devices run at the same time.
  virtual void Run(std::uint32_t device) = 0;
  // Once, when every Run has returned (and sees what they did), on the thread of the last one; the
  // task is destroyed then.
  virtual void Finish() {}

  // Every device says in `times` how long the task waited for it, and how long it ran; null, as
  // most are: none does. Call it before the task is submitted.
  void MeasureInto(std::shared_ptr<DeviceTimes> times) { times_ = std::move(times); }

 private:
  friend class DeviceExecutors;
  std::atomic<std::uint32_t> devices_left_ = 0;  // Release by each device, acquire by the last.
  std::size_t bytes_ = 0;
  std::atomic<bool> has_begun_ = false;  // On some device. Relaxed: nothing else hangs on it.
  // Constant once it is submitted.
  bool is_request_ = false;
  DeviceSet devices_;
  std::uint64_t number_ = 0;  // In the order of all tasks.
  std::chrono::steady_clock::time_point submitted_at_;
  std::shared_ptr<DeviceTimes> times_;
};

// Thread safety: every method may be called from any thread, but none from inside a task's Run or
// Finish except Submit*, and the accessors.
class DeviceExecutors {
 public:
  struct Options {
    std::uint32_t devices = 1;                       // 1..kDevicesPerNodeMax
    std::size_t tasks_max_per_device = 1024;         // Requests that have not begun.
    std::size_t bytes_max = std::size_t{512} << 20;  // Bytes of all tasks that are not finished.
    std::size_t run_here_bytes_max = 0;              // Requests that SubmitOrRun may run.
    std::string node_name = {};                      // For messages.
    Metrics* metrics = nullptr;                      // Not owned; may be null.
  };
  explicit DeviceExecutors(Options options);
  // Stops.
  ~DeviceExecutors();

  // Executes what is queued, then joins the threads. Nothing is submitted afterwards.
  void Stop();

  // Takes `task`, a request of `origin`, which is queued on all of `devices` when its turn has
  // come; nothing is taken with an error. `bytes` is the memory that it holds, and what it counts
  // in turns. ResourceExhausted says which limit is reached.
  absl::Status Submit(std::unique_ptr<DeviceTask>& task, DeviceSet devices, std::size_t bytes,
                      RequestOrigin origin = RequestOrigin{});
  // The same, but the task may have run when this returns: the caller holds no lock that it takes.
  absl::Status SubmitOrRun(std::unique_ptr<DeviceTask>& task, DeviceSet devices, std::size_t bytes,
                           RequestOrigin origin);

  // Without limits and turns, behind all requests that came before: for changes of the node itself,
  // of which few are ever queued.
  void SubmitControl(std::unique_ptr<DeviceTask> task, DeviceSet devices);

  // The same, but it does not wait for requests whose turn has not come: for reads, of which
  // the caller bounds their number.
  void SubmitRead(std::unique_ptr<DeviceTask> task, DeviceSet devices);

  // Like SubmitControl, for work that can wait and needs no order with what is queued later: each
  // device runs it when it has nothing else to do (see above). It must not meet other devices in a
  // collective.
  void SubmitBackground(std::unique_ptr<DeviceTask> task, DeviceSet devices);

  // The same as SubmitControl, from inside a task's Finish. Once the executors are being destroyed
  // it queues nothing: some of the devices might have ended already.
  void SubmitFollowUp(std::unique_ptr<DeviceTask> task, DeviceSet devices);

  std::uint32_t devices() const { return options_.devices; }
  std::size_t queued_bytes() const;
  // Requests for the device that have been submitted and have not begun.
  std::size_t waiting(std::uint32_t device) const;
  // How long what was submitted lately waited for a device, in the mean of the slowest device;
  // zero: nothing was.
  absl::Duration request_delay() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Queue {
    // Owned by whichever device finishes the task.
    std::deque<DeviceTask*> tasks;
    std::deque<DeviceTask*> background;
    std::size_t requests = 0;  // Submitted, and not begun here,
    std::size_t ready = 0;     // of which so many are in `tasks`.
    bool is_idle = false;      // Its thread waits for `changed`.
    bool is_lent = false;      // To the thread that runs a request in its place.
    TimePoint background_ran;  // When the last one began.
    CondVar changed;
    DeviceMetrics metrics;
    QueueDelay delay;
  };

  // Returns the device that is lent for the task, or nothing: it waits for its turn.
  absl::StatusOr<std::optional<std::uint32_t>> Take(std::unique_ptr<DeviceTask>& task,
                                                    DeviceSet devices, std::size_t bytes,
                                                    RequestOrigin origin, bool may_run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckLimits(DeviceSet devices, std::size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the task its number. The executors own what is returned.
  DeviceTask* Number(std::unique_ptr<DeviceTask> task, DeviceSet devices, std::size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Enqueue(DeviceTask* task, std::deque<DeviceTask*> Queue::*into = &Queue::tasks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Control(std::unique_ptr<DeviceTask> task, DeviceSet devices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Queues the next request for the device, and control tasks that need not wait any more.
  void TakeTurn(std::uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake(DeviceSet devices) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether everything that was submitted before `task` has been queued.
  bool ComesNext(const DeviceTask& task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWork(const Queue& queue) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The device of a request that is to run at once, which is lent.
  std::optional<std::uint32_t> Lend(DeviceSet devices, std::size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveBack(std::uint32_t device);
  void Work(std::uint32_t device);
  void RunTask(DeviceTask* task, std::uint32_t device);
  DeviceTask* Next(std::uint32_t device);
  DeviceTask* TakeNext(Queue& queue, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Execute(DeviceTask* task, std::uint32_t device, TimePoint start);

  const Options options_;

  mutable Mutex mu_;
  std::vector<Queue> queues_ ABSL_GUARDED_BY(mu_);
  RequestTurns turns_ ABSL_GUARDED_BY(mu_);
  std::deque<DeviceTask*> borders_
      ABSL_GUARDED_BY(mu_);  // Control tasks behind requests in turns_.
  std::size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t tasks_submitted_ ABSL_GUARDED_BY(mu_) = 0;  // Ever.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // By device; constant after construction.
  std::vector<Counter> busy_seconds_;
  std::vector<Histogram> queue_delays_;
  Histogram request_wait_;
  std::vector<std::thread> threads_;
};

// Runs `on_device(device)` on each of `devices` as a control task and waits for all of them.
// Must not be called on a device thread.
void RunOnDevices(DeviceExecutors& executors, DeviceSet devices,
                  const std::function<void(std::uint32_t device)>& on_device);
// The same by SubmitRead.
void ReadOnDevices(DeviceExecutors& executors, DeviceSet devices,
                   const std::function<void(std::uint32_t device)>& on_device);

}  // namespace embla
