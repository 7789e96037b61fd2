#include "client/retry.h"

#include <algorithm>

namespace embla::client {
namespace {

constexpr absl::Duration kRetryFirst = absl::Milliseconds(10);
// A unit that has just been given to another node is served there within milliseconds, most often.
constexpr absl::Duration kRefreshFirst = absl::Milliseconds(1);
constexpr int kRefreshesAtFirst = 5;  // After these the wait begins to double.
constexpr absl::Duration kSlowDownFirst = absl::Milliseconds(100);
constexpr absl::Duration kBackoffMax = absl::Seconds(1);

}  // namespace

RetryBudget::RetryBudget(double per_request, double per_second, absl::Time now)
    : per_request_(per_request),
      per_second_(per_second),
      tokens_max_(std::max(per_second, 10.0)),
      tokens_(tokens_max_),
      filled_(now) {}

void RetryBudget::AddRequest() {
  MutexLock lock(mu_);
  tokens_ = std::min(tokens_ + per_request_, tokens_max_);
}

std::optional<absl::Duration> RetryBudget::Take(absl::Time now, absl::Duration within) {
  MutexLock lock(mu_);
  const double seconds = std::max(absl::ToDoubleSeconds(now - filled_), 0.0);
  tokens_ = std::min(tokens_ + seconds * per_second_, tokens_max_);
  filled_ = now;
  absl::Duration wait = absl::ZeroDuration();
  if (tokens_ < 1) {
    wait = per_second_ > 0 ? absl::Seconds((1 - tokens_) / per_second_) : absl::InfiniteDuration();
    if (wait >= within) return std::nullopt;
  }
  tokens_ -= 1;
  return wait;
}

Remedy RemedyFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    // The plan has the table, or the request would not have been sent.
    case absl::StatusCode::kNotFound:
      return Remedy::kRefreshPlan;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInternal:
      return Remedy::kRetry;
    case absl::StatusCode::kResourceExhausted:
      return Remedy::kSlowDown;
    default:
      return Remedy::kGiveUp;
  }
}

absl::Duration Backoff::Next(Remedy remedy, int attempt, absl::Duration hint) {
  const absl::Duration first = remedy == Remedy::kSlowDown      ? kSlowDownFirst
                               : remedy == Remedy::kRefreshPlan ? kRefreshFirst
                                                                : kRetryFirst;
  const int patient = remedy == Remedy::kRefreshPlan ? kRefreshesAtFirst : 1;
  const int doublings = std::clamp(attempt - patient, 0, 10);
  const absl::Duration full = std::min(first * (1 << doublings), kBackoffMax);
  MutexLock lock(mu_);
  const double jitter = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  return std::max(full * jitter, hint * (0.75 + jitter / 2));
}

}  // namespace embla::client
