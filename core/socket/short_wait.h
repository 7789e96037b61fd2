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
  // Calls `wait(sleeps)` until it returns true: once it has something, and always when it sleeps.
  void Until(absl::FunctionRef<bool(bool sleeps)> wait) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    if (is_worth_it_) {
      do {
        if (wait(false)) return;
        ::sched_yield();
      } while (Clock::now() - begin < kLooksMax);
      is_worth_it_ = false;
      skips_ = kSkips;
    }
    wait(true);
    if (skips_ > 0) {
      --skips_;
    } else {
      is_worth_it_ = Clock::now() - begin < kShortSleep;
    }
  }

 private:
  static constexpr std::chrono::microseconds kLooksMax{100};
  static constexpr std::chrono::microseconds kShortSleep{150};
  static constexpr int kSkips = 32;

  bool is_worth_it_ = false;
  int skips_ = 0;  // Sleeps that say nothing.
};

}  // namespace embla
