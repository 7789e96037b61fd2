// Hands the events of commits to the watches of one store.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "server/state_store/state_store.h"

namespace embla {

// Thread safety: every method may be called from any thread. Calls nobody, waits for nobody.
// Lock order: mu_, then a queue's.
class WatchHub {
 public:
  // Events a watch holds before it loses the oldest.
  explicit WatchHub(std::size_t queued_events_max = 4096) : queued_events_max_(queued_events_max) {}

  std::unique_ptr<StateWatch> Watch(std::string_view prefix);
  void Publish(const std::vector<StateEvent>& events);

 private:
  class Queue;
  class Subscription;

  const std::size_t queued_events_max_;
  Mutex mu_;
  std::vector<std::weak_ptr<Queue>> queues_ ABSL_GUARDED_BY(mu_);  // Expired: unsubscribed.
};

}  // namespace embla
