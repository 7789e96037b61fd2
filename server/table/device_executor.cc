#include "server/table/device_executor.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace embla {
namespace {

// Runs a function and tells the waiting thread.
class WaitedTask final : public DeviceTask {
 public:
  struct Latch {
    Mutex mu;
    CondVar changed;
    bool finished ABSL_GUARDED_BY(mu) = false;
  };

  WaitedTask(const std::function<void(std::uint32_t)>& on_device, Latch& latch)
      : on_device_(on_device), latch_(latch) {}

  void Run(std::uint32_t device) override { on_device_(device); }
  void Finish() override {
    MutexLock lock(latch_.mu);
    latch_.finished = true;
    latch_.changed.NotifyAll();
  }

 private:
  const std::function<void(std::uint32_t)>& on_device_;
  Latch& latch_;
};

}  // namespace

DeviceExecutors::DeviceExecutors(Options options)
    : options_(std::move(options)), queues_(options_.devices) {
  EMBLA_CHECK(options_.devices >= 1 && options_.devices <= kDevicesPerNodeMax);
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    const DeviceMetrics metrics(options_.metrics, d);
    busy_seconds_.push_back(metrics.busy_seconds);
    queue_delays_.push_back(metrics.queue_delay);
    MutexLock lock(mu_);
    queues_[d].metrics = metrics;
  }
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    threads_.emplace_back([this, d] { Work(d); });
  }
}

DeviceExecutors::~DeviceExecutors() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    for (Queue& queue : queues_) queue.changed.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status DeviceExecutors::Submit(std::unique_ptr<DeviceTask>& task, DeviceSet devices,
                                     std::size_t bytes) {
  MutexLock lock(mu_);
  if (bytes > options_.bytes_max - std::min(bytes_, options_.bytes_max)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("node ", options_.node_name, " has ", bytes_, " bytes of requests in work, ",
                     bytes, " more would exceed the limit of ", options_.bytes_max, "; slow down"));
  }
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (!devices.Has(d) || queues_[d].tasks.size() < options_.tasks_max_per_device) continue;
    return absl::ResourceExhaustedError(absl::StrCat("device ", d, " of node ", options_.node_name,
                                                     " has ", queues_[d].tasks.size(),
                                                     " requests queued, the limit; slow down"));
  }
  task->is_request_ = true;
  Enqueue(std::move(task), devices, bytes);
  return absl::OkStatus();
}

void DeviceExecutors::SubmitControl(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  MutexLock lock(mu_);
  Enqueue(std::move(task), devices, 0);
}

void DeviceExecutors::SubmitBackground(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  MutexLock lock(mu_);
  Enqueue(std::move(task), devices, 0, &Queue::background);
}

void DeviceExecutors::SubmitFollowUp(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  MutexLock lock(mu_);
  if (!stopping_) Enqueue(std::move(task), devices, 0);
}

std::size_t DeviceExecutors::queued_bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

absl::Duration DeviceExecutors::request_delay() const {
  const TimePoint now = std::chrono::steady_clock::now();
  absl::Duration longest = absl::ZeroDuration();
  MutexLock lock(mu_);
  for (const Queue& queue : queues_) longest = std::max(longest, queue.delay.Mean(now));
  return longest;
}

void DeviceExecutors::Enqueue(std::unique_ptr<DeviceTask> task, DeviceSet devices,
                              std::size_t bytes, std::deque<DeviceTask*> Queue::*into) {
  EMBLA_CHECK(!devices.empty() &&
              (devices | DeviceSet::First(options_.devices)).size() == options_.devices);
  task->devices_left_.store(devices.size(), std::memory_order_relaxed);  // The lock publishes it.
  task->bytes_ = bytes;
  task->number_ = ++tasks_queued_;
  task->queued_at_ = std::chrono::steady_clock::now();
  bytes_ += bytes;
  DeviceTask* const queued = task.release();
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (!devices.Has(d)) continue;
    (queues_[d].*into).push_back(queued);
    queues_[d].metrics.queue_depth.Set(static_cast<double>(queues_[d].tasks.size()));
    queues_[d].changed.NotifyOne();
  }
}

void DeviceExecutors::Work(std::uint32_t device) {
  while (DeviceTask* const task = Next(device)) {
    const auto start = std::chrono::steady_clock::now();
    if (task->is_request_) {
      queue_delays_[device].Observe(absl::FromChrono(start - task->queued_at_));
    }
    Execute(task, device);
    const std::chrono::duration<double> busy = std::chrono::steady_clock::now() - start;
    busy_seconds_[device].Add(busy.count());
  }
}

DeviceTask* DeviceExecutors::Next(std::uint32_t device) {
  MutexLock lock(mu_);
  Queue& queue = queues_[device];
  while (queue.tasks.empty() && queue.background.empty()) {
    if (stopping_) return nullptr;
    queue.changed.Wait(mu_);
  }
  const TimePoint now = std::chrono::steady_clock::now();
  DeviceTask* const task = TakeNext(queue, now);
  queue.metrics.queue_depth.Set(static_cast<double>(queue.tasks.size()));
  if (task->is_request_) queue.delay.Add(absl::FromChrono(now - task->queued_at_), now);
  return task;
}

DeviceTask* DeviceExecutors::TakeNext(Queue& queue, TimePoint now) {
  bool is_background = queue.tasks.empty();
  if (!is_background && !queue.background.empty()) {
    const DeviceTask& waiting = *queue.background.front();
    is_background = waiting.number_ < queue.tasks.front()->number_ &&
                    now - std::max(waiting.queued_at_, queue.background_ran) >= kBackgroundWaitMax;
  }
  if (is_background) queue.background_ran = now;
  std::deque<DeviceTask*>& tasks = is_background ? queue.background : queue.tasks;
  DeviceTask* const task = tasks.front();
  tasks.pop_front();
  return task;
}

void DeviceExecutors::Execute(DeviceTask* task, std::uint32_t device) {
  task->Run(device);
  if (task->devices_left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::unique_ptr<DeviceTask> last(task);
  {
    MutexLock lock(mu_);
    bytes_ -= last->bytes_;
  }
  last->Finish();
}

void RunOnDevices(DeviceExecutors& executors, DeviceSet devices,
                  const std::function<void(std::uint32_t device)>& on_device) {
  WaitedTask::Latch latch;
  executors.SubmitControl(std::make_unique<WaitedTask>(on_device, latch), devices);
  MutexLock lock(latch.mu);
  while (!latch.finished) latch.changed.Wait(latch.mu);
}

}  // namespace embla
