#include "client/transport/timer.h"

#include <algorithm>

namespace embla::client {

ThreadTimer::ThreadTimer() : thread_([this] { Run(); }) {}

ThreadTimer::~ThreadTimer() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

Timer::Id ThreadTimer::At(absl::Time when, std::function<void()> function) {
  MutexLock lock(mu_);
  const Id id = ++last_id_;
  const bool first = due_.empty() || when < due_.begin()->first.first;
  due_.emplace(std::pair(when, id), std::move(function));
  times_.emplace(id, when);
  if (first) changed_.NotifyAll();
  return id;
}

void ThreadTimer::Cancel(Id id) {
  MutexLock lock(mu_);
  if (const auto time = times_.find(id); time != times_.end()) {
    due_.erase({time->second, id});
    times_.erase(time);
    return;
  }
  if (std::this_thread::get_id() == thread_.get_id()) return;
  while (running_ == id) changed_.Wait(mu_);
}

void ThreadTimer::Run() {
  mu_.Lock();
  while (!stopping_) {
    if (due_.empty()) {
      changed_.Wait(mu_);
      continue;
    }
    const auto first = due_.begin();
    const absl::Duration wait = first->first.first - Now();
    if (wait > absl::ZeroDuration()) {
      // Bounded, because the wall clock may be set.
      changed_.WaitFor(mu_, std::min(wait, absl::Seconds(1)));
      continue;
    }
    std::function<void()> function = std::move(first->second);
    running_ = first->first.second;
    times_.erase(running_);
    due_.erase(first);
    mu_.Unlock();
    function();
    function = nullptr;
    mu_.Lock();
    running_ = 0;
    changed_.NotifyAll();
  }
  mu_.Unlock();
}

Alarm::~Alarm() {
  std::map<std::uint64_t, Timer::Id> armed;
  {
    MutexLock lock(mu_);
    armed.swap(armed_);
  }
  for (const auto& [arming, id] : armed) timer_.Cancel(id);
}

void Alarm::NoLaterThan(absl::Time when) {
  MutexLock lock(mu_);
  if (when >= next_) return;
  next_ = when;
  const std::uint64_t arming = ++last_arming_;
  armed_[arming] = timer_.At(when, [this, arming] { Fire(arming); });
}

void Alarm::Fire(std::uint64_t arming) {
  {
    MutexLock lock(mu_);
    next_ = absl::InfiniteFuture();
  }
  function_();
  // Last: from here on the destructor does not wait for this firing.
  MutexLock lock(mu_);
  armed_.erase(arming);
}

}  // namespace embla::client
