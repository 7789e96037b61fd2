// When a refused request may come again, as who refused it says: a payload of its status.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace embla {

// A hint is a whole number of milliseconds, rounded up, from 1 to a day. Not for OK.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);
// Zero: nothing is said.
absl::Duration RetryAfterOf(const absl::Status& status);

}  // namespace embla
