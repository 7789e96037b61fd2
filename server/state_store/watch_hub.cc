#include "server/state_store/watch_hub.h"

#include <deque>
#include <utility>

#include "absl/time/clock.h"
#include "core/base/clock.h"

namespace embla {

class WatchHub::Queue {
 public:
  Queue(std::string_view prefix, std::size_t events_max)
      : prefix_(prefix), events_max_(events_max) {}

  void Push(const std::vector<StateEvent>& events) {
    const MutexLock lock(mu_);
    for (const StateEvent& event : events) {
      if (!std::string_view(event.key).starts_with(prefix_)) continue;
      if (events_.size() == events_max_) {
        events_.pop_front();
        lost_ = true;
      }
      events_.push_back(event);
    }
    if (!events_.empty()) changed_.NotifyAll();
  }

  StateWatch::Batch Take(absl::Duration timeout) {
    const absl::Time deadline = Clock::Real().Now() + timeout;
    const MutexLock lock(mu_);
    while (events_.empty()) {
      const absl::Duration left = deadline - Clock::Real().Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(mu_, left);
    }
    StateWatch::Batch batch;
    batch.events.assign(std::make_move_iterator(events_.begin()),
                        std::make_move_iterator(events_.end()));
    batch.lost = std::exchange(lost_, false);
    events_.clear();
    return batch;
  }

 private:
  const std::string prefix_;
  const std::size_t events_max_;
  Mutex mu_;
  CondVar changed_;
  std::deque<StateEvent> events_ ABSL_GUARDED_BY(mu_);
  bool lost_ ABSL_GUARDED_BY(mu_) = false;
};

class WatchHub::Subscription final : public StateWatch {
 public:
  explicit Subscription(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  Batch Take(absl::Duration timeout) override { return queue_->Take(timeout); }

 private:
  const std::shared_ptr<Queue> queue_;
};

std::unique_ptr<StateWatch> WatchHub::Watch(std::string_view prefix) {
  auto queue = std::make_shared<Queue>(prefix, queued_events_max_);
  const MutexLock lock(mu_);
  std::erase_if(queues_, [](const std::weak_ptr<Queue>& old) { return old.expired(); });
  queues_.push_back(queue);
  return std::make_unique<Subscription>(std::move(queue));
}

void WatchHub::Publish(const std::vector<StateEvent>& events) {
  if (events.empty()) return;
  const MutexLock lock(mu_);
  for (const std::weak_ptr<Queue>& weak : queues_) {
    if (const std::shared_ptr<Queue> queue = weak.lock()) queue->Push(events);
  }
}

}  // namespace embla
