// Nodes that get no new slices, because an operator drains them:
//   drained/ID  {"node": id}; ID is 10 decimal digits
#pragma once

#include <set>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/state_store/state_store.h"

namespace embla {

// DataLoss: unreadable.
absl::StatusOr<std::set<NodeId>> LoadDrained(const StateStore& store);

// Marks the node, or takes the mark away.
StateWrite DrainedWrite(NodeId node, bool is_drained);

}  // namespace embla
