// The client's own threads: they merge replies, send again, and run the callers' callbacks.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/base/mutex.h"

namespace embla::client {

// Thread safety: every method may be called from any thread.
class Executor {
 public:
  static constexpr std::size_t kQueuedMax = 65536;

  explicit Executor(int threads, std::size_t queued_max = kQueuedMax);
  // Runs what is queued, then ends.
  ~Executor();

  // Runs `task` on a thread of the executor, in order of arrival; never inside this call, whose
  // caller may hold locks that the task needs.
  void Post(std::function<void()> task);
  // Whether so many tasks wait that no new call should begin. Calls that have begun post one task
  // each at a time, so the queue grows no further without new ones.
  bool IsFull() const;

 private:
  void Run();

  const std::size_t queued_max_;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // Last: they use the others.
};

}  // namespace embla::client
