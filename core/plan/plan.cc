#include "core/plan/plan.h"

#include <algorithm>
#include <charconv>
#include <ranges>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/plan/replica_groups.h"

namespace embla {
namespace {

constexpr std::size_t kDevicesPerNodeMax = 1024;
constexpr std::size_t kAddressBytesMax = 512;

bool HasPort(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view text = address.substr(colon + 1);
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

absl::Status CheckAddress(std::string_view address) {
  const bool printable =
      std::all_of(address.begin(), address.end(), [](char c) { return c > ' ' && c < 127; });
  const bool unix_socket = address.starts_with("unix:/");
  if (printable && address.size() <= kAddressBytesMax && (unix_socket || HasPort(address))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "address is not host:port with a port of 1 to 65535, nor unix:/path");
}

absl::Status CheckNodes(const std::vector<NodeSpec>& nodes) {
  absl::flat_hash_set<std::string> names;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    EMBLA_RETURN_IF_ERROR(ValidateNode(nodes[i]));
    if (!names.insert(nodes[i].name).second || (i > 0 && nodes[i].id == nodes[i - 1].id)) {
      return absl::InvalidArgumentError(absl::StrCat("two nodes have the id ", ToInt(nodes[i].id),
                                                     " or the name ", nodes[i].name));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDevices(const Plan& plan, const std::vector<Slice>& slices) {
  for (const Slice& slice : slices) {
    const NodeSpec* const node = plan.FindNode(slice.device.node);
    if (node != nullptr && slice.device.index < node->devices.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("slice ", ToString(slice), " is on device ",
                                                   slice.device.index, " of node ",
                                                   ToInt(slice.device.node), ", which is unknown"));
  }
  return absl::OkStatus();
}

absl::Status CheckTable(const Plan& plan, const TablePlan& table) {
  if (table.spec.id == TableId{}) return absl::InvalidArgumentError("table id is 0");
  EMBLA_RETURN_IF_ERROR(table.Validate());
  for (const std::vector<Slice>& replica : table.replicas) {
    EMBLA_RETURN_IF_ERROR(CheckDevices(plan, replica));
  }
  return CheckGroupsMatch(table, plan.nodes());
}

}  // namespace

Plan::Plan(PlanVersion version, std::string cluster_id, std::vector<NodeSpec> nodes,
           TableList tables)
    : version_(version),
      cluster_id_(std::move(cluster_id)),
      nodes_(std::move(nodes)),
      tables_(std::move(tables)) {
  std::ranges::stable_sort(nodes_, {}, &NodeSpec::id);
}

const NodeSpec* Plan::FindNode(NodeId id) const {
  const auto it =
      std::lower_bound(nodes_.begin(), nodes_.end(), id,
                       [](const NodeSpec& node, NodeId wanted) { return node.id < wanted; });
  return it != nodes_.end() && it->id == id ? &*it : nullptr;
}

const NodeSpec* Plan::FindNode(std::string_view name) const {
  const auto it = std::find_if(nodes_.begin(), nodes_.end(),
                               [name](const NodeSpec& node) { return node.name == name; });
  return it == nodes_.end() ? nullptr : &*it;
}

const TablePlan* Plan::FindTable(std::string_view name) const { return tables_.FindServed(name); }

const TablePlan* Plan::FindAside(std::string_view name) const {
  const TablePlan* found = nullptr;
  for (const TablePlan& table : tables_) {
    if (table.aside && table.spec.name == name) found = &table;
  }
  return found;
}

absl::Status Plan::Validate() const { return ValidateAfter(Plan()); }

absl::Status Plan::ValidateAfter(const Plan& before) const {
  const bool has_same_nodes = nodes_ == before.nodes_;
  if (!has_same_nodes) EMBLA_RETURN_IF_ERROR(CheckNodes(nodes_));
  if (!tables_.AreDistinct()) {
    return absl::InvalidArgumentError("two tables have the same id or the same name");
  }
  auto old = before.tables_.pointers().begin();
  const auto old_end = before.tables_.pointers().end();
  for (const TablePtr& table : tables_.pointers()) {
    // Pointers first: to look into 100,000 tables takes longer than anything else here.
    while (old != old_end && *old != table && (*old)->spec.id < table->spec.id) ++old;
    if (old != old_end && *old == table) {
      ++old;
      if (has_same_nodes) continue;
    }
    EMBLA_RETURN_IF_ERROR(Annotate(CheckTable(*this, *table), "plan of table " + table->spec.name));
  }
  return absl::OkStatus();
}

absl::Status ValidateNode(const NodeSpec& node) {
  EMBLA_RETURN_IF_ERROR(ValidateName("node name", node.name));
  const auto check = [&node]() -> absl::Status {
    if (node.id == NodeId{}) return absl::InvalidArgumentError("id is 0");
    EMBLA_RETURN_IF_ERROR(CheckAddress(node.address));
    if (node.devices.empty() || node.devices.size() > kDevicesPerNodeMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.devices.size(), " devices, allowed is 1 to ", kDevicesPerNodeMax));
    }
    for (const DeviceSpec& device : node.devices) {
      if (NameOf(device.kind).empty() || device.memory_bytes < 0) {
        return absl::InvalidArgumentError(absl::StrCat("a device of kind ",
                                                       static_cast<int>(device.kind), " with ",
                                                       device.memory_bytes, " bytes"));
      }
    }
    return absl::OkStatus();
  };
  return Annotate(check(), "node " + node.name);
}

}  // namespace embla
