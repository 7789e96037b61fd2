// The plan: which device of which node holds which rectangle of every table. An immutable value;
// every change makes a new one with version + 1.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/plan/step_members.h"
#include "core/plan/table_spec.h"

namespace embla {

enum class DeviceKind : std::uint8_t { kCpu = 1, kGpu = 2 };

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  std::int64_t memory_bytes = 0;
  // Of a GPU: bandwidth of its memory, as the driver states it; 0: not known.
  std::int64_t memory_bytes_per_second = 0;
  // Of a GPU: whether its node's GPUs add up partial sums by direct access to one another.
  bool peer_access = false;
  bool operator==(const DeviceSpec&) const = default;
};

// A shard server as the plan sees it.
struct NodeSpec {
  NodeId id{};
  std::string name;     // Stable across restarts; what operators type.
  std::string address;  // host:port or unix:/path of its data listener.
  std::vector<DeviceSpec> devices = {};
  bool operator==(const NodeSpec&) const = default;
};

// A rectangle of units on one device.
struct Slice {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;  // Exclusive; == row_begin is an empty slice and is never stored.
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  DeviceId device{};

  std::int64_t rows() const { return row_end - row_begin; }
  std::uint32_t columns() const { return column_end - column_begin; }
  bool operator==(const Slice&) const = default;
};

// One table's tiling. Slices are sorted by (column_begin, row_begin) and tile the table exactly,
// once; a replicated table holds one such tiling per copy, primary first, and a table with replica
// groups one per group (core/plan/replica_groups.h).
struct TablePlan {
  TableSpec spec;
  ShardingType sharding = ShardingType::kTableWise;  // What the user asked for; for display only.
  std::vector<std::vector<Slice>> replicas;  // Never empty; [0] orders the updates, or is group 0.
  // Kept on its nodes and not served: nodes had the table and the coordinator's store, restored
  // from an older copy, did not. An operator adopts or drops it.
  bool aside = false;
  StepPlan steps = {};  // Of tables with synchronous steps.

  const std::vector<Slice>& primary() const { return replicas.front(); }
  // Copies that are kept equal by their primary (data_parallel).
  bool replicated() const { return replicas.size() > 1 && !grouped(); }
  // Copies that are trained apart and averaged now and then.
  bool grouped() const { return spec.replica_groups > 1; }

  // Spec and tilings valid. The table may have no id yet, and devices are not looked up.
  absl::Status Validate() const;
  bool operator==(const TablePlan&) const = default;
};

class Plan {
 public:
  Plan() = default;  // Version 0: no nodes, no tables.
  Plan(PlanVersion version, std::string cluster_id, std::vector<NodeSpec> nodes,
       std::vector<TablePlan> tables);

  PlanVersion version() const { return version_; }
  const std::string& cluster_id() const { return cluster_id_; }
  const std::vector<NodeSpec>& nodes() const { return nodes_; }     // Sorted by id.
  const std::vector<TablePlan>& tables() const { return tables_; }  // Sorted by id.

  const NodeSpec* FindNode(NodeId id) const;
  const NodeSpec* FindNode(std::string_view name) const;
  const TablePlan* FindTable(TableId id) const;             // Also one that is kept aside.
  const TablePlan* FindTable(std::string_view name) const;  // Only one that is served.
  // A table of that name that is kept aside, if there is one; the newest of several.
  const TablePlan* FindAside(std::string_view name) const;

  // Every table valid, every slice on a known device and on granule borders, every tiling exact,
  // ids unique, and names of tables that are served.
  absl::Status Validate() const;

  bool operator==(const Plan& other) const {
    return version_ == other.version_ && cluster_id_ == other.cluster_id_ &&
           nodes_ == other.nodes_ && tables_ == other.tables_;
  }

 private:
  PlanVersion version_{};
  std::string cluster_id_;
  std::vector<NodeSpec> nodes_;
  std::vector<TablePlan> tables_;
  absl::flat_hash_map<std::string, std::size_t> table_by_name_;
  absl::flat_hash_map<std::uint32_t, std::size_t> table_by_id_;
};

// The one shared thing: readers keep their snapshot while a newer plan is swapped in.
using PlanPtr = std::shared_ptr<const Plan>;

// The nodes that hold a slice of `table`.
std::set<NodeId> HoldersOf(const TablePlan& table);

// Whether some slice holds only a part of its rows' columns.
bool CutsColumns(const TableSpec& spec, const std::vector<Slice>& slices);

// Bytes of `slice`: weights, optimizer state and, of a ZCH table, what is known about its slots.
std::int64_t SliceBytes(const TableSpec& spec, const Slice& slice);

// The optimizer's demand on the tiling: the columns may not be cut where a row statistic takes
// in all the weights of its row (L2 weight decay), or the sum of what all ranks contribute.
absl::Status CheckOptimizerFits(const TableSpec& spec, bool cuts_columns);

// InvalidArgument where the table cannot be cut so at all: a ZCH table keeps its rows whole and has
// one copy, and one with synchronous steps has one copy.
absl::Status CheckShardingFits(const TableSpec& spec, ShardingType sharding);

// InvalidArgument unless the node has an id, a name, an address and devices.
absl::Status ValidateNode(const NodeSpec& node);

// Checks that `slices` cover rows x dim exactly once. The message names the first gap or overlap.
absl::Status ValidateTiling(const TableSpec& spec, const std::vector<Slice>& slices);

}  // namespace embla
