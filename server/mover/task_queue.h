// A mover's work, in order: filled from any thread, emptied by one.
#pragma once

#include <cstddef>
#include <deque>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace embla {

// Callers of Post may outlive the consumer: tasks posted after Close are dropped, so a callback
// holds the queue (shared) and need not know whether the consumer still exists.
//
// Thread safety: every method may be called from any thread; RunOne and Wait by one.
class TaskQueue {
 public:
  using Task = absl::AnyInvocable<void()>;

  // False: closed, and `task` is destroyed.
  bool Post(Task task);
  // Runs the oldest task. False: there was none.
  bool RunOne();
  // Waits until there is a task or the queue is closed, for at most `timeout`. False: closed.
  bool Wait(absl::Duration timeout);
  // Drops what has not run, without running it.
  void Close();

  std::size_t size() const;

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool is_closed_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
