// A count that other threads can wait for.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace embla::testing {

// Thread safety: every method may be called from any thread.
class Progress {
 public:
  void Add() {
    const MutexLock lock(mu_);
    ++count_;
    changed_.NotifyAll();
  }
  int count() const {
    const MutexLock lock(mu_);
    return count_;
  }
  // Ends the counting: waiting threads go on.
  void End() {
    const MutexLock lock(mu_);
    ended_ = true;
    changed_.NotifyAll();
  }

  // Waits until there are `count`, at most `timeout`; whether there are.
  bool Await(int count, absl::Duration timeout) {
    const absl::Time until = absl::Now() + timeout;
    const MutexLock lock(mu_);
    while (count_ < count && !ended_ && absl::Now() < until) {
      changed_.WaitFor(mu_, until - absl::Now());
    }
    return count_ >= count;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace embla::testing
