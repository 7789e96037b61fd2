// Joins an answer and the record that it waits for, in either order.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "core/base/mutex.h"

namespace embla {

// Thread safety: each method may be called once, from any thread.
class LogTicket {
 public:
  using Then = std::function<void(const absl::Status&)>;

  // The record has reached its level, or never will.
  void Reached(const absl::Status& status) {
    Then then;
    {
      const MutexLock lock(mu_);
      reached_ = status;
      then = std::exchange(then_, nullptr);
    }
    if (then) then(status);
  }

  // Calls `then` once the record has reached its level, perhaps within the call.
  void WhenReached(Then then) {
    absl::Status status;
    {
      const MutexLock lock(mu_);
      if (!reached_.has_value()) {
        then_ = std::move(then);
        return;
      }
      status = *reached_;
    }
    then(status);
  }

 private:
  Mutex mu_;
  std::optional<absl::Status> reached_ ABSL_GUARDED_BY(mu_);
  Then then_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
