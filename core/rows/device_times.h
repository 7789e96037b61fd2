// How long the devices of a node have had a request, for those that are traced.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class DeviceTimes {
 public:
  struct Time {
    std::uint32_t device = 0;
    absl::Duration waited;  // From the request's arrival in the queues to its begin on the device.
    absl::Duration worked;
  };

  void Add(const Time& time) {
    MutexLock lock(mu_);
    times_.push_back(time);
  }
  // In the order in which the devices ended.
  std::vector<Time> times() const {
    MutexLock lock(mu_);
    return times_;
  }

 private:
  mutable Mutex mu_;
  std::vector<Time> times_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
