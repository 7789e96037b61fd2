#include "server/shard/work_thread.h"

#include <utility>

namespace embla {

bool WorkThread::Post(std::function<void()> work) {
  MutexLock lock(mu_);
  if (stopping_) return false;
  queue_.push_back(std::move(work));
  changed_.NotifyOne();
  return true;
}

void WorkThread::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkThread::Run() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopping_) changed_.Wait(mu_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace embla
