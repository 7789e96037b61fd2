#include "tools/embla/top_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"
#include "core/plan/plan_json.h"
#include "tools/embla/job_cmd.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

constexpr std::size_t kLoadNameWidth = 28;
constexpr std::size_t kJobWidth = 42;
// Tables are cut off at the terminal's edge, so that each entry stays one line.
constexpr std::size_t kOneLine = std::numeric_limits<std::size_t>::max() / 2;

struct LoadedDevice {
  DeviceSpec spec;
  std::int64_t used_bytes = 0;
  std::optional<double> busy;
  std::string stopped;
};

struct LoadedNode {
  NodeSpec spec;
  v1::NodeStatus status;
  std::vector<LoadedDevice> devices;

  // Its busiest device's; nothing: not known.
  std::optional<double> busy() const {
    std::optional<double> most;
    for (const LoadedDevice& device : devices) most = std::max(most, device.busy);
    return most;
  }
  const v1::CallLoad& Calls(std::string_view method) const {
    const auto found =
        std::ranges::find_if(status.calls(), [&](const auto& c) { return c.method() == method; });
    return found == status.calls().end() ? v1::CallLoad::default_instance() : *found;
  }
};

// Nodes may report any numbers.
double Sane(double number) { return std::isfinite(number) ? std::clamp(number, 0.0, 1e15) : 0; }

LoadedNode NodeFrom(const v1::NodeStatus& status, NodeSpec spec) {
  LoadedNode node{.spec = std::move(spec), .status = status, .devices = {}};
  for (int d = 0; d < static_cast<int>(node.spec.devices.size()); ++d) {
    LoadedDevice& device = node.devices.emplace_back();
    device.spec = node.spec.devices[static_cast<std::size_t>(d)];
    if (d < status.device_used_bytes_size()) device.used_bytes = status.device_used_bytes(d);
    if (d < status.device_stopped_size()) device.stopped = status.device_stopped(d);
    if (d < status.device_busy_size()) device.busy = Sane(status.device_busy(d));
  }
  return node;
}

// Nodes that are down first, then the busiest.
std::vector<LoadedNode> LoadedNodesOf(const LoadFacts& facts) {
  std::vector<LoadedNode> nodes;
  for (const v1::NodeStatus& status : facts.nodes.nodes()) {
    auto spec = NodeSpecFromJson(status.node_json());
    if (spec.ok()) nodes.push_back(NodeFrom(status, *std::move(spec)));
  }
  std::ranges::stable_sort(nodes, std::less(), [](const LoadedNode& node) {
    return std::pair(node.status.live(), -node.busy().value_or(0));
  });
  return nodes;
}

struct TableRates {
  std::string table;
  double looked_up = 0;
  double updated = 0;

  double rows() const { return looked_up + updated; }
};

// The sums over nodes, the busiest table first.
std::vector<TableRates> RatesOf(const LoadFacts& facts) {
  std::map<std::string, TableRates> by_name;
  for (const v1::NodeStatus& node : facts.nodes.nodes()) {
    for (const v1::TableLoad& table : node.tables()) {
      TableRates& rates = by_name[table.table()];
      rates.table = table.table();
      rates.looked_up += Sane(table.rows_looked_up());
      rates.updated += Sane(table.rows_updated());
    }
  }
  std::vector<TableRates> tables;
  for (auto& [name, rates] : by_name) tables.push_back(std::move(rates));
  std::ranges::stable_sort(tables, std::greater(), &TableRates::rows);
  return tables;
}

// Jobs that are on; if there are none, the newest.
std::vector<v1::Job> JobsOf(const LoadFacts& facts) {
  std::vector<v1::Job> jobs;
  for (const v1::Job& job : facts.jobs.jobs()) {
    if (!client::IsOver(job.state())) jobs.push_back(job);
  }
  if (jobs.empty() && facts.jobs.jobs_size() > 0) jobs.push_back(facts.jobs.jobs(0));
  return jobs;
}

std::string Rate(double per_second) {
  if (per_second > 0 && per_second < 10) return absl::StrFormat("%.1f", per_second);
  return FormatCount(std::llround(per_second));
}

std::string Millis(const v1::CallLoad& calls) {
  return calls.per_second() > 0 ? absl::StrFormat("%.1f ms", calls.p99_ms()) : "-";
}

std::string Percent(const std::optional<double>& share) {
  return share.has_value() ? absl::StrFormat("%.0f %%", 100 * *share) : "-";
}

std::string StateOf(const LoadedNode& node) {
  if (!node.status.live()) return "down";
  const bool has_stopped =
      std::ranges::any_of(node.devices, [](const LoadedDevice& d) { return !d.stopped.empty(); });
  if (has_stopped) return "stopped";
  if (node.status.failed_plan_version() != 0) return "behind";
  return node.status.drained() ? "drained" : "live";
}

bool IsAlarm(std::string_view state) {
  return state == "down" || state == "stopped" || state == "behind";
}

// The lines of a table, the title's first; `alarms` has one for each line that was added.
std::vector<LoadLine> LinesOf(const TextTable& text, const std::vector<bool>& alarms) {
  std::vector<LoadLine> lines;
  for (const absl::string_view line :
       absl::StrSplit(text.Render("", kOneLine), '\n', absl::SkipEmpty())) {
    const std::size_t entry = lines.size() - 1;
    lines.push_back({std::string(line), !lines.empty() && alarms[entry]});
  }
  return lines;
}

std::vector<LoadLine> HeaderLines(const LoadFacts& facts, const std::vector<LoadedNode>& nodes) {
  std::int64_t used = 0;
  std::int64_t memory = 0;
  double lookups = 0;
  double updates = 0;
  for (const LoadedNode& node : nodes) {
    for (const LoadedDevice& device : node.devices) {
      used += node.status.live() ? device.used_bytes : 0;
      memory += node.status.live() ? device.spec.memory_bytes : 0;
    }
    lookups += Sane(node.Calls("Lookup").per_second());
    updates += Sane(node.Calls("Update").per_second());
  }
  const v1::ClusterStatus& status = facts.status;
  const bool are_missing = status.nodes_live() < status.nodes_total();
  return {{absl::StrCat("cluster ", status.cluster_id(), ", plan ", status.plan_version(), ", ",
                        status.nodes_live(), " of ", status.nodes_total(), " nodes, ",
                        status.tables(), " tables"),
           are_missing},
          {absl::StrCat("lookups ", Rate(lookups), "/s, updates ", Rate(updates), "/s, memory ",
                        FormatBytes(used), " of ", FormatBytes(memory))}};
}

std::vector<LoadLine> NodeLines(const std::vector<LoadedNode>& nodes) {
  TextTable text({"node", "state", ">load", ">used", ">memory", ">lookups/s", ">updates/s",
                  ">lookup p99", ">update p99"});
  std::vector<bool> alarms;
  for (const LoadedNode& node : nodes) {
    std::int64_t used = 0;
    std::int64_t memory = 0;
    for (const LoadedDevice& device : node.devices) {
      used += device.used_bytes;
      memory += device.spec.memory_bytes;
    }
    const std::string state = StateOf(node);
    const v1::CallLoad& lookups = node.Calls("Lookup");
    const v1::CallLoad& updates = node.Calls("Update");
    text.Add({Shortened(node.spec.name, kLoadNameWidth), state, Percent(node.busy()),
              FormatBytes(used), FormatBytes(memory), Rate(Sane(lookups.per_second())),
              Rate(Sane(updates.per_second())), Millis(lookups), Millis(updates)});
    alarms.push_back(IsAlarm(state));
    if (node.devices.size() < 2 || !node.status.live()) continue;
    for (std::size_t d = 0; d < node.devices.size(); ++d) {
      const LoadedDevice& device = node.devices[d];
      text.Add({absl::StrCat("  ", std::string(NameOf(device.spec.kind)), " ", d),
                device.stopped.empty() ? "" : "stopped", Percent(device.busy),
                FormatBytes(device.used_bytes), FormatBytes(device.spec.memory_bytes), "", "", "",
                ""});
      alarms.push_back(!device.stopped.empty());
    }
  }
  return LinesOf(text, alarms);
}

std::vector<LoadLine> RateLines(const LoadFacts& facts) {
  TextTable text({"table", ">rows looked up/s", ">rows updated/s"});
  const std::vector<TableRates> tables = RatesOf(facts);
  for (const TableRates& rates : tables) {
    text.Add({Shortened(rates.table, kLoadNameWidth), Rate(rates.looked_up), Rate(rates.updated)});
  }
  return LinesOf(text, std::vector<bool>(tables.size(), false));
}

std::vector<LoadLine> JobLines(const LoadFacts& facts) {
  TextTable text({">job", "state", ">units", ">sent", ">left", ">pause p50", ">p99", ">max", "what",
                  "waits for"});
  std::vector<bool> alarms;
  for (const v1::Job& job : JobsOf(facts)) {
    const bool has_end = client::IsOver(job.state()) || job.seconds_left() < 0;
    text.Add({absl::StrCat(job.id()), NameOf(job.state()),
              absl::StrCat(job.units_moved(), "/", job.units_total()),
              FormatBytes(static_cast<std::int64_t>(job.bytes_moved())),
              has_end ? "-" : absl::StrFormat("%.0f s", job.seconds_left()),
              absl::StrFormat("%.1f ms", job.pause_p50_ms()),
              absl::StrFormat("%.1f ms", job.pause_p99_ms()),
              absl::StrFormat("%.1f ms", job.pause_max_ms()),
              Shortened(job.description(), kJobWidth), NoteOf(job)});
    alarms.push_back(job.state() == v1::JOB_STATE_FAILED || !NoteOf(job).empty());
  }
  return LinesOf(text, alarms);
}

// Fair shares of `room`: what one does not want is the others'.
std::vector<std::size_t> Shares(const std::vector<std::size_t>& wanted, std::size_t room) {
  std::vector<std::size_t> shares(wanted.size(), 0);
  for (bool has_grown = true; has_grown && room > 0;) {
    has_grown = false;
    for (std::size_t i = 0; i < wanted.size() && room > 0; ++i) {
      if (shares[i] == wanted[i]) continue;
      ++shares[i];
      --room;
      has_grown = true;
    }
  }
  return shares;
}

std::string Fitted(std::string text, std::size_t columns) {
  if (text.size() > columns) text.resize(columns);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

Json LoadedNodeView(const LoadedNode& node) {
  Json devices = Json::array();
  for (const LoadedDevice& device : node.devices) {
    devices.push_back({{"kind", NameOf(device.spec.kind)},
                       {"memory_bytes", device.spec.memory_bytes},
                       {"used_bytes", device.used_bytes},
                       {"busy_ratio", device.busy.has_value() ? Json(*device.busy) : Json()},
                       {"stopped", device.stopped}});
  }
  Json calls = Json::array();
  for (const v1::CallLoad& load : node.status.calls()) {
    calls.push_back({{"method", load.method()},
                     {"per_second", load.per_second()},
                     {"p50_ms", load.p50_ms()},
                     {"p99_ms", load.p99_ms()}});
  }
  return {{"name", node.spec.name},
          {"state", StateOf(node)},
          {"devices", std::move(devices)},
          {"calls", std::move(calls)}};
}

}  // namespace

absl::StatusOr<LoadFacts> LoadFacts::Ask(client::Admin& admin) {
  LoadFacts facts;
  EMBLA_ASSIGN_OR_RETURN(facts.status,
                         admin.Call<v1::ClusterStatus>(v1::GetClusterStatusRequest()));
  EMBLA_ASSIGN_OR_RETURN(facts.nodes, admin.Call<v1::ListNodesReply>(v1::ListNodesRequest()));
  EMBLA_ASSIGN_OR_RETURN(facts.jobs, admin.Call<v1::ListJobsReply>(v1::ListJobsRequest()));
  return facts;
}

Json LoadView(const LoadFacts& facts) {
  Json nodes = Json::array();
  for (const LoadedNode& node : LoadedNodesOf(facts)) nodes.push_back(LoadedNodeView(node));
  Json tables = Json::array();
  for (const TableRates& rates : RatesOf(facts)) {
    tables.push_back({{"name", rates.table},
                      {"rows_looked_up_per_second", rates.looked_up},
                      {"rows_updated_per_second", rates.updated}});
  }
  Json jobs = Json::array();
  for (const v1::Job& job : JobsOf(facts)) jobs.push_back(JobView(job));
  return {{"time", TimeView(absl::FromUnixMillis(facts.status.now_unix_ms()))},
          {"cluster_id", facts.status.cluster_id()},
          {"plan_version", facts.status.plan_version()},
          {"nodes_live", facts.status.nodes_live()},
          {"nodes_total", facts.status.nodes_total()},
          {"nodes", std::move(nodes)},
          {"tables", std::move(tables)},
          {"jobs", std::move(jobs)}};
}

LoadSections LoadText(const LoadFacts& facts) {
  const std::vector<LoadedNode> nodes = LoadedNodesOf(facts);
  LoadSections sections = {HeaderLines(facts, nodes), NodeLines(nodes), RateLines(facts),
                           JobLines(facts)};
  // A title alone says nothing.
  std::erase_if(sections, [](const auto& section) { return section.size() < 2; });
  return sections;
}

std::vector<LoadLine> FitLines(const LoadSections& sections, std::size_t rows,
                               std::size_t columns) {
  std::vector<std::size_t> wanted;
  for (const auto& section : sections) wanted.push_back(section.size());
  const std::size_t blanks = sections.empty() ? 0 : sections.size() - 1;
  const std::vector<std::size_t> shares = Shares(wanted, rows - std::min(rows, blanks));
  std::vector<LoadLine> lines;
  for (std::size_t s = 0; s < sections.size(); ++s) {
    if (s > 0 && lines.size() < rows) lines.emplace_back();
    const std::size_t share = shares[s];
    const bool is_cut = share > 0 && share < sections[s].size();
    for (std::size_t i = 0; i < share - (is_cut ? 1 : 0); ++i) {
      const LoadLine& line = sections[s][i];
      lines.push_back({Fitted(line.text, columns), line.is_alarm});
    }
    if (!is_cut) continue;
    const std::size_t left_out = sections[s].size() - share + 1;
    lines.push_back({Fitted(absl::StrCat("  and ", left_out, " more"), columns)});
  }
  return lines;
}

}  // namespace embla::cli
