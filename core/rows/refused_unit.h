// Rows that a node left out of an update, or could not read, because their units are on the move
// (docs/consistency.md).
#pragma once

#include <cstdint>

#include "core/base/ids.h"
#include "core/plan/unit_set.h"

namespace embla {

// One unit, or several with neighbouring rows that are refused for the same.
struct RefusedUnit {
  enum class Reason : std::uint8_t {
    kFrozen = 1,      // Being handed over: again in retry_after_ms.
    kMoved = 2,       // Another node has it: `owner`, or who a plan of plan_version names.
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
  // Columns of the unit, which may be a part of the request's.
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  // kMoved: the node that has the unit, as far as the refusing node knows, and how often the unit
  // had changed nodes by then. 0: not known.
  NodeId owner{};
  std::uint64_t epoch = 0;

  bool operator==(const RefusedUnit&) const = default;
};

// Units of a contribution's claim that did not step with it.
struct RefusedClaim {
  enum class Reason : std::uint8_t {
    kFrozen = 1,  // Being handed over: again in retry_after_ms.
    kMoved = 2,   // Another node has them: `owner`, or who a plan of plan_version names.
    // The rows are on this node: send them again at once, without those of the other reasons.
    kAgain = 3,
  };

  UnitSet::Run units = {};
  Reason reason = Reason::kFrozen;
  std::uint32_t retry_after_ms = 0;
  PlanVersion plan_version{};
  NodeId owner{};  // This and `epoch`: see RefusedUnit.
  std::uint64_t epoch = 0;

  bool operator==(const RefusedClaim&) const = default;
};

}  // namespace embla
