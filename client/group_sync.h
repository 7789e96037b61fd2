// Averages replica groups on all nodes that hold them: one request per node, at the same time, and
// again until all rows are averaged. A node leaves out units that are being handed over to another
// one, and its answer says which rows it has averaged: so a unit that changes nodes meanwhile is
// averaged before it goes, after it has come, or both, which is the same.
#pragma once

#include <cstdint>
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
  explicit GroupSync(NodeDirectory& nodes) : nodes_(nodes) {}

  // The tables to average; empty: all that have groups. NotFound.
  absl::Status Select(const Plan& plan, const std::vector<std::string>& tables);

  // Asks every node that has rows which are not averaged yet, by `plan`, and waits. An error names
  // all nodes that failed, and tables with rows that were left out; its code is the first one's
  // that is not worth repeating, else the first one's. Call Report when it is OK.
  absl::Status AskNodes(const Plan& plan, absl::Time deadline);

  std::vector<TableSyncReport> Report() const;

 private:
  using NodeResult = absl::StatusOr<std::vector<NodeChannel::TableSync>>;

  struct Table {
    TableSpec spec;
    // By the first column of a cut and row granule: averaged. Empty for tables without groups.
    std::map<std::uint32_t, std::vector<bool>> done;

    void Add(const NodeChannel::TableSync::Rows& rows);
    bool HasAll(const Slice& slice) const;
    std::size_t units_left() const;
  };

  absl::StatusOr<std::map<NodeId, std::vector<TableId>>> OpenNodes(const Plan& plan) const;
  NodeResult AskNode(NodeId node, const NodeChannel::SyncQuery& query, absl::Time deadline) const;
  void Take(const NodeChannel::TableSync& sync);

  NodeDirectory& nodes_;  // Not owned.
  std::vector<Table> tables_;
  std::vector<NodeChannel::TableSync> done_;
};

}  // namespace embla::client
