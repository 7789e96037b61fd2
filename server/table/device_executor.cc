#include "server/table/device_executor.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/metrics/names.h"

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

void Await(WaitedTask::Latch& latch) {
  MutexLock lock(latch.mu);
  while (!latch.finished) latch.changed.Wait(latch.mu);
}

// Requests that wait on a device beside the one that runs: enough that devices need not wait for
// one another, and too few to be waited for.
constexpr std::size_t kReadyMax = 2;
// Cost of a request beside its bytes, in bytes.
constexpr double kCostOfRequest = 4096;

}  // namespace

DeviceExecutors::DeviceExecutors(Options options)
    : options_(std::move(options)),
      queues_(options_.devices),
      request_wait_(options_.metrics == nullptr ? Histogram()
                                                : options_.metrics->MakeHistogram(
                                                      MetricNamed("embla_request_wait_seconds"))) {
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

DeviceExecutors::~DeviceExecutors() { Stop(); }

void DeviceExecutors::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    for (Queue& queue : queues_) queue.changed.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

absl::Status DeviceExecutors::Submit(std::unique_ptr<DeviceTask>& task, DeviceSet devices,
                                     std::size_t bytes, RequestOrigin origin) {
  MutexLock lock(mu_);
  return Take(task, devices, bytes, origin, false).status();
}

absl::Status DeviceExecutors::SubmitOrRun(std::unique_ptr<DeviceTask>& task, DeviceSet devices,
                                          std::size_t bytes, RequestOrigin origin) {
  DeviceTask* const request = task.get();
  std::optional<std::uint32_t> lent;
  {
    MutexLock lock(mu_);
    EMBLA_ASSIGN_OR_RETURN(lent, Take(task, devices, bytes, origin, true));
  }
  if (lent.has_value()) {
    RunTask(request, *lent);
    GiveBack(*lent);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::uint32_t>> DeviceExecutors::Take(
    std::unique_ptr<DeviceTask>& task, DeviceSet devices, std::size_t bytes, RequestOrigin origin,
    bool may_run) {
  EMBLA_RETURN_IF_ERROR(CheckLimits(devices, bytes));
  task->is_request_ = true;
  DeviceTask* const request = Number(std::move(task), devices, bytes);
  std::optional<std::uint32_t> lent;
  if (may_run) lent = Lend(devices, bytes);
  if (lent.has_value()) {
    queues_[*lent].delay.Add(absl::ZeroDuration(), request->submitted_at_);
    return lent;
  }
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (devices.Has(d))
      queues_[d].metrics.queue_depth.Set(static_cast<double>(++queues_[d].requests));
  }
  turns_.Add(origin, {.task = request,
                      .devices = devices,
                      .number = request->number_,
                      .cost = kCostOfRequest + static_cast<double>(bytes)});
  Wake(devices);
  return lent;
}

std::optional<std::uint32_t> DeviceExecutors::Lend(DeviceSet devices, std::size_t bytes) {
  // A request without bytes may be any amount of work.
  if (bytes == 0 || bytes > options_.run_here_bytes_max || devices.size() != 1) return std::nullopt;
  if (stopping_ || !turns_.empty() || !borders_.empty()) return std::nullopt;
  std::uint32_t device = 0;
  while (!devices.Has(device)) ++device;
  Queue& queue = queues_[device];
  if (!queue.is_idle || queue.is_lent || !queue.tasks.empty() || !queue.background.empty()) {
    return std::nullopt;
  }
  queue.is_lent = true;
  return device;
}

void DeviceExecutors::GiveBack(std::uint32_t device) {
  MutexLock lock(mu_);
  Queue& queue = queues_[device];
  queue.is_lent = false;
  const bool has_work = !queue.tasks.empty() || !queue.background.empty() || !turns_.empty() ||
                        !borders_.empty() || stopping_;
  if (has_work) queue.changed.NotifyOne();
}

absl::Status DeviceExecutors::CheckLimits(DeviceSet devices, std::size_t bytes) const {
  if (bytes > options_.bytes_max - std::min(bytes_, options_.bytes_max)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("node ", options_.node_name, " has ", bytes_, " bytes of requests in work, ",
                     bytes, " more would exceed the limit of ", options_.bytes_max, "; slow down"));
  }
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (!devices.Has(d) || queues_[d].requests < options_.tasks_max_per_device) continue;
    return absl::ResourceExhaustedError(absl::StrCat("device ", d, " of node ", options_.node_name,
                                                     " has ", queues_[d].requests,
                                                     " requests queued, the limit; slow down"));
  }
  return absl::OkStatus();
}

void DeviceExecutors::SubmitControl(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  MutexLock lock(mu_);
  Control(std::move(task), devices);
}

void DeviceExecutors::SubmitRead(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  MutexLock lock(mu_);
  Enqueue(Number(std::move(task), devices, 0));
}

void DeviceExecutors::SubmitBackground(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  MutexLock lock(mu_);
  Enqueue(Number(std::move(task), devices, 0), &Queue::background);
}

void DeviceExecutors::SubmitFollowUp(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  MutexLock lock(mu_);
  if (!stopping_) Control(std::move(task), devices);
}

std::size_t DeviceExecutors::queued_bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

std::size_t DeviceExecutors::waiting(std::uint32_t device) const {
  MutexLock lock(mu_);
  return queues_[device].requests;
}

absl::Duration DeviceExecutors::request_delay() const {
  const TimePoint now = std::chrono::steady_clock::now();
  absl::Duration longest = absl::ZeroDuration();
  MutexLock lock(mu_);
  for (const Queue& queue : queues_) longest = std::max(longest, queue.delay.Mean(now));
  return longest;
}

DeviceTask* DeviceExecutors::Number(std::unique_ptr<DeviceTask> task, DeviceSet devices,
                                    std::size_t bytes) {
  EMBLA_CHECK(!devices.empty() &&
              (devices | DeviceSet::First(options_.devices)).size() == options_.devices);
  task->devices_left_.store(devices.size(), std::memory_order_relaxed);  // The lock publishes it.
  task->devices_ = devices;
  task->bytes_ = bytes;
  task->number_ = ++tasks_submitted_;
  task->submitted_at_ = std::chrono::steady_clock::now();
  bytes_ += bytes;
  return task.release();
}

void DeviceExecutors::Enqueue(DeviceTask* task, std::deque<DeviceTask*> Queue::*into) {
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (!task->devices_.Has(d)) continue;
    (queues_[d].*into).push_back(task);
    if (task->is_request_) ++queues_[d].ready;
  }
  Wake(task->devices_);
}

void DeviceExecutors::Control(std::unique_ptr<DeviceTask> task, DeviceSet devices) {
  DeviceTask* const control = Number(std::move(task), devices, 0);
  if (turns_.empty() && borders_.empty()) {
    Enqueue(control);
  } else {
    borders_.push_back(control);
  }
}

void DeviceExecutors::Wake(DeviceSet devices) {
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (devices.Has(d) && queues_[d].is_idle) queues_[d].changed.NotifyOne();
  }
}

void DeviceExecutors::TakeTurn(std::uint32_t device) {
  DeviceSet full;
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (queues_[d].ready >= kReadyMax) full |= DeviceSet::Of(d);
  }
  const std::uint64_t before = borders_.empty() ? UINT64_MAX : borders_.front()->number_;
  const auto request = turns_.Take(device, before, full);
  if (!request.has_value()) return;
  Enqueue(request->task);
  while (!borders_.empty() && ComesNext(*borders_.front())) {
    DeviceTask* const control = borders_.front();
    borders_.pop_front();
    Enqueue(control);
  }
  // A device with work behind this request, or one that waits for the end, has to look.
  for (std::uint32_t d = 0; d < options_.devices; ++d) {
    if (stopping_ || !queues_[d].background.empty()) Wake(DeviceSet::Of(d));
  }
  // The requests that come first now may be others' to take.
  if (!turns_.empty()) Wake(DeviceSet::First(options_.devices));
}

bool DeviceExecutors::ComesNext(const DeviceTask& task) const {
  if (!turns_.empty() && turns_.first_number() < task.number_) return false;
  return borders_.empty() || borders_.front()->number_ >= task.number_;
}

bool DeviceExecutors::HasWork(const Queue& queue) const {
  return !queue.tasks.empty() ||
         (!queue.background.empty() && ComesNext(*queue.background.front()));
}

void DeviceExecutors::Work(std::uint32_t device) {
  while (DeviceTask* const task = Next(device)) RunTask(task, device);
}

void DeviceExecutors::RunTask(DeviceTask* task, std::uint32_t device) {
  const auto start = std::chrono::steady_clock::now();
  if (task->is_request_) {
    const absl::Duration waited = absl::FromChrono(start - task->submitted_at_);
    queue_delays_[device].Observe(waited);
    if (!task->has_begun_.exchange(true, std::memory_order_relaxed)) request_wait_.Observe(waited);
  }
  Execute(task, device, start);
  const std::chrono::duration<double> busy = std::chrono::steady_clock::now() - start;
  busy_seconds_[device].Add(busy.count());
}

DeviceTask* DeviceExecutors::Next(std::uint32_t device) {
  MutexLock lock(mu_);
  Queue& queue = queues_[device];
  while (true) {
    if (!queue.is_lent) {
      if (queue.ready == 0) TakeTurn(device);
      if (HasWork(queue)) break;
      const bool is_all = queue.background.empty() && turns_.empty() && borders_.empty();
      if (stopping_ && is_all) return nullptr;
    }
    queue.is_idle = true;
    queue.changed.Wait(mu_);
    queue.is_idle = false;
  }
  const TimePoint now = std::chrono::steady_clock::now();
  const bool was_full = queue.ready >= kReadyMax;
  DeviceTask* const task = TakeNext(queue, now);
  if (task->is_request_) {
    --queue.ready;
    queue.metrics.queue_depth.Set(static_cast<double>(--queue.requests));
    queue.delay.Add(absl::FromChrono(now - task->submitted_at_), now);
  }
  // There is room here again: others may take a request that needs this device, too.
  if (was_full && !turns_.empty()) Wake(DeviceSet::First(options_.devices));
  return task;
}

DeviceTask* DeviceExecutors::TakeNext(Queue& queue, TimePoint now) {
  bool is_background = queue.tasks.empty();
  if (!is_background && !queue.background.empty()) {
    const DeviceTask& waiting = *queue.background.front();
    is_background =
        now - std::max(waiting.submitted_at_, queue.background_ran) >= kBackgroundWaitMax &&
        ComesNext(waiting) && std::ranges::all_of(queue.tasks, [&](const DeviceTask* task) {
          return waiting.number_ < task->number_;
        });
  }
  if (is_background) queue.background_ran = now;
  std::deque<DeviceTask*>& tasks = is_background ? queue.background : queue.tasks;
  DeviceTask* const task = tasks.front();
  tasks.pop_front();
  return task;
}

void DeviceExecutors::Execute(DeviceTask* task, std::uint32_t device, TimePoint start) {
  task->Run(device);
  if (task->times_ != nullptr) {
    task->times_->Add({.device = device,
                       .waited = absl::FromChrono(start - task->submitted_at_),
                       .worked = absl::FromChrono(std::chrono::steady_clock::now() - start)});
  }
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
  Await(latch);
}

void ReadOnDevices(DeviceExecutors& executors, DeviceSet devices,
                   const std::function<void(std::uint32_t device)>& on_device) {
  WaitedTask::Latch latch;
  executors.SubmitRead(std::make_unique<WaitedTask>(on_device, latch), devices);
  Await(latch);
}

}  // namespace embla
