#include "server/mover/task_queue.h"

#include <utility>

namespace embla {

bool TaskQueue::Post(Task task) {
  {
    MutexLock lock(mu_);
    if (is_closed_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyOne();
  return true;
}

bool TaskQueue::RunOne() {
  Task task;
  {
    MutexLock lock(mu_);
    if (tasks_.empty()) return false;
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  task();
  return true;
}

bool TaskQueue::Wait(absl::Duration timeout) {
  MutexLock lock(mu_);
  if (tasks_.empty() && !is_closed_) changed_.WaitFor(mu_, timeout);
  return !is_closed_;
}

void TaskQueue::Close() {
  std::deque<Task> dropped;  // Destroyed without the lock: a task may own anything.
  {
    MutexLock lock(mu_);
    is_closed_ = true;
    dropped.swap(tasks_);
  }
  changed_.NotifyAll();
}

std::size_t TaskQueue::size() const {
  MutexLock lock(mu_);
  return tasks_.size();
}

}  // namespace embla
