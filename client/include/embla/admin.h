// Administration: tables, plans, nodes and jobs, as the CLI `embla` does it.
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
  std::uint64_t generation = 1;  // +1 each time that the state was found to have gone back in time.
  std::uint32_t tables_aside = 0;  // Kept, not served; not among `tables`.
};

struct NodeStatus {
  std::string node_json;  // docs/plan_format.md: id, name, address, devices.
  bool live = false;
  std::uint64_t plan_version = 0;
  absl::Time last_heartbeat = {};
  std::vector<std::int64_t> device_used_bytes = {};
  bool drained = false;  // Gets no new slices.
  // Of each device, why it serves no rows any more; empty: it does.
  std::vector<std::string> device_stopped = {};
  // The plan that the node tries to install and could not so far (0: none), why, and since when.
  std::uint64_t failed_plan_version = 0;
  std::string failure = {};
  absl::Time failing_since = {};
  // Of the node's build; empty and 0: not heard of since the coordinator started.
  std::string version = {};
  std::uint32_t protocol_version = 0;
};

// Documents are JSON as in docs/plan_format.md.
struct TableChange {
  std::string table_plan_json;
  std::uint64_t plan_version = 0;
  std::vector<std::string> left_out = {};  // Nodes that are away and get no slices, and why.
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

// A job that moves rows between nodes while they are trained. Fields that a goal does not name are
// ignored.
struct JobRequest {
  enum class Goal : std::uint8_t {
    kReshard,    // table, shards
    kMove,       // table, granule_begin, granule_end, node, device
    kDrain,      // node
    kUndrain,    // node; over at once
    kRebalance,  // nothing
  };
  Goal goal = Goal::kRebalance;
  std::string table = {};
  std::uint32_t shards = 0;         // Devices that hold a part of the table afterwards.
  std::uint32_t granule_begin = 0;  // Row granules [granule_begin, granule_end).
  std::uint32_t granule_end = 0;
  std::string node = {};
  std::uint32_t device = 0;
  std::uint64_t bytes_per_second = 0;  // Of every source node; 0: no limit.
  std::uint32_t units_in_flight = 0;   // 0: 16.
  bool dry_run = false;                // Only say what would be done.
};

enum class JobState : std::uint8_t {
  kRunning = 1,
  kPaused = 2,      // Open moves end, none begins.
  kCancelling = 3,  // Open moves are aborted.
  kDone = 4,
  kCancelled = 5,
  kFailed = 6,
  kQueued = 7,  // Other jobs run first.
};
inline bool IsOver(JobState state) {
  return state >= JobState::kDone && state != JobState::kQueued;
}

enum class JobControl : std::uint8_t { kPause = 1, kResume = 2, kCancel = 3 };

// A run of units of one table with one way to go.
struct PlannedMove {
  std::string table = {};
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::string from_node = {};
  std::uint32_t from_device = 0;
  std::string to_node = {};
  std::uint32_t to_device = 0;
  std::int64_t bytes = 0;
};

struct DeviceRoom {
  std::string node = {};
  std::uint32_t device = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t used_bytes = 0;  // Now.
  std::int64_t peak_bytes = 0;  // While the job runs, at most.
};

struct Job {
  std::uint64_t id = 0;  // 0: a dry run, or nothing to keep.
  std::string description = {};
  JobState state = JobState::kRunning;
  std::string error = {};  // Why it failed, or what it waits for.
  std::uint64_t units_total = 0;
  std::uint64_t units_moved = 0;
  std::uint64_t units_open = 0;
  std::uint64_t units_frozen = 0;  // Not updated at the moment.
  std::uint64_t bytes_total = 0;   // Of the rows that move.
  std::uint64_t bytes_moved = 0;   // As sent: rows that changed meanwhile are sent again.
  absl::Time started = {};
  absl::Time ended = {};    // The epoch: not yet.
  double pause_p50_ms = 0;  // How long a unit was not updated.
  double pause_p99_ms = 0;
  double pause_max_ms = 0;
  double seconds_left = -1;             // Estimated; negative: unknown.
  std::vector<PlannedMove> moves = {};  // Not in ListJobs.
  std::vector<DeviceRoom> rooms = {};   // In a dry run.
};

// Rows that a table loses with a node.
struct LostRows {
  std::string table;
  std::uint64_t units = 0;
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;  // Weights and optimizer state.
};

struct ForgottenNode {
  std::vector<LostRows> lost;
  Job job;  // That takes the node out of the cluster; id 0 in a dry run.
};

// Thread safety: every method may be called from any thread. Errors are those of
// proto/embla/v1/admin.proto, plus Unavailable when the coordinator does not answer.
class Admin {
 public:
  // Waits for a coordinator that does not answer, for `timeout`, which is also that of each call,
  // or fails at once if nobody listens there or the name has no address. Errors: InvalidArgument
  // (not host:port), Unavailable, Unimplemented (no coordinator's admin port).
  enum class IfAbsent : std::uint8_t { kWait, kFail };
  static absl::StatusOr<std::unique_ptr<Admin>> Connect(const std::string& admin_address,
                                                        absl::Duration timeout,
                                                        IfAbsent if_absent = IfAbsent::kWait);
  virtual ~Admin() = default;

  virtual absl::StatusOr<ClusterStatus> GetClusterStatus() = 0;
  virtual absl::StatusOr<std::vector<NodeStatus>> ListNodes() = 0;
  virtual absl::StatusOr<TableChange> CreateTable(const std::string& table_json,
                                                  const std::string& placement_json) = 0;
  virtual absl::StatusOr<std::uint64_t> DropTable(const std::string& name) = 0;
  // A table that is kept aside, by its id.
  virtual absl::StatusOr<std::uint64_t> DropAsideTable(std::uint32_t id) = 0;
  // A table that is kept aside is served again. `id` 0: the only one of the name.
  virtual absl::StatusOr<TableChange> AdoptTable(const std::string& name, std::uint32_t id) = 0;
  // The node gives up rows of units of the table that are another node's.
  virtual absl::Status DropLeftovers(const std::string& table, const std::string& node) = 0;
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

  virtual absl::StatusOr<Job> StartJob(const JobRequest& request) = 0;
  virtual absl::StatusOr<std::vector<Job>> ListJobs() = 0;  // The newest first.
  virtual absl::StatusOr<Job> GetJob(std::uint64_t id) = 0;
  virtual absl::StatusOr<Job> ControlJob(std::uint64_t id, JobControl control) = 0;
  // Takes a node that is down out of the cluster, for ever. FailedPrecondition: it is live, or rows
  // would be lost without `lose_rows`.
  virtual absl::StatusOr<ForgottenNode> ForgetNode(const std::string& node, bool lose_rows,
                                                   bool dry_run) = 0;

  virtual absl::Status PutSolvedPlan(const PlanInputs& inputs, const std::string& plan_json) = 0;
  virtual absl::StatusOr<std::string> FindSolvedPlan(const PlanInputs& inputs) = 0;
};

}  // namespace embla::client
