// Checks of a batch's part that need no table: sizes that do not fit together. Requests have been
// decoded by then, but a shard does not rely on its callers for memory safety. O(bags), not O(ids).
#pragma once

#include "absl/status/status.h"
#include "core/rows/request.h"

namespace embla {

// InvalidArgument names the field and the numbers.
absl::Status CheckPart(const LookupPart& part);
absl::Status CheckPart(const UpdatePart& part, DType wire_dtype);

// Session, seq and first_incomplete.
absl::Status CheckUpdateId(const UpdateBatch& batch);

}  // namespace embla
