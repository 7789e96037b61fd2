// One thread for work that may take long and must not hold up devices: making stores.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: every method may be called from any thread, Stop once.
class WorkThread {
 public:
  WorkThread() : thread_([this] { Run(); }) {}
  ~WorkThread() { Stop(); }

  // Runs `work` behind what was posted before; false: stopped. The queue has no limit of its own:
  // callers post a bounded number of things.
  bool Post(std::function<void()> work);
  // Runs what was posted, and ends.
  void Stop();

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace embla
