// Administration: tables, plans and nodes, as the CLI `embla` does it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace embla::client {

struct ClusterStatus {
  std::string cluster_id;
  std::uint64_t plan_version = 0;
  std::uint32_t nodes_live = 0;
  std::uint32_t nodes_total = 0;
  std::uint32_t tables = 0;
  absl::Time started;
  std::string version;
};

struct NodeStatus {
  std::string node_json;  // docs/plan_format.md: id, name, address, devices.
  bool live = false;
  std::uint64_t plan_version = 0;
  absl::Time last_heartbeat = {};
  std::vector<std::int64_t> device_used_bytes = {};
};

// Documents are JSON as in docs/plan_format.md.
struct TableChange {
  std::string table_plan_json;
  std::uint64_t plan_version = 0;
};

// Plan on nodes x devices of this size; nodes == 0 means the live cluster.
struct StatedTopology {
  std::uint32_t nodes = 0;
  std::uint32_t devices_per_node = 0;
  std::int64_t device_memory_bytes = 0;
};

struct PlanChange {
  std::uint64_t version = 0;  // That the change made.
  absl::Time at;
  std::string cause;
};

// SHA-256 of each input of a solved plan, in hexadecimal (docs/planner.md).
struct PlanInputs {
  std::string tables, topology, rules, options;
};

// Thread safety: every method may be called from any thread. Errors are those of
// proto/embla/v1/admin.proto, plus Unavailable when the coordinator does not answer.
class Admin {
 public:
  static absl::StatusOr<std::unique_ptr<Admin>> Connect(const std::string& admin_address,
                                                        absl::Duration timeout);
  virtual ~Admin() = default;

  virtual absl::StatusOr<ClusterStatus> GetClusterStatus() = 0;
  virtual absl::StatusOr<std::vector<NodeStatus>> ListNodes() = 0;
  virtual absl::StatusOr<TableChange> CreateTable(const std::string& table_json,
                                                  const std::string& placement_json) = 0;
  virtual absl::StatusOr<std::uint64_t> DropTable(const std::string& name) = 0;
  virtual absl::StatusOr<TableChange> SetTable(
      const std::string& name, const std::map<std::string, std::string>& values) = 0;
  virtual absl::StatusOr<TableChange> PlanTable(const std::string& table_json,
                                                const std::string& placement_json,
                                                const StatedTopology& topology) = 0;
  // The whole current plan, docs/plan_format.md.
  virtual absl::StatusOr<std::string> GetPlanJson() = 0;
  // The newest changes first; limit 0: all that are kept.
  virtual absl::StatusOr<std::vector<PlanChange>> GetPlanHistory(std::uint32_t limit) = 0;
  virtual absl::StatusOr<std::string> GetPlanJsonAt(std::uint64_t version) = 0;
  virtual absl::Status PutSolvedPlan(const PlanInputs& inputs, const std::string& plan_json) = 0;
  virtual absl::StatusOr<std::string> FindSolvedPlan(const PlanInputs& inputs) = 0;
};

}  // namespace embla::client
