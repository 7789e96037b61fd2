#include "core/plan/replica_groups.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

const NodeSpec* Find(const std::vector<NodeSpec>& nodes, NodeId id) {
  const auto it = std::find_if(nodes.begin(), nodes.end(),
                               [id](const NodeSpec& node) { return node.id == id; });
  return it == nodes.end() ? nullptr : &*it;
}

absl::Status CheckCopy(const Slice& first, const Slice& copy, std::uint32_t group,
                       const TableSpec& spec, const std::vector<NodeSpec>& nodes) {
  const NodeSpec* const node = Find(nodes, first.device.node);
  if (node == nullptr) return absl::InvalidArgumentError("a slice is on an unknown node");
  EMBLA_ASSIGN_OR_RETURN(const std::uint32_t per_group,
                         DevicesPerGroup(node->name, node->devices.size(), spec.replica_groups));
  Slice expected = first;
  expected.device.index = DeviceOfGroup(first.device.index, group, per_group);
  if (first.device.index < per_group && copy == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the slice at row ", first.row_begin, ", column ", first.column_begin, " is on device ",
      first.device.index, " of node ", node->name, " in group 0, so group ", group,
      " must have the same one on device ", expected.device.index, " of that node"));
}

}  // namespace

absl::StatusOr<std::uint32_t> DevicesPerGroup(const std::string& node_name, std::size_t devices,
                                              std::uint32_t groups) {
  if (groups >= 1 && devices % groups == 0) return static_cast<std::uint32_t>(devices / groups);
  return absl::InvalidArgumentError(absl::StrCat(
      "node ", node_name, " has ", devices, " devices, which cannot be divided into ", groups,
      " replica groups of the same size; choose a divisor of every node's number of devices"));
}

absl::Status CheckGroupCount(const TablePlan& table) {
  if (!table.grouped()) return absl::OkStatus();
  if (TraitsOf(table.sharding).has_copies) {
    return absl::InvalidArgumentError(
        "a data_parallel table has an equal copy on every node already: it has no replica groups");
  }
  if (table.replicas.size() == table.spec.replica_groups) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there are ", table.replicas.size(),
                                                 " copies for ", table.spec.replica_groups,
                                                 " replica groups"));
}

absl::Status CheckGroupsMatch(const TablePlan& table, const std::vector<NodeSpec>& nodes) {
  if (!table.grouped()) return absl::OkStatus();
  const std::vector<Slice>& first = table.replicas.front();
  for (std::uint32_t group = 0; group < table.replicas.size(); ++group) {
    const std::vector<Slice>& copy = table.replicas[group];
    if (copy.size() != first.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "group 0 has ", first.size(), " slices, group ", group, " has ", copy.size()));
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      EMBLA_RETURN_IF_ERROR(CheckCopy(first[i], copy[i], group, table.spec, nodes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const TableSpec& table, std::uint32_t group) {
  if (group < table.replica_groups) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", table.name, " has replica groups 0 to ",
                                                 table.replica_groups - 1, ", not ", group));
}

}  // namespace embla
