// Whether to look again and again for a while before a thread sleeps: to be woken takes tens of
// microseconds where a processor has to be woken as well, as in virtual machines, which is longer
// than a small request takes.
//
// A thread looks only if its last sleep was short, others run in between, and after a time in vain
// it does not for some sleeps: so waits that are long cost next to nothing.
#pragma once

#include <sched.h>

#include <chrono>

#include "absl/functional/function_ref.h"

namespace embla {

// Thread safety: one thread's.
class ShortWait {
 public:
  // Looks for at most so long; a sleep is short if it is not longer than half as much again.
  explicit ShortWait(std::chrono::microseconds looks_max = std::chrono::microseconds(100))
      : looks_max_(looks_max) {}

  // Calls `wait(sleeps)` until it returns true: once it has something, and always when it sleeps.
  void Until(absl::FunctionRef<bool(bool sleeps)> wait) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    if (is_worth_it_) {
      do {
        if (wait(false)) return;
        ::sched_yield();
      } while (Clock::now() - begin < looks_max_);
      is_worth_it_ = false;
      skips_ = kSkips;
    }
    wait(true);
    if (skips_ > 0) {
      --skips_;
    } else {
      is_worth_it_ = Clock::now() - begin < looks_max_ * 3 / 2;
    }
  }

 private:
  static constexpr int kSkips = 32;

  const std::chrono::microseconds looks_max_;
  bool is_worth_it_ = false;
  int skips_ = 0;  // Sleeps that say nothing.
};

}  // namespace embla
