// Evens out the devices of each host where its network, not a device, is what a plan waits for:
// until then it made no difference which of the host's devices had a shard.
#pragma once

#include "core/planner/solver/layout.h"

namespace embla::planner {

// Moves single shards from the most to the least loaded device of the same host while that lowers
// the higher of the two. Never raises max load; hosts without network load stay as they are.
// Requires: every table is placed.
void LevelHosts(Layout* layout);

}  // namespace embla::planner
