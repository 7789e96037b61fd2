// A unit's state recovered from a node's log (UnitReplay), with which a mover begins.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "server/migration/move_ids.h"
#include "server/migration/move_messages.h"
#include "server/migration/unit_state.h"

namespace embla {

struct RestoredUnit {
  UnitId unit;
  UnitDurable durable;
  ChunkVersions staged;  // Staged chunks of an import.
  // Memory that the host keeps for an import, or for one that never came to be.
  bool has_memory = false;
  PlanVersion folded{};  // Under which its record joined the rest's; 0: it has its own.
  std::uint32_t device = 0;
  RowRun run;
};

struct RestoredNode {
  NodeId self{};
  // Processes that opened the log, this one included; its marker is synced. 0: there is no log.
  std::uint64_t log_process = 0;
  std::vector<RestoredUnit> units;
};

// First lsn of a unit that is adopted by a process: as BeginProcess, above all that an earlier
// process gave out and lost, the unit's adoption too.
inline Lsn FirstLsnOf(std::uint64_t log_process) {
  return Lsn{(log_process << kLsnBitsOfProcess) + 1};
}

}  // namespace embla
