// Work for one device, done while others stand still: all of them meet in it, so it has one place
// in the order of each.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "core/base/mutex.h"
#include "server/table/device_executor.h"

namespace embla {

class MeetingTask final : public DeviceTask {
 public:
  // `work` runs on the lowest of `devices`, which are those that the task is queued on.
  MeetingTask(DeviceSet devices, std::function<void()> work)
      : devices_(devices), work_(std::move(work)) {}

  void Run(std::uint32_t device) override { device == devices_.lowest() ? Lead() : Follow(); }

 private:
  void Lead() {
    {
      MutexLock lock(mu_);
      while (arrived_ + 1 < devices_.size()) changed_.Wait(mu_);
    }
    work_();
    MutexLock lock(mu_);
    is_done_ = true;
    changed_.NotifyAll();
  }
  void Follow() {
    MutexLock lock(mu_);
    ++arrived_;
    changed_.NotifyAll();
    while (!is_done_) changed_.Wait(mu_);
  }

  const DeviceSet devices_;
  const std::function<void()> work_;

  Mutex mu_;
  CondVar changed_;
  // Devices that wait; the one that works is not counted.
  std::uint32_t arrived_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace embla
