#include "tools/embla/doctor_cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/byte_text.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"
#include "core/plan/plan_json.h"
#include "tools/embla/doctor_config.h"
#include "tools/embla/plan_cmd.h"

namespace embla::cli {
namespace {

// Clocks that NTP keeps are milliseconds apart.
constexpr absl::Duration kClocksApart = absl::Seconds(2);
constexpr int kFullPercent = 95;

struct NodeFacts {
  NodeSpec spec;
  v1::NodeStatus status;

  std::string where() const { return absl::StrCat("node ", spec.name); }
  std::string host() const {
    const auto address = SplitAddress(spec.address);
    return address.has_value() ? address->host : "";
  }
};

std::vector<NodeFacts> NodesOf(const ClusterFacts& facts) {
  std::vector<NodeFacts> nodes;
  for (const v1::NodeStatus& status : facts.nodes.nodes()) {
    auto spec = NodeSpecFromJson(status.node_json());
    if (spec.ok()) nodes.push_back({*std::move(spec), status});
  }
  return nodes;
}

std::string Since(std::int64_t unix_ms, const ClusterFacts& facts) {
  if (unix_ms == 0) return "it was not heard of since the coordinator started";
  const absl::Duration age = absl::Milliseconds(facts.status.now_unix_ms() - unix_ms);
  return absl::StrCat("it was heard of last ",
                      absl::FormatDuration(absl::Trunc(age, absl::Seconds(1))), " ago");
}

void CheckState(const NodeFacts& node, const ClusterFacts& facts, Report& report) {
  const v1::NodeStatus& status = node.status;
  const std::string heard = Since(status.last_heartbeat_unix_ms(), facts);
  if (!status.live()) {
    return report.Add(status.drained() ? "node-left-over" : "node-dead", node.where(),
                      absl::StrCat("at ", node.spec.address, "; ", heard));
  }
  if (status.drained()) report.Add("node-drained", node.where(), "it is live, and drained");
  if (status.failed_plan_version() != 0) {
    report.Add("node-behind", node.where(),
               absl::StrCat("plan ", status.failed_plan_version(), ": ", status.failure()));
  }
  for (int d = 0; d < status.device_stopped_size(); ++d) {
    if (status.device_stopped(d).empty()) continue;
    report.Add("device-stopped", absl::StrCat(node.where(), ", device ", d),
               status.device_stopped(d));
  }
  const std::size_t devices =
      std::min(node.spec.devices.size(), static_cast<std::size_t>(status.device_used_bytes_size()));
  for (std::size_t d = 0; d < devices; ++d) {
    const std::int64_t used = status.device_used_bytes(static_cast<int>(d));
    const std::int64_t bytes = node.spec.devices[d].memory_bytes;
    if (used / kFullPercent <= bytes / 100) continue;
    report.Add("device-full", absl::StrCat(node.where(), ", device ", d),
               absl::StrCat(FormatBytes(used), " of ", FormatBytes(bytes)));
  }
}

void CheckClocks(const std::vector<NodeFacts>& nodes, const ClusterFacts& facts, Report& report) {
  const absl::Time coordinator = absl::FromUnixMillis(facts.status.now_unix_ms());
  const bool is_told = facts.status.now_unix_ms() != 0;
  if (is_told &&
      (coordinator < facts.asked - kClocksApart || coordinator > facts.answered + kClocksApart)) {
    report.Add("clock-apart", "the coordinator's machine",
               absl::StrCat("it is ", TimeText(coordinator), " there, and ",
                            TimeText(facts.answered), " here"));
  }
  for (const NodeFacts& node : nodes) {
    const absl::Duration ahead = absl::Milliseconds(node.status.clock_ahead_ms());
    if (!node.status.live() || absl::AbsDuration(ahead) <= kClocksApart) continue;
    report.Add(
        "clock-apart", node.where(),
        absl::StrCat(absl::FormatDuration(absl::AbsDuration(ahead)),
                     ahead < absl::ZeroDuration() ? " behind" : " ahead of", " the coordinator's"));
  }
}

void CheckAddresses(const std::vector<NodeFacts>& nodes, Report& report) {
  const bool has_far = std::ranges::any_of(nodes, [](const NodeFacts& node) {
    return !node.host().empty() && !IsLoopback(node.host());
  });
  std::map<std::string, const NodeFacts*> seen;
  for (const NodeFacts& node : nodes) {
    if (has_far && IsLoopback(node.host())) {
      report.Add("address-loopback", node.where(), node.spec.address);
    }
    const auto [first, is_new] = seen.emplace(node.spec.address, &node);
    if (is_new) continue;
    report.Add("address-twice", node.where(),
               absl::StrCat(node.spec.address, " is also that of ", first->second->where()));
  }
}

// Nodes that share memory, each with the CPU devices' bytes that it promises.
void CheckPromisedMemory(const std::vector<NodeFacts>& nodes, Report& report) {
  struct Shared {
    std::int64_t promised = 0;
    std::int64_t bytes = 0;
    std::string names;
  };
  std::map<std::string, Shared> by_memory;
  for (const NodeFacts& node : nodes) {
    if (!node.status.live() || node.status.memory_id().empty()) continue;
    Shared& shared = by_memory[node.status.memory_id()];
    shared.bytes = node.status.memory_bytes();
    absl::StrAppend(&shared.names, shared.names.empty() ? "" : ", ", node.spec.name);
    for (const DeviceSpec& device : node.spec.devices) {
      if (device.kind == DeviceKind::kCpu) shared.promised += device.memory_bytes;
    }
  }
  for (const auto& [id, shared] : by_memory) {
    if (shared.promised <= shared.bytes) continue;
    report.Add("memory-promised", absl::StrCat("nodes ", shared.names),
               absl::StrCat(FormatBytes(shared.promised), " of ", FormatBytes(shared.bytes)));
  }
}

void CheckDirectories(const std::vector<NodeFacts>& nodes, const ClusterFacts& facts,
                      Report& report) {
  std::map<NodeId, const NodeFacts*> without;
  for (const NodeFacts& node : nodes) {
    if (node.status.directory() == v1::NodeStatus::DIRECTORY_NONE) without[node.spec.id] = &node;
  }
  std::set<const NodeFacts*> reported;
  for (const TablePlan& table : facts.plan.tables()) {
    for (const NodeId holder : HoldersOf(table)) {
      const auto found = without.find(holder);
      if (found == without.end()) continue;
      const NodeFacts& node = *found->second;
      if (reported.insert(&node).second) {
        report.Add("node-without-directory", node.where(),
                   absl::StrCat("it has rows of table ", table.spec.name, " and more"));
      }
      if (table.spec.durability == TableDurability::kNode) continue;
      report.Add("table-durability", absl::StrCat("table ", table.spec.name),
                 absl::StrCat(node.where(), " has none, and updates of its rows wait"));
    }
  }
}

void CheckJobs(const ClusterFacts& facts, Report& report) {
  bool is_newest_over = true;
  for (const v1::Job& job : facts.jobs.jobs()) {
    const std::string where = absl::StrCat("job ", job.id(), ", ", job.description());
    if (job.state() == v1::JOB_STATE_PAUSED) {
      report.Add("job-paused", where,
                 absl::StrCat(job.units_moved(), " of ", job.units_total(), " units have moved"));
    } else if (!client::IsOver(job.state()) && !job.waits_for().empty()) {
      report.Add("job-waits", where, job.waits_for());
    } else if (client::IsOver(job.state()) && std::exchange(is_newest_over, false) &&
               job.state() == v1::JOB_STATE_FAILED) {
      report.Add("job-failed", where, job.error());
    }
  }
}

void CheckVersions(const std::vector<NodeFacts>& nodes, const ClusterFacts& facts, Report& report) {
  for (const NodeFacts& node : nodes) {
    const std::string& version = node.status.version();
    if (!node.status.live() || version.empty() || version == facts.status.version()) continue;
    report.Add("versions-differ", node.where(),
               absl::StrCat(version, "; the coordinator is ", facts.status.version()));
  }
}

void CheckWhole(const std::vector<NodeFacts>& nodes, const ClusterFacts& facts, Report& report) {
  if (facts.status.tables() > 0 && facts.status.nodes_live() == 0) {
    report.Add("no-nodes", "the cluster",
               absl::StrCat(facts.status.tables(), " tables, no live node"));
  }
  if (facts.status.tables_aside() > 0) {
    report.Add("tables-aside", "the cluster", absl::StrCat(facts.status.tables_aside(), " tables"));
  }
  if (facts.has_tls) return;
  std::vector<std::string> far;
  const auto add = [&far](const std::string& address) {
    const auto parts = SplitAddress(address);
    if (parts.has_value() && !IsLoopback(parts->host)) far.push_back(address);
  };
  for (const std::string& address : SplitList(facts.admin_address)) add(address);
  for (const NodeFacts& node : nodes) add(node.spec.address);
  if (far.empty()) return;
  report.Add("plaintext", "the cluster",
             absl::StrCat("everybody who reaches ", far.front(), far.size() > 1 ? " and more" : "",
                          " may read and change all rows"));
}

}  // namespace

absl::StatusOr<ClusterFacts> ClusterFacts::Ask(client::Admin& admin) {
  ClusterFacts facts;
  facts.asked = absl::Now();
  EMBLA_ASSIGN_OR_RETURN(facts.status,
                         admin.Call<v1::ClusterStatus>(v1::GetClusterStatusRequest()));
  facts.answered = absl::Now();
  EMBLA_ASSIGN_OR_RETURN(facts.nodes, admin.Call<v1::ListNodesReply>(v1::ListNodesRequest()));
  EMBLA_ASSIGN_OR_RETURN(facts.jobs, admin.Call<v1::ListJobsReply>(v1::ListJobsRequest()));
  EMBLA_ASSIGN_OR_RETURN(facts.plan, FetchPlan(admin));
  return facts;
}

void CheckCluster(const ClusterFacts& facts, Report& report) {
  const std::vector<NodeFacts> nodes = NodesOf(facts);
  for (const NodeFacts& node : nodes) CheckState(node, facts, report);
  CheckClocks(nodes, facts, report);
  CheckAddresses(nodes, report);
  CheckPromisedMemory(nodes, report);
  CheckDirectories(nodes, facts, report);
  CheckJobs(facts, report);
  CheckVersions(nodes, facts, report);
  CheckWhole(nodes, facts, report);
}

}  // namespace embla::cli
