#include "server/mover/move_pace.h"

#include <algorithm>
#include <limits>

namespace embla {
namespace {

// How much of what is usual at rest is made of the newest look.
constexpr double kNewest = 0.2;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

}  // namespace

bool MovePace::Look(absl::Duration delay, absl::Time now) {
  if (now - looked_ < options_.look_every) return false;
  looked_ = now;
  if (delay == absl::ZeroDuration()) {
    rate_ = kNoLimit;
    return false;
  }
  if (now - taken_ >= options_.rest_after) {
    const bool is_known = at_rest_ != absl::ZeroDuration();
    at_rest_ = is_known ? at_rest_ * (1 - kNewest) + delay * kNewest : delay;
    rate_ = options_.chunks_per_second_max;
    return false;
  }
  const absl::Duration usual = std::max(at_rest_, options_.delay_min);
  if (delay > usual * options_.delay_ratio_max) {
    rate_ = std::max(std::min(rate_ / 2, options_.chunks_per_second_max),
                     options_.chunks_per_second_min);
    return true;
  }
  rate_ = std::min(rate_ * options_.speed_up, options_.chunks_per_second_max);
  return false;
}

absl::Duration MovePace::Wait(absl::Time now) const {
  if (rate_ == kNoLimit) return absl::ZeroDuration();
  return std::max(next_ - now, absl::ZeroDuration());
}

void MovePace::Take(absl::Time now) {
  taken_ = now;
  next_ = std::max(next_, now) + absl::Seconds(1 / rate_);
}

}  // namespace embla
