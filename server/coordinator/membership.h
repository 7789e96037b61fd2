// The registered nodes and their last reports. Soft state: rebuilt from heartbeats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/build_version.h"
#include "core/base/host_memory.h"
#include "core/base/log.h"
#include "core/plan/plan.h"
#include "core/plan/step_report.h"
#include "server/coordinator/node_past.h"
#include "server/migration/session_set.h"
#include "server/migration/unit_standing.h"

namespace embla {

// The build that a node's process is of.
struct NodeBuild {
  std::string version{BuildVersion()};
  std::uint32_t protocol_version = kProtocolVersion;
};

struct NodeRegistration {
  std::string name;     // [A-Za-z0-9._-]{1,128}, no leading dot.
  std::string address;  // host:port or unix:/path of the data listener.
  std::vector<DeviceSpec> devices;
  HostMemory host_memory = {};  // Memory for the rows of its CPU devices.
  std::uint64_t boot_id = 0;    // Random, one per process start; not 0.
  std::string cluster_id;       // Empty, or the cluster the node belonged to.
  NodeBuild build = {};
  NodePast past = {};
  bool accept_loss = false;     // The operator gives up rows that the node does not have any more.
  PlanPtr installed = nullptr;  // The newest plan that the node has installed, or null.
  std::vector<UnitStandings> units = {};  // Every table but those that are data_parallel.
  SessionSet sessions_refused = {};       // Sessions that it knows to be closed.
  std::string testimony = {};  // Testimony about other nodes' directories, as the node was told it.

  absl::Status Validate() const;
};

// Calls of one method on a node, lately.
struct CallLoad {
  std::string method;  // "Lookup"
  double per_second = 0;
  absl::Duration p50;
  absl::Duration p99;
};

// Rows of one table on a node, per second.
struct TableLoad {
  std::string table;
  double rows_looked_up = 0;
  double rows_updated = 0;

  double rows() const { return rows_looked_up + rows_updated; }
};

// How busy a node has been during the last seconds. For people.
struct NodeLoad {
  std::vector<double> device_busy;  // Shares of time, 0 to 1; empty: not known.
  std::vector<CallLoad> calls;
  std::vector<TableLoad> tables;  // The busiest first.
};

struct HeartbeatInfo {
  PlanVersion plan_version{};         // Newest plan installed there.
  PlanVersion failed_plan_version{};  // A plan it could not install, 0 if none,
  absl::Status failure;               // and why.
  std::vector<std::int64_t> device_used_bytes;
  std::vector<std::string> device_stopped;  // Why it serves no rows any more; empty: it does.
  std::uint64_t sessions_heard = 0;         // The last SessionNews that the node has taken in.
  std::uint64_t log_position = 0;           // LSN up to which its log is durable.
  std::vector<StepReport> steps = {};       // Every table with synchronous steps.
  // By how much the clock of the node's machine is ahead of the coordinator's; nothing: not said.
  std::optional<absl::Duration> clock_ahead = {};
  NodeLoad load = {};
  std::optional<LogLevel> log_level = {};  // The least that it logs; nothing: not said.
};

// kUnlinked: its link closed, or the coordinator restarted, less than dead_after ago.
enum class NodeState : std::uint8_t { kLive = 1, kUnlinked = 2, kDead = 3 };

struct NodeView {
  NodeSpec spec;
  NodeState state = NodeState::kDead;
  std::uint64_t boot_id = 0;  // 0: none since the coordinator started.
  PlanVersion plan_version{};
  PlanVersion failed_plan_version{};
  absl::Status failure;
  absl::Time failing_since;   // Since when it could install none of the newest plans.
  absl::Time last_heartbeat;  // InfinitePast: none since the coordinator started.
  std::vector<std::int64_t> device_used_bytes;
  std::vector<std::string> device_stopped;                // See HeartbeatInfo.
  std::uint64_t sessions_heard = 0;                       // See HeartbeatInfo.
  std::vector<StepReport> steps;                          // By table; also when it is not live.
  NodeLoad load;                                          // By its last heartbeat.
  std::optional<LogLevel> log_level;                      // Likewise.
  bool drained = false;                                   // Gets no new slices.
  NodeBuild build{.version = "", .protocol_version = 0};  // None since the coordinator started.
  HostMemory host_memory;
  std::optional<absl::Duration> clock_ahead;  // See HeartbeatInfo.
  std::optional<bool> keeps_rows;  // Whether it has a data directory; nothing: not known.

  bool live() const { return state == NodeState::kLive; }
  // Why one of its devices serves no rows any more; empty: all do.
  std::string stopped() const;
};

// Thread safety: none.
class Membership {
 public:
  // Nodes known from the store are kUnlinked until `now` + dead_after.
  Membership(const std::vector<NodeSpec>& nodes, absl::Duration dead_after, absl::Time now);

  // AlreadyExists when another process of `node` is live.
  absl::Status CheckProcess(NodeId node, std::uint64_t boot_id, const std::string& address) const;
  // A node of the plan that was not known before: kUnlinked, as those of the constructor.
  void Expect(const NodeSpec& node, absl::Time now);
  void Link(const NodeSpec& spec, const NodeRegistration& registration, absl::Time now);
  // NotFound when `boot_id` is not the linked one.
  absl::Status Heartbeat(NodeId node, std::uint64_t boot_id, const HeartbeatInfo& info,
                         absl::Time now);
  void Unlink(NodeId node, std::uint64_t boot_id);
  // The node is in no plan any more.
  void Forget(NodeId node) { members_.erase(node); }
  // Nodes that died since the last call.
  std::vector<NodeId> Tick(absl::Time now);

  const NodeView* Find(NodeId node) const;
  std::vector<NodeView> Views() const;  // By id.
  std::uint32_t live_count() const;
  // Bytes that the CPU devices of all live nodes in that memory were said to have; 0 if its id is
  // empty.
  std::int64_t PromisedBytes(const HostMemory& memory) const;

 private:
  struct Member {
    NodeView view;
    absl::Time heard;  // The last sign of life, or the start of the grace time.
  };

  const absl::Duration dead_after_;
  std::map<NodeId, Member> members_;
};

}  // namespace embla
