// Rows that an update left out because their unit is on the move (docs/consistency.md).
#pragma once

#include <cstdint>

#include "core/base/ids.h"
#include "core/plan/unit_set.h"

namespace embla {

struct RefusedUnit {
  enum class Reason : std::uint8_t {
    kFrozen = 1,      // Being handed over: again in retry_after_ms.
    kMoved = 2,       // Another node has it: a plan of at least plan_version says which.
    kEpochAhead = 3,  // The node does not know yet that it has the unit: again soon.
    kSeqTooNew = 4,   // Too many updates in flight: again when some are acknowledged.
  };

  std::uint32_t part = 0;  // Index of the part in the request.
  // Rows [row_begin, row_end) of the table; of a ZCH table, the slots of a bucket.
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  Reason reason = Reason::kFrozen;
  std::uint32_t retry_after_ms = 0;
  PlanVersion plan_version{};

  bool operator==(const RefusedUnit&) const = default;
};

// Units of a contribution's claim that did not step with it.
struct RefusedClaim {
  enum class Reason : std::uint8_t {
    kFrozen = 1,  // Being handed over: again in retry_after_ms.
    kMoved = 2,   // Another node has them: a plan of at least plan_version says which.
    // The rows are on this node: send them again at once, without those of the other reasons.
    kAgain = 3,
  };

  UnitSet::Run units;
  Reason reason = Reason::kFrozen;
  std::uint32_t retry_after_ms = 0;
  PlanVersion plan_version{};

  bool operator==(const RefusedClaim&) const = default;
};

}  // namespace embla
