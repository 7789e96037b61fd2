#include "tools/embla/plan_view.h"

#include <map>
#include <set>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/plan/plan_json.h"
#include "core/plan/rank_runs.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

std::string NodeName(const Plan& plan, NodeId id) {
  const NodeSpec* node = plan.FindNode(id);
  return node == nullptr ? absl::StrCat("node ", ToInt(id)) : node->name;
}

std::string Plural(std::size_t count, std::string_view word) {
  return absl::StrCat(FormatCount(static_cast<std::int64_t>(count)), " ", ToAbsl(word),
                      count == 1 ? "" : "s");
}

std::size_t SliceCount(const TablePlan& table) {
  std::size_t count = 0;
  for (const auto& replica : table.replicas) count += replica.size();
  return count;
}

// "16 slices on 16 devices of 2 nodes".
std::string Spread(const TablePlan& table) {
  std::set<DeviceId> devices;
  std::set<NodeId> nodes;
  for (const auto& replica : table.replicas) {
    for (const Slice& slice : replica) {
      devices.insert(slice.device);
      nodes.insert(slice.device.node);
    }
  }
  return absl::StrCat(Plural(SliceCount(table), "slice"), " on ", Plural(devices.size(), "device"),
                      " of ", Plural(nodes.size(), "node"));
}

// ", in 2 replica groups, averaged every 10 updates"; nothing without groups.
std::string Groups(const TableSpec& spec) {
  if (spec.replica_groups == 1) return "";
  return absl::StrCat(", in ", spec.replica_groups, " replica groups, averaged ",
                      spec.sync_every_steps == 0
                          ? "when asked"
                          : absl::StrCat("every ", Plural(spec.sync_every_steps, "update")));
}

// Text of the last column for copy number `copy`.
std::string CopyName(const TablePlan& table, std::size_t copy) {
  if (table.grouped()) return absl::StrCat(copy);
  return copy == 0 ? "primary" : "replica";
}

std::string RanksText(std::span<const Rank> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RankRuns(ranks));
}

std::string ChangeText(const MemberChange& change) {
  switch (change.kind) {
    case MemberChange::Kind::kJoin:
      return absl::StrCat(RanksText(change.ranks), " to join");
    case MemberChange::Kind::kClose:
      return absl::StrCat(RanksText(change.ranks), " to be left out");
    case MemberChange::Kind::kFail:
      return absl::StrCat("steps to fail without ", RanksText(change.ranks));
  }
  return "";
}

// Lines about synchronous steps; nothing of other tables.
std::string Steps(const TablePlan& table) {
  if (!table.spec.sync.has_value()) return "";
  const SyncSpec& sync = *table.spec.sync;
  const bool fails = sync.on_silence == OnSilence::kFail;
  std::string text = absl::StrCat(
      "\n  synchronous steps: ", fails ? "they fail when ranks are" : "made without ranks that are",
      " silent for ", absl::FormatDuration(absl::Milliseconds(sync.step_timeout_ms)), "; up to ",
      Plural(sync.steps_ahead_max, "step"), " ahead\n  members: ", MembersText(table.steps));
  if (!table.steps.open.has_value()) return text;
  absl::StrAppend(&text, "\n  change ", table.steps.changes,
                  " is open: ", ChangeText(*table.steps.open),
                  "; no step is made until all nodes have answered");
  return text;
}

std::string Headline(const TablePlan& table) {
  const TableSpec& spec = table.spec;
  return absl::StrCat(spec.name, ": ", FormatCount(spec.rows), " rows x ", spec.dim, " columns ",
                      ToAbsl(NameOf(spec.dtype)), ", ", ToAbsl(NameOf(spec.optimizer.kind)), ", ",
                      FormatBytes(TableBytes(table)), "\n  ", ToAbsl(NameOf(table.sharding)), ": ",
                      Spread(table), Groups(spec), Steps(table));
}

// Load of the tables on a device.
struct Use {
  std::int64_t bytes = 0;
  std::int64_t slices = 0;
};

std::map<DeviceId, Use> UsePerDevice(const Plan& plan) {
  std::map<DeviceId, Use> uses;
  for (const TablePlan& table : plan.tables()) {
    for (const auto& replica : table.replicas) {
      for (const Slice& slice : replica) {
        Use& use = uses[slice.device];
        use.bytes += SliceBytes(table.spec, slice);
        ++use.slices;
      }
    }
  }
  return uses;
}

Json SliceView(const Plan& plan, const TableSpec& spec, const Slice& slice, std::size_t replica) {
  return {{"node", NodeName(plan, slice.device.node)},
          {"device", slice.device.index},
          {"replica", replica},
          {"row_begin", slice.row_begin},
          {"row_end", slice.row_end},
          {"rows", slice.rows()},
          {"column_begin", slice.column_begin},
          {"column_end", slice.column_end},
          {"columns", slice.columns()},
          {"bytes", SliceBytes(spec, slice)}};
}

}  // namespace

std::int64_t TableBytes(const TablePlan& table) {
  std::int64_t bytes = 0;
  for (const auto& replica : table.replicas) {
    for (const Slice& slice : replica) bytes += SliceBytes(table.spec, slice);
  }
  return bytes;
}

std::string MembersText(const StepPlan& steps) {
  if (steps.members.empty()) return "none yet";
  const StepMembers& last = steps.members.back();
  if (last.fails()) {
    return absl::StrCat("none from step ", last.first_step, " on, until ranks join");
  }
  const std::string optional =
      last.optional.empty() ? "" : absl::StrCat(", optional ", RanksText(last.optional));
  const std::string ranks = last.ranks.empty() ? "none" : RanksText(last.ranks);
  return absl::StrCat(ranks, optional, " from step ", last.first_step, " on");
}

std::string TableText(const Plan& plan, const TablePlan& table) {
  std::vector<std::string> titles = {"node",     ">device",      ">rows", "row range",
                                     ">columns", "column range", ">bytes"};
  if (table.replicated()) titles.emplace_back("copy");
  if (table.grouped()) titles.emplace_back(">group");
  TextTable text(titles);
  for (std::size_t r = 0; r < table.replicas.size(); ++r) {
    for (const Slice& slice : table.replicas[r]) {
      std::vector<std::string> cells = {
          NodeName(plan, slice.device.node),
          absl::StrCat(slice.device.index),
          FormatCount(slice.rows()),
          absl::StrCat(slice.row_begin, "..", slice.row_end - 1),
          absl::StrCat(slice.columns()),
          absl::StrCat(slice.column_begin, "..", slice.column_end - 1),
          FormatBytes(SliceBytes(table.spec, slice))};
      if (table.replicas.size() > 1) cells.push_back(CopyName(table, r));
      text.Add(cells);
    }
  }
  return absl::StrCat(Headline(table), "\n", text.Render("  "));
}

Json TableView(const Plan& plan, const TablePlan& table) {
  Json slices = Json::array();
  for (std::size_t r = 0; r < table.replicas.size(); ++r) {
    for (const Slice& slice : table.replicas[r]) {
      slices.push_back(SliceView(plan, table.spec, slice, r));
    }
  }
  Json view = {{"name", table.spec.name},
               {"rows", table.spec.rows},
               {"dim", table.spec.dim},
               {"dtype", NameOf(table.spec.dtype)},
               {"optimizer", NameOf(table.spec.optimizer.kind)},
               {"sharding", NameOf(table.sharding)},
               {"bytes", TableBytes(table)},
               {"slices", slices}};
  if (table.grouped()) {
    view["replica_groups"] = table.spec.replica_groups;
    view["sync_every_steps"] = table.spec.sync_every_steps;
  }
  if (table.spec.sync.has_value()) {
    view["sync"] = Json::parse(TableSpecToJson(table.spec))["sync"];
    view["steps"] = Json::parse(StepPlanToJson(table.steps));
  }
  return view;
}

std::string DevicesText(const Plan& plan) {
  const std::map<DeviceId, Use> uses = UsePerDevice(plan);
  TextTable text({"node", ">device", "kind", ">memory", ">planned", ">share", ">slices"});
  for (const NodeSpec& node : plan.nodes()) {
    for (std::uint32_t index = 0; index < node.devices.size(); ++index) {
      const DeviceSpec& device = node.devices[index];
      const auto found = uses.find({node.id, index});
      const Use use = found == uses.end() ? Use{} : found->second;
      const double share = device.memory_bytes > 0 ? 100.0 * static_cast<double>(use.bytes) /
                                                         static_cast<double>(device.memory_bytes)
                                                   : 0.0;
      text.Add({node.name, absl::StrCat(index), std::string(NameOf(device.kind)),
                FormatBytes(device.memory_bytes), FormatBytes(use.bytes),
                absl::StrFormat("%.1f%%", share), absl::StrCat(use.slices)});
    }
  }
  return text.Render();
}

Json DevicesView(const Plan& plan) {
  const std::map<DeviceId, Use> uses = UsePerDevice(plan);
  Json devices = Json::array();
  for (const NodeSpec& node : plan.nodes()) {
    for (std::uint32_t index = 0; index < node.devices.size(); ++index) {
      const auto found = uses.find({node.id, index});
      const Use use = found == uses.end() ? Use{} : found->second;
      devices.push_back({{"node", node.name},
                         {"device", index},
                         {"kind", NameOf(node.devices[index].kind)},
                         {"memory_bytes", node.devices[index].memory_bytes},
                         {"planned_bytes", use.bytes},
                         {"slices", use.slices}});
    }
  }
  return devices;
}

std::string PlanText(const Plan& plan) {
  std::string text = absl::StrCat("plan version ", ToInt(plan.version()), ": ",
                                  Plural(plan.tables().size(), "table"), " on ",
                                  Plural(plan.nodes().size(), "node"), "\n");
  for (const TablePlan& table : plan.tables()) {
    absl::StrAppend(&text, "\n", TableText(plan, table));
  }
  if (!plan.nodes().empty()) absl::StrAppend(&text, "\n", DevicesText(plan));
  return text;
}

Json PlanView(const Plan& plan) {
  Json tables = Json::array();
  for (const TablePlan& table : plan.tables()) tables.push_back(TableView(plan, table));
  return {{"plan_version", ToInt(plan.version())},
          {"cluster_id", plan.cluster_id()},
          {"tables", tables},
          {"devices", DevicesView(plan)}};
}

}  // namespace embla::cli
