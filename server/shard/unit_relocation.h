// The rows of a unit change from one device of a node to another, chunk by chunk: each in one task
// that both devices meet in, so every request finds each row on one of them, and waits for one
// chunk at most. All copies of a table with replica groups change in one task.
#pragma once

#include <memory>
#include <vector>

#include "server/migration/unit_host.h"
#include "server/table/device_executor.h"
#include "server/table/table_shard.h"

namespace embla {

// Queues it behind the requests that came before. The rows go to the slice that stages them; if
// none does, there is nothing to do. `done` and errors are those of UnitHost::Relocate. `copies`
// are the table's, by replica group. `executors` is not owned and outlives the tasks. One
// relocation of a unit at a time.
void RelocateUnit(DeviceExecutors& executors, std::vector<std::shared_ptr<TableShard>> copies,
                  const UnitShape& shape, HostDone done);

}  // namespace embla
