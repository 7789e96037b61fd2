// A few threads that run blocking tasks from one bounded queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every public method may be called from any thread, the destructor excepted.
class TaskThreads {
 public:
  TaskThreads(std::uint32_t threads, std::size_t queued_max);
  // Runs every task that was accepted.
  ~TaskThreads();

  // Errors: ResourceExhausted (the queue is full).
  absl::Status Post(std::function<void()> task);
  // Whether a task waits for a thread.
  bool HasWaiting() const;

 private:
  void Run();

  const std::size_t queued_max_;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace embla
