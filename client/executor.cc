#include "client/executor.h"

#include <utility>

namespace embla::client {

Executor::Executor(int threads, std::size_t queued_max) : queued_max_(queued_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Executor::~Executor() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Executor::Post(std::function<void()> task) {
  {
    MutexLock lock(mu_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyOne();
}

bool Executor::IsFull() const {
  MutexLock lock(mu_);
  return tasks_.size() >= queued_max_;
}

void Executor::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      while (tasks_.empty() && !stopping_) changed_.Wait(mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace embla::client
