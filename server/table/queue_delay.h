// How long requests waited lately: a mean in which a sample counts half as much after each
// kHalfLife. After kLately without a request there is no mean: the device has none to serve.
#pragma once

#include <chrono>
#include <cmath>

#include "absl/time/time.h"

namespace embla {

// Thread safety: none.
class QueueDelay {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kHalfLife{20};
  static constexpr std::chrono::milliseconds kLately{200};

  void Add(absl::Duration delay, TimePoint now) {
    const double left = Left(now);
    weight_ = weight_ * left + 1;
    sum_ = sum_ * left + delay;
    at_ = now;
  }

  // Zero: there was none lately.
  absl::Duration Mean(TimePoint now) const {
    if (weight_ == 0 || now - at_ > kLately) return absl::ZeroDuration();
    return sum_ / weight_;
  }

 private:
  double Left(TimePoint now) const {
    const std::chrono::duration<double> passed = now - at_;
    return std::exp2(-passed / std::chrono::duration<double>(kHalfLife));
  }

  double weight_ = 0;  // Weight of the samples, as of at_.
  absl::Duration sum_;
  TimePoint at_;
};

}  // namespace embla
