// Source of the time: code takes a Clock, so that tests control it.
#pragma once

#include "absl/time/time.h"

namespace embla {

// Thread safety: Now may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;

  // The wall time when the process first asks, and from then on the time that has really passed: a
  // machine's clock that is set makes nobody wait, or give up. What is to agree with other
  // machines, or with people, takes absl::Now(). Lives for ever.
  static const Clock& Real();
};

// A clock that moves only when told.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(absl::Time start) : now_(start) {}
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration step) { now_ += step; }

 private:
  absl::Time now_;
};

}  // namespace embla
