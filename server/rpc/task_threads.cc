#include "server/rpc/task_threads.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace embla {

TaskThreads::TaskThreads(std::uint32_t threads, std::size_t queued_max) : queued_max_(queued_max) {
  for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

TaskThreads::~TaskThreads() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status TaskThreads::Post(std::function<void()> task) {
  {
    MutexLock lock(mu_);
    if (queue_.size() >= queued_max_) {
      return absl::ResourceExhaustedError(
          absl::StrCat(queue_.size(), " calls wait for ", threads_.size(), " threads: try later"));
    }
    queue_.push_back(std::move(task));
  }
  changed_.NotifyOne();
  return absl::OkStatus();
}

bool TaskThreads::HasWaiting() const {
  MutexLock lock(mu_);
  return !queue_.empty();
}

void TaskThreads::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopping_) changed_.Wait(mu_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace embla
