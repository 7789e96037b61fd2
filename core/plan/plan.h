// The plan: which device of which node holds which rectangle of every table. An immutable value;
// every change makes a new one with version + 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/plan/table_list.h"

namespace embla {

enum class DeviceKind : std::uint8_t { kCpu = 1, kGpu = 2 };

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  std::int64_t memory_bytes = 0;
  // GPUs only: bandwidth of the memory, as the driver states it; 0: not known.
  std::int64_t memory_bytes_per_second = 0;
  // GPUs only: whether the node's GPUs add up partial sums by direct access to one another.
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

class Plan {
 public:
  Plan() = default;  // Version 0: no nodes, no tables.
  Plan(PlanVersion version, std::string cluster_id, std::vector<NodeSpec> nodes, TableList tables);

  PlanVersion version() const { return version_; }
  const std::string& cluster_id() const { return cluster_id_; }
  const std::vector<NodeSpec>& nodes() const { return nodes_; }  // Sorted by id.
  const TableList& tables() const { return tables_; }            // Sorted by id.

  const NodeSpec* FindNode(NodeId id) const;
  const NodeSpec* FindNode(std::string_view name) const;
  const TablePlan* FindTable(TableId id) const { return tables_.Find(id); }  // Also aside.
  const TablePlan* FindTable(std::string_view name) const;                   // Served ones only.
  // A table of that name that is kept aside, if there is one; the newest of several.
  const TablePlan* FindAside(std::string_view name) const;

  // Every table valid, every slice on a known device and on granule borders, every tiling exact,
  // ids unique, and names of tables that are served.
  absl::Status Validate() const;
  // The same, where `before` is known to be valid: what both plans share is not looked at again.
  absl::Status ValidateAfter(const Plan& before) const;

  bool operator==(const Plan& other) const {
    return version_ == other.version_ && cluster_id_ == other.cluster_id_ &&
           nodes_ == other.nodes_ && tables_ == other.tables_;
  }

 private:
  PlanVersion version_{};
  std::string cluster_id_;
  std::vector<NodeSpec> nodes_;
  TableList tables_;
};

// The one shared thing: readers keep their snapshot while a newer plan is swapped in.
using PlanPtr = std::shared_ptr<const Plan>;

// InvalidArgument unless the node has an id, a name, an address and devices.
absl::Status ValidateNode(const NodeSpec& node);

}  // namespace embla
