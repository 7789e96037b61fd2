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

// InvalidArgument: one of these rows has a NaN or an infinity, or, with row 0, a weight or a sum of
// squares.
absl::Status CheckFinite(const UpdatePart& part, DType wire_dtype, GradientRows rows,
                         ThreadPool& pool);

}  // namespace embla
