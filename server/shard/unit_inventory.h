// Lists the units that a node serves, and their epochs: what it tells the coordinator when it
// registers (server/migration/unit_standing.h).
#pragma once

#include <vector>

#include "server/migration/unit_standing.h"
#include "server/shard/node_tables.h"
#include "server/table/device_executor.h"

namespace embla {

// Runs on the devices' threads. Must not be called on one.
std::vector<UnitStandings> OwnedUnits(const NodeTables& tables, DeviceExecutors& executors);

// Appends `unit`, of one granule, or lengthens the last run if the unit continues it.
void AppendUnit(const UnitStandings& unit, std::vector<UnitStandings>* units);

}  // namespace embla
