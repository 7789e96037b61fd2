#include "tools/embla/node_cmd.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"
#include "core/plan/plan_json.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

struct Node {
  NodeSpec spec;
  v1::NodeStatus status;

  std::int64_t memory_bytes() const {
    return std::accumulate(
        spec.devices.begin(), spec.devices.end(), std::int64_t{0},
        [](std::int64_t sum, const DeviceSpec& device) { return sum + device.memory_bytes; });
  }
  std::int64_t used_bytes() const {
    return std::accumulate(status.device_used_bytes().begin(), status.device_used_bytes().end(),
                           std::int64_t{0});
  }
};

absl::StatusOr<std::vector<Node>> Nodes(client::Admin& admin) {
  EMBLA_ASSIGN_OR_RETURN(v1::ListNodesReply reply,
                         admin.Call<v1::ListNodesReply>(v1::ListNodesRequest()));
  std::vector<Node> nodes;
  for (v1::NodeStatus& status : *reply.mutable_nodes()) {
    EMBLA_ASSIGN_OR_RETURN(NodeSpec spec, NodeSpecFromJson(status.node_json()));
    nodes.push_back({std::move(spec), std::move(status)});
  }
  return nodes;
}

// "4 cpu", "8 gpu", "1 cpu 2 gpu".
std::string DeviceWords(const NodeSpec& spec) {
  std::string words;
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kGpu}) {
    const auto count = std::count_if(spec.devices.begin(), spec.devices.end(),
                                     [kind](const DeviceSpec& d) { return d.kind == kind; });
    if (count == 0) continue;
    absl::StrAppend(&words, words.empty() ? "" : " ", count, " ", std::string(NameOf(kind)));
  }
  return words;
}

std::string StateWords(const v1::NodeStatus& status) {
  std::string words = status.live() ? "live" : "dead";
  if (status.drained()) words += ", drained";
  for (int d = 0; d < status.device_stopped_size(); ++d) {
    if (!status.device_stopped(d).empty()) absl::StrAppend(&words, ", device ", d, " has stopped");
  }
  return words;
}

absl::Time FailingSince(const v1::NodeStatus& status) {
  return absl::FromUnixMillis(status.failing_since_unix_ms());
}

std::string Age(absl::Time then, absl::Time now) {
  if (then <= absl::UnixEpoch()) return "never";
  return absl::StrCat(absl::ToInt64Milliseconds(now - then), " ms ago");
}

Json View(const Node& node) {
  Json devices = Json::array();
  for (int i = 0; i < std::ssize(node.spec.devices); ++i) {
    const auto& used = node.status.device_used_bytes();
    const auto& stopped = node.status.device_stopped();
    devices.push_back({{"kind", NameOf(node.spec.devices[i].kind)},
                       {"memory_bytes", node.spec.devices[i].memory_bytes},
                       {"used_bytes", i < used.size() ? used[i] : 0},
                       {"stopped", i < stopped.size() ? stopped[i] : ""}});
  }
  return {{"id", ToInt(node.spec.id)},
          {"name", node.spec.name},
          {"address", node.spec.address},
          {"live", node.status.live()},
          {"drained", node.status.drained()},
          {"plan_version", node.status.plan_version()},
          {"last_heartbeat", TimeView(absl::FromUnixMillis(node.status.last_heartbeat_unix_ms()))},
          {"failed_plan_version", node.status.failed_plan_version()},
          {"failure", node.status.failure()},
          {"failing_since", TimeView(FailingSince(node.status))},
          {"version", node.status.version()},
          {"protocol_version", node.status.protocol_version()},
          {"devices", devices}};
}

Json LostView(const google::protobuf::RepeatedPtrField<v1::LostRows>& lost) {
  Json list = Json::array();
  for (const v1::LostRows& rows : lost) {
    list.push_back({{"table", rows.table()},
                    {"units", rows.units()},
                    {"rows", rows.rows()},
                    {"bytes", rows.bytes()}});
  }
  return list;
}

void ShowLost(const google::protobuf::RepeatedPtrField<v1::LostRows>& lost, std::ostream& out) {
  if (lost.empty()) return;
  TextTable text({"lost of table", ">units", ">rows", ">bytes"});
  for (const v1::LostRows& rows : lost) {
    text.Add({rows.table(), absl::StrCat(rows.units()),
              FormatCount(static_cast<std::int64_t>(rows.rows())),
              FormatBytes(static_cast<std::int64_t>(rows.bytes()))});
  }
  out << text.Render();
}

// A sentence for each node that could not install its plan.
std::string FailureWords(const std::vector<Node>& nodes, absl::Time now) {
  std::string words;
  for (const Node& node : nodes) {
    if (node.status.failed_plan_version() == 0) continue;
    absl::StrAppend(
        &words, node.spec.name, " tries to install plan ", node.status.failed_plan_version(),
        ", in vain since ",
        absl::FormatDuration(absl::Trunc(now - FailingSince(node.status), absl::Seconds(1))), ": ",
        node.status.failure(), "\n");
  }
  return words;
}

}  // namespace

std::vector<Verb> NodeVerbs() {
  return {{.name = "ls",
           .help = "list the nodes",
           .run = [](client::Admin& admin, const Output& output) {
             return NodeListVerb(admin, absl::Now(), output);
           }}};
}

absl::Status NodeListVerb(client::Admin& admin, absl::Time now, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<Node> nodes, Nodes(admin));
  if (output.json) {
    Json list = Json::array();
    for (const Node& node : nodes) list.push_back(View(node));
    output.PutJson(list);
    return absl::OkStatus();
  }
  TextTable text(
      {"node", "state", "address", "devices", ">used", ">memory", ">plan", "heartbeat", "version"});
  for (const Node& node : nodes) {
    text.Add({node.spec.name, StateWords(node.status), node.spec.address, DeviceWords(node.spec),
              FormatBytes(node.used_bytes()), FormatBytes(node.memory_bytes()),
              absl::StrCat(node.status.plan_version()),
              Age(absl::FromUnixMillis(node.status.last_heartbeat_unix_ms()), now),
              node.status.version().empty() ? "-" : node.status.version()});
  }
  output.out << text.Render() << FailureWords(nodes, now);
  return absl::OkStatus();
}

absl::Status NodeForgetVerb(client::Admin& admin, const std::string& node, bool lose_rows,
                            bool wait, const Pause& pause, const Output& output) {
  v1::ForgetNodeRequest request;
  request.set_node(node);
  request.set_lose_rows(lose_rows);
  request.set_dry_run(true);
  EMBLA_ASSIGN_OR_RETURN(v1::ForgetNodeReply forgotten, admin.Call<v1::ForgetNodeReply>(request));
  const bool is_refused = !forgotten.lost().empty() && !lose_rows;
  if (!output.json) ShowLost(forgotten.lost(), output.out);
  if (is_refused) {
    if (output.json) output.PutJson({{"node", node}, {"lost", LostView(forgotten.lost())}});
    return absl::FailedPreconditionError(
        absl::StrCat("rows would be lost with node ", node,
                     ": bring it back, or pass --lose-rows: they begin at initial values"));
  }
  request.set_dry_run(false);
  EMBLA_ASSIGN_OR_RETURN(forgotten, admin.Call<v1::ForgetNodeReply>(request));
  if (output.json && !wait) {
    output.PutJson(
        {{"node", node}, {"lost", LostView(forgotten.lost())}, {"job", forgotten.job().id()}});
    return absl::OkStatus();
  }
  if (!output.json) {
    output.out << "job " << forgotten.job().id() << ": " << forgotten.job().description() << "\n";
  }
  return wait ? JobWatchVerb(admin, forgotten.job().id(), pause, output) : absl::OkStatus();
}

}  // namespace embla::cli
