// Averages replica groups on all nodes that hold them: one request per node, at the same time, and
// again to those that failed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "client/node_directory.h"
#include "client/route/table_route.h"

namespace embla::client {

// Not thread safe.
class GroupSync {
 public:
  // `nodes` is not owned; outlives this object.
  GroupSync(RoutesPtr routes, NodeDirectory& nodes) : routes_(std::move(routes)), nodes_(nodes) {}

  // The tables to average; empty: all that have groups. NotFound.
  absl::Status Select(const std::vector<std::string>& tables);

  // Asks every node that has not done it yet and waits. An error names all nodes that failed; its
  // code is the first one's that is not worth repeating, else the first one's. Call Report when it
  // is OK.
  absl::Status AskNodes(absl::Time deadline);

  std::vector<TableSyncReport> Report() const;

 private:
  using NodeResult = absl::StatusOr<std::vector<NodeChannel::TableSync>>;

  NodeResult AskNode(NodeId node, absl::Time deadline) const;

  const RoutesPtr routes_;
  NodeDirectory& nodes_;  // Not owned.
  std::vector<const TablePlan*> tables_;
  std::map<NodeId, std::vector<TableId>> open_;  // What nodes have still to do.
  std::vector<NodeChannel::TableSync> done_;
};

}  // namespace embla::client
