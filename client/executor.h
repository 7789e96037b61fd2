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

  explicit Executor(int threads);
  // Runs what is queued, then ends.
  ~Executor();

  // Runs `task` on a thread of the executor, in order of arrival; on this thread when kQueuedMax
  // tasks wait already.
  void Post(std::function<void()> task);

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // Last: they use the others.
};

}  // namespace embla::client
