// The tables of a node under one plan: an immutable snapshot. Requests keep the one they began
// with, so a dropped table's memory is freed when its last request ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/plan/plan.h"
#include "server/shard/copy_inbox.h"
#include "server/shard/copy_state.h"
#include "server/shard/group_copies.h"
#include "server/table/table_shard.h"

namespace embla {

// A table that this node holds slices of.
struct NodeTable {
  // One per replica group, cut alike; tables without groups have one. Shared by the snapshots that
  // have the table; the shards themselves are guarded as they say.
  std::vector<std::shared_ptr<TableShard>> shards;
  std::shared_ptr<GroupCopies> group_copies;  // Averages the groups; null without groups.
  TableSpec spec;         // The plan's spec; devices take it over in the order of their queues.
  bool is_aside = false;  // Kept, and not served.

  // Null except for data_parallel tables. Shared by the snapshots that have the table.
  std::shared_ptr<CopyState> copy;
  std::shared_ptr<CopyInbox> inbox;  // Likewise.
  // By the plan. Other tables are their own primary and have no replicas.
  bool is_primary = true;
  PlanVersion primary_since{};     // The plan that made it the primary.
  NodeSpec primary;                // The node that orders the updates.
  std::vector<NodeSpec> replicas;  // On the primary: the nodes with the other copies.
  // The spec of every plan that changed it, ascending. A replica applies an ordered update with the
  // hyper-parameters that the primary applied it with.
  std::vector<std::pair<PlanVersion, TableSpec>> spec_history;

  // The table's only copy, or group 0's.
  const std::shared_ptr<TableShard>& shard() const { return shards.front(); }
  // The copy of `group`. InvalidArgument: there is no such group.
  absl::StatusOr<TableShard*> ShardOf(std::uint32_t group) const;
  // The devices of all groups.
  DeviceSet devices() const;
};

class TableSteps;
struct NodeImage;

struct NodeTables {
  PlanPtr plan = std::make_shared<const Plan>();
  NodeId self{};
  // By id. Shared by the snapshots whose plans share the table.
  absl::flat_hash_map<std::uint32_t, std::shared_ptr<const NodeTable>> tables;
  // One for every table with synchronous steps in the plan, also where none of its slices is here.
  absl::flat_hash_map<std::uint32_t, std::shared_ptr<TableSteps>> steps;

  // NotFound or Unavailable (the node is behind the sender's plan) with the table's id.
  absl::StatusOr<const NodeTable*> Find(TableId id, PlanVersion senders_plan) const;
  // The same for requests; FailedPrecondition: the table is kept aside.
  absl::StatusOr<const NodeTable*> FindServed(TableId id, PlanVersion senders_plan) const;
};

using NodeTablesPtr = std::shared_ptr<const NodeTables>;

inline constexpr std::size_t kSpecHistoryMax = 1024;

// Source of a node's new tables.
struct TableMaker {
  std::uint32_t devices = 0;  // Number of the node's devices.
  // The devices, if all are GPUs that may read each other's memory; else none.
  std::vector<gpu::Device*> gpus;
  TableShard::MemoryFactory make_memory;
  // Rows are unset: for rows that are copied in before requests find them.
  TableShard::MemoryFactory make_unset_memory;
  Metrics* metrics = nullptr;           // Not owned; may be null.
  const Clock* clock = &Clock::Real();  // Not owned.

  std::shared_ptr<GroupCopies> MakeGroupCopies(const TableSpec& spec) const {
    return std::make_shared<GroupCopies>(spec, devices, gpus, metrics);
  }
};

// The node's tables under `plan`: existing ones are kept, new ones are created; with an image,
// whose plan it is, where that has them. Errors leave nothing behind.
absl::StatusOr<NodeTablesPtr> NextTables(const NodeTables& old, const PlanPtr& plan, NodeId self,
                                         const TableMaker& maker, const NodeImage* image);

}  // namespace embla
