// Changes of the copies of data_parallel tables, as a job lists them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/plan/plan.h"

namespace embla {

struct CopyChange {
  enum class Kind : std::uint8_t {
    kAdd = 1,     // A copy on `device`.
    kLead = 2,    // The copy on the node of `device` becomes the primary.
    kRemove = 3,  // The copy on the node of `device`, which is not the primary.
    // The node of `device` is lost with the primary: another copy leads, and the lost one is
    // removed.
    kInherit = 4,
    kAnew = 5,  // The only copy is lost: one on `device` begins at initial values.
  };

  Kind kind = Kind::kAdd;
  TableId table{};
  DeviceId device;
  std::int64_t bytes = 0;  // Bytes to be copied.
  bool operator==(const CopyChange&) const = default;
};

// Whether the table has copies that are kept equal, be there one now or several.
inline bool HasCopies(const TablePlan& table) { return TraitsOf(table.sharding).has_copies; }

// Returns the devices of the table's copies, the primary first. Requires: HasCopies(table).
std::vector<DeviceId> CopiesOf(const TablePlan& table);

// Bytes of one copy. Requires: HasCopies(table).
std::int64_t CopyBytes(const TablePlan& table);

// Whether `table` is as `change` wants it.
bool IsMade(const CopyChange& change, const TablePlan& table);

// `table` with the copy on `heir` as the primary, and without that on `lost`. Requires: `heir` has
// a copy.
TablePlan Inherited(const TablePlan& table, NodeId lost, NodeId heir);

// `table` with `change` made, which is not kInherit. FailedPrecondition: it would lose its last
// copy or its primary, or the copy that is to lead is not there.
absl::StatusOr<TablePlan> After(const CopyChange& change, const TablePlan& table);

}  // namespace embla
