// Evicted rows on their way to Python. The client's threads put rows in and wait where it is full,
// so they never need the GIL; Python takes them out.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "embla/client.h"

namespace embla::python {

// client::EvictedRow with its own memory.
struct OwnedEviction {
  std::int64_t id = 0;
  std::string reason;
  std::uint64_t step = 0;
  std::uint64_t last_step = 0;
  std::vector<float> weights;
  std::vector<float> state;
  std::uint64_t missed = 0;
};

// Thread safety: every method may be called from any thread.
class EvictionQueue {
 public:
  explicit EvictionQueue(std::size_t rows_max) : rows_max_(rows_max) {}

  // Waits while there are rows_max rows. Cancelled: nobody reads any more.
  absl::Status Put(const client::EvictedRow& row);
  // There will be no more rows, for this reason.
  void End(absl::Status status);
  // Nobody reads any more.
  void Stop();

  // Whether Take returns at once; waits for that, at most so long.
  bool WaitFor(absl::Duration timeout) const;
  // The next row; none at the end, or its error. Requires that WaitFor returned true, and one
  // reader.
  absl::StatusOr<std::optional<OwnedEviction>> Take();

 private:
  const std::size_t rows_max_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  std::deque<OwnedEviction> rows_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::python
