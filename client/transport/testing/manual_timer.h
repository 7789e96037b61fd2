// A timer that moves only when told.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <utility>

#include "client/transport/timer.h"
#include "core/base/testing/await.h"

namespace embla::client {

// Thread safety: every method may be called from any thread; functions run on the thread that
// advances.
class ManualTimer final : public Timer {
 public:
  explicit ManualTimer(absl::Time start) : now_(start) {}

  absl::Time Now() const override {
    MutexLock lock(mu_);
    return now_;
  }

  Id At(absl::Time when, std::function<void()> function) override {
    MutexLock lock(mu_);
    const Id id = ++last_id_;
    due_.emplace(std::pair(when, id), std::move(function));
    return id;
  }

  void Cancel(Id id) override {
    MutexLock lock(mu_);
    while (running_ == id) changed_.Wait(mu_);
    for (auto it = due_.begin(); it != due_.end(); ++it) {
      if (it->first.second != id) continue;
      due_.erase(it);
      return;
    }
  }

  // Jumps to the earliest function and runs it; false when there is none.
  bool RunNext() {
    std::function<void()> function;
    {
      MutexLock lock(mu_);
      if (due_.empty()) return false;
      const auto first = due_.begin();
      now_ = std::max(now_, first->first.first);
      running_ = first->first.second;
      function = std::move(first->second);
      due_.erase(first);
    }
    function();
    MutexLock lock(mu_);
    running_ = 0;
    changed_.NotifyAll();
    return true;
  }

  // The value of `future`; functions run as long as there is none.
  template <typename Value>
  Value RunUntilReady(std::future<Value>& future) {
    const auto is_ready = [&] {
      return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    testing::AwaitFor(
        [&] {
          while (!is_ready() && RunNext()) {
          }
          return is_ready();
        },
        absl::Seconds(60), "the future is ready");
    return future.get();
  }

  // Runs everything that is due until `step` from now.
  void Advance(absl::Duration step) {
    const absl::Time end = Now() + step;
    while (NextDue() <= end) RunNext();
    MutexLock lock(mu_);
    now_ = std::max(now_, end);
  }

 private:
  absl::Time NextDue() const {
    MutexLock lock(mu_);
    return due_.empty() ? absl::InfiniteFuture() : due_.begin()->first.first;
  }

  mutable Mutex mu_;
  CondVar changed_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
  Id last_id_ ABSL_GUARDED_BY(mu_) = 0;
  Id running_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::pair<absl::Time, Id>, std::function<void()>> due_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::client
