#include "core/base/testing/await.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace embla::testing {

bool AwaitFor(const std::function<bool()>& condition, absl::Duration limit, std::string_view what,
              std::source_location where) {
  const absl::Time end = absl::Now() + limit;
  absl::Duration pause = absl::Microseconds(20);
  for (;;) {
    if (condition()) return true;
    if (absl::Now() >= end) break;
    absl::SleepFor(pause);
    pause = std::min(2 * pause, absl::Milliseconds(5));
  }
  ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
      << "waited " << absl::FormatDuration(limit) << " in vain: " << what;
  return false;
}

}  // namespace embla::testing
