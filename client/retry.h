// When a failed request is sent again, and when the caller gets the error.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"

namespace embla::client {

// A token bucket: every request adds a part of a token, time adds some, a retry takes one. So a
// cluster that fails is not also flooded: where many requests fail at once, their retries queue for
// the tokens that time brings.
//
// Thread safety: every method may be called from any thread.
class RetryBudget {
 public:
  // Holds at most a second's tokens, but at least 10. Starts full.
  RetryBudget(double per_request, double per_second, absl::Time now);

  void AddRequest();
  // Takes the next token that nobody has taken, and returns in how long it is there. Nothing, and
  // none is taken, if that is `within` or more.
  std::optional<absl::Duration> Take(absl::Time now, absl::Duration within);

 private:
  const double per_request_;
  const double per_second_;
  const double tokens_max_;

  Mutex mu_;
  double tokens_ ABSL_GUARDED_BY(mu_);  // Below 0: of so many the time has not come.
  absl::Time filled_ ABSL_GUARDED_BY(mu_);
};

// The reaction to a node's error.
enum class Remedy : std::uint8_t {
  kGiveUp,       // The error is the answer.
  kRefreshPlan,  // The node has another plan than the sender.
  kRetry,        // Soon, with the same seq.
  kSlowDown,     // Later.
};
Remedy RemedyFor(const absl::Status& status);

// Waits between attempts: doubling (for a newer plan only after the first few), jittered by up to a
// half so that clients spread out.
//
// Thread safety: every method may be called from any thread.
class Backoff {
 public:
  explicit Backoff(std::uint64_t seed) : random_(seed) {}

  // Before attempt `attempt` + 1; attempts count from 1. At least `hint`, which the node has asked
  // for, and up to a quarter more, so that clients who were told the same spread out.
  absl::Duration Next(Remedy remedy, int attempt, absl::Duration hint = absl::ZeroDuration());

 private:
  Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::client
