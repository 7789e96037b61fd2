// Whether the numbers of an update are finite.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "core/rows/request.h"
#include "server/storage/thread_pool.h"

namespace embla {

// Gradient rows [begin, end) of a part.
struct GradientRows {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// InvalidArgument: one of these rows of a part of `batch` has a NaN or an infinity, or, with row 0,
// a weight or a sum of squares.
absl::Status CheckFinite(const UpdateBatch& batch, const UpdatePart& part, GradientRows rows,
                         ThreadPool& pool);

// Looks at numbers while they come, and are in the processor's caches for that.
class ArrivingNumbers {
 public:
  // `bytes` bytes of numbers come to `place`.
  ArrivingNumbers(const std::byte* place, std::size_t bytes, DType dtype)
      : place_(place), bytes_(bytes), dtype_(dtype) {}

  // The first `filled` bytes are there.
  void Filled(std::size_t filled);
  // All are there, and finite. False also where that depends on more than the numbers: on the rows
  // of kInt8Rowwise.
  bool are_finite() const { return checked_ == bytes_; }

 private:
  const std::byte* place_;
  std::size_t bytes_;
  DType dtype_;
  std::size_t checked_ = 0;  // Bytes that have been looked at, and are finite numbers.
  bool is_finite_ = true;    // Nothing else was found.
};

}  // namespace embla
