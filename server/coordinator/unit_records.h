// The records of units (server/migration/unit_record.h) in the state store:
//   units/TABLE/ROW/COLUMN  {"owner", "epoch", "committed", "move", "phase", "source", "target"}
// TABLE is the table's id, ROW the row granule (or ZCH bucket), COLUMN the first column granule of
// the unit's cut, 10 decimal digits each. A unit that never moved has none: the plan says who owns
// it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/plan.h"
#include "server/migration/unit_record.h"
#include "server/state_store/state_store.h"

namespace embla {

// A record and the revision that wrote it; kAbsent: the unit never moved.
struct StoredUnit {
  UnitRecord record;
  Revision revision{};
};

std::string KeyOf(const UnitId& unit);
// Prefix of the keys of `table`'s units.
std::string UnitPrefix(TableId table);

std::string UnitRecordToJson(const UnitRecord& record);
absl::StatusOr<UnitRecord> UnitRecordFromJson(std::string_view json);

// Reads the unit's record, or makes it from the plan if the store has none. NotFound: no unit of
// the plan. DataLoss: unreadable.
absl::StatusOr<StoredUnit> ReadUnit(const StateStore& store, const Plan& plan, const UnitId& unit);

// All records of units of `table`. DataLoss.
absl::StatusOr<std::vector<std::pair<UnitId, UnitRecord>>> ListUnits(const StateStore& store,
                                                                     TableId table);

std::string_view NameOf(MovePhase phase);

// The device that has the unit by the plan, or NotFound.
absl::StatusOr<DeviceId> OwnerInPlan(const Plan& plan, const UnitId& unit);
// Whether that is `device`.
inline bool IsOn(const Plan& plan, const UnitId& unit, DeviceId device) {
  const absl::StatusOr<DeviceId> owner = OwnerInPlan(plan, unit);
  return owner.ok() && *owner == device;
}

}  // namespace embla
