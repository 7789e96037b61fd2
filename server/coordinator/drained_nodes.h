// Orders of operators about nodes, by 10 decimal digits of their id:
//   drained/ID    {"node": id}                  it gets no new slices
//   forgotten/ID  {"node": id, "name": "..."}   it is lost with its directory, never comes back,
//                                               and is kept when the plan has it no more
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "server/state_store/state_store.h"

namespace embla {

// DataLoss: unreadable.
absl::StatusOr<std::set<NodeId>> LoadDrained(const StateStore& store);

// Marks the node, or takes the mark away.
StateWrite DrainedWrite(NodeId node, bool is_drained);

// Names by id. DataLoss: unreadable.
absl::StatusOr<std::map<NodeId, std::string>> LoadForgotten(const StateStore& store);
// Adds or removes a forgotten node's name.
StateWrite ForgottenWrite(NodeId node, const std::string& name, bool is_forgotten);

}  // namespace embla
