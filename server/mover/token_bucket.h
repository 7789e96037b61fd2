// A rate in bytes per second that may be exceeded for a moment and is paid back: what is taken
// beyond the credit is waited for by the next caller.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace embla {

// Thread safety: none.
class TokenBucket {
 public:
  // Credit that is saved up while nothing is taken, as time.
  static constexpr absl::Duration kBurst = absl::Milliseconds(100);

  // 0: no limit. Debts stay.
  void SetRate(std::uint64_t bytes_per_second, absl::Time now) {
    Refill(now);
    rate_ = static_cast<double>(bytes_per_second);
  }

  // Zero: something may be taken now.
  absl::Duration Wait(absl::Time now) {
    Refill(now);
    if (rate_ == 0 || credit_ >= 0) return absl::ZeroDuration();
    return absl::Seconds(-credit_ / rate_);
  }

  // However much there is.
  void Take(std::uint64_t bytes) {
    if (rate_ != 0) credit_ -= static_cast<double>(bytes);
  }

 private:
  void Refill(absl::Time now) {
    const double seconds = std::max(absl::ToDoubleSeconds(now - filled_at_), 0.0);
    filled_at_ = now;
    if (rate_ == 0) {
      credit_ = 0;
    } else {
      credit_ = std::min(credit_ + seconds * rate_, absl::ToDoubleSeconds(kBurst) * rate_);
    }
  }

  double rate_ = 0;
  double credit_ = 0;
  absl::Time filled_at_ = absl::UnixEpoch();
};

}  // namespace embla
