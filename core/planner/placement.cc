// Greedy placement by bytes. Every choice takes the least loaded candidate that still has room,
// ties by id; loads count what is there plus what this table has been given so far.
//
//   rows      a row split over k devices gives each floor(G/k) of the G granules, in the order of
//             devices, and the least loaded ones take one more: equal to one granule
//   columns   equal blocks of ColumnBlockWidth, placed one after the other
//   one node  table_row_wise and table_column_wise try every node and keep the one whose fullest
//             device ends up with the least
//   groups    a table with R replica groups is placed on the first D/R devices of each node, each
//             standing for its R copies: as loaded as the most, as free as the least of them
//
// Tests: placement_test.cc (every random plan validates, order of nodes, balance, memory).
#include "core/planner/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/byte_text.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/plan/replica_groups.h"

namespace embla {
namespace {

constexpr std::uint32_t kMinPartitionDefault = 128;

struct Device {
  DeviceId id;
  std::string_view node_name;  // The node's, which outlives the placement: devices are tried often.
  std::int64_t memory_bytes = 0;
  std::int64_t load_bytes = 0;
  std::uint32_t fullest = 0;  // The index to name when there is no room: its own, or a copy's.

  std::int64_t free_bytes() const { return memory_bytes - load_bytes; }
};
// The allowed devices of one node, by index; never empty.
using NodeDevices = std::vector<Device>;

struct Columns {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

std::int64_t Peak(const NodeDevices& devices) {
  std::int64_t peak = 0;
  for (const Device& device : devices) peak = std::max(peak, device.load_bytes);
  return peak;
}

absl::Status NoRoom(const TableSpec& spec, std::int64_t bytes, const Device& device) {
  return absl::ResourceExhaustedError(
      absl::StrCat("table ", spec.name, " needs ", FormatBytes(bytes), " on device ",
                   device.fullest, " of node ", ToAbsl(device.node_name), ", which has ",
                   FormatBytes(device.free_bytes()), " of ", FormatBytes(device.memory_bytes),
                   " free: ", FormatBytes(bytes - device.free_bytes()), " short"));
}

// Puts `slice` on `device`, or says that there is no room.
absl::Status Put(const TableSpec& spec, Slice slice, Device& device, std::vector<Slice>* slices) {
  const std::int64_t bytes = SliceBytes(spec, slice);
  if (bytes > device.free_bytes()) return NoRoom(spec, bytes, device);
  device.load_bytes += bytes;
  slice.device = device.id;
  slices->push_back(slice);
  return absl::OkStatus();
}

// The least loaded device with room for `bytes`; without one, the one with the most room.
Device& Choose(std::int64_t bytes, const std::vector<Device*>& devices) {
  const auto rank = [bytes](const Device* device) {
    const bool full = bytes > device->free_bytes();
    return std::tuple(full, full ? -device->free_bytes() : device->load_bytes, device->id);
  };
  return **std::min_element(
      devices.begin(), devices.end(),
      [&rank](const Device* a, const Device* b) { return rank(a) < rank(b); });
}

std::vector<Device*> PointersTo(NodeDevices& devices) {
  std::vector<Device*> pointers;
  for (Device& device : devices) pointers.push_back(&device);
  return pointers;
}

std::vector<Device*> PointersTo(std::vector<NodeDevices>& nodes) {
  std::vector<Device*> pointers;
  for (NodeDevices& node : nodes) {
    for (Device& device : node) pointers.push_back(&device);
  }
  return pointers;
}

std::vector<Columns> CutIntoBlocks(const TableSpec& spec, std::uint32_t min_partition) {
  const std::uint32_t width = ColumnBlockWidth(spec, min_partition);
  std::vector<Columns> blocks;
  for (std::uint32_t begin = 0; begin < spec.dim; begin += width) {
    blocks.push_back({begin, begin + width});
  }
  return blocks;
}

// How many row granules each device gets.
std::vector<std::uint32_t> ShareGranules(std::uint32_t granules,
                                         const std::vector<Device*>& devices) {
  const auto count = static_cast<std::uint32_t>(devices.size());
  std::vector<std::uint32_t> by_load(count);
  for (std::uint32_t i = 0; i < count; ++i) by_load[i] = i;
  std::stable_sort(by_load.begin(), by_load.end(), [&](std::uint32_t a, std::uint32_t b) {
    return devices[a]->load_bytes < devices[b]->load_bytes;
  });
  std::vector<std::uint32_t> shares(count, granules / count);
  for (std::uint32_t i = 0; i < granules % count; ++i) ++shares[by_load[i]];
  return shares;
}

absl::Status SplitRows(const TableSpec& spec, Columns columns, const std::vector<Device*>& devices,
                       std::vector<Slice>* slices) {
  const std::vector<std::uint32_t> shares = ShareGranules(spec.row_granules, devices);
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (shares[i] == 0) continue;
    const Slice slice{.row_begin = spec.RowGranuleBegin(first),
                      .row_end = spec.RowGranuleBegin(first + shares[i]),
                      .column_begin = columns.begin,
                      .column_end = columns.end};
    EMBLA_RETURN_IF_ERROR(Put(spec, slice, *devices[i], slices));
    first += shares[i];
  }
  return absl::OkStatus();
}

absl::Status SpreadColumns(const TableSpec& spec, const std::vector<Columns>& blocks,
                           const std::vector<Device*>& devices, std::vector<Slice>* slices) {
  for (const Columns& block : blocks) {
    const Slice slice{
        .row_begin = 0, .row_end = spec.rows, .column_begin = block.begin, .column_end = block.end};
    EMBLA_RETURN_IF_ERROR(Put(spec, slice, Choose(SliceBytes(spec, slice), devices), slices));
  }
  return absl::OkStatus();
}

// Runs `place(node, slices)` on a copy of every node and keeps the node whose fullest device ends
// up with the least. When none has room: the error of the node with the least load.
template <typename Place>
absl::Status OnBestNode(std::vector<NodeDevices>& nodes, std::vector<Slice>* slices,
                        const GivenUp& given_up, const Place& place) {
  absl::Status error;
  std::int64_t error_peak = std::numeric_limits<std::int64_t>::max();
  std::int64_t best_peak = std::numeric_limits<std::int64_t>::max();
  NodeDevices* best = nullptr;
  NodeDevices trial;
  std::vector<Slice> trial_slices;
  for (NodeDevices& node : nodes) {
    if (IsGivenUp(given_up)) return absl::CancelledError("nobody waits for the placement");
    trial = node;
    trial_slices.clear();
    const absl::Status status = place(trial, &trial_slices);
    if (status.ok() && Peak(trial) < best_peak) {
      best_peak = Peak(trial);
      best = &node;
    } else if (!status.ok() && (error.ok() || Peak(node) < error_peak)) {
      error_peak = Peak(node);
      error = status;
    }
  }
  return best == nullptr ? error : place(*best, slices);
}

// One copy on every node; the least loaded chosen device has the primary.
absl::StatusOr<std::vector<std::vector<Slice>>> Replicate(const TableSpec& spec,
                                                          std::vector<NodeDevices>& nodes) {
  const Slice whole{
      .row_begin = 0, .row_end = spec.rows, .column_begin = 0, .column_end = spec.dim};
  std::vector<std::vector<Slice>> replicas;
  std::int64_t least_load = std::numeric_limits<std::int64_t>::max();
  std::size_t primary = 0;
  for (NodeDevices& node : nodes) {
    Device& device = Choose(SliceBytes(spec, whole), PointersTo(node));
    if (device.load_bytes < least_load) {
      least_load = device.load_bytes;
      primary = replicas.size();
    }
    EMBLA_RETURN_IF_ERROR(Put(spec, whole, device, &replicas.emplace_back()));
  }
  std::rotate(replicas.begin(), replicas.begin() + primary, replicas.begin() + primary + 1);
  return replicas;
}

// Column blocks over nodes, each row-split over its node's devices.
absl::Status Grid(const TableSpec& spec, const std::vector<Columns>& blocks,
                  std::vector<NodeDevices>& nodes, std::vector<Slice>* slices,
                  const GivenUp& given_up) {
  for (const Columns& block : blocks) {
    EMBLA_RETURN_IF_ERROR(
        OnBestNode(nodes, slices, given_up, [&](NodeDevices& node, std::vector<Slice>* out) {
          return SplitRows(spec, block, PointersTo(node), out);
        }));
  }
  return absl::OkStatus();
}

absl::Status Tile(const TableSpec& spec, const PlacementRequest& request,
                  std::vector<NodeDevices>& nodes, std::vector<Slice>* slices,
                  const GivenUp& given_up) {
  const Columns all{0, spec.dim};
  const std::vector<Columns> blocks = CutIntoBlocks(spec, request.min_partition);
  switch (request.sharding) {
    case ShardingType::kTableWise:
      return SpreadColumns(spec, {all}, PointersTo(nodes), slices);
    case ShardingType::kColumnWise:
      return SpreadColumns(spec, blocks, PointersTo(nodes), slices);
    case ShardingType::kTableColumnWise:
      return OnBestNode(nodes, slices, given_up, [&](NodeDevices& node, std::vector<Slice>* out) {
        return SpreadColumns(spec, blocks, PointersTo(node), out);
      });
    case ShardingType::kRowWise:
      return SplitRows(spec, all, PointersTo(nodes), slices);
    case ShardingType::kTableRowWise:
      return OnBestNode(nodes, slices, given_up, [&](NodeDevices& node, std::vector<Slice>* out) {
        return SplitRows(spec, all, PointersTo(node), out);
      });
    case ShardingType::kGridShard:
      return Grid(spec, blocks, nodes, slices, given_up);
    case ShardingType::kDataParallel:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("sharding type ", static_cast<int>(request.sharding), " has no tiling"));
}

absl::Status NoTarget(const TableSpec& spec, const std::string& name, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, ": target \"",
                                                 name.substr(0, 128), "\" is no allowed ", what));
}

absl::Status PutOnDevice(const TableSpec& spec, Columns columns, const std::string& name,
                         std::vector<NodeDevices>& nodes, std::vector<Slice>* slices) {
  for (Device* const device : PointersTo(nodes)) {
    if (absl::StrCat(ToAbsl(device->node_name), ":", device->id.index) != name) continue;
    return SpreadColumns(spec, {columns}, {device}, slices);
  }
  return NoTarget(spec, name, "device (they are called node:number)");
}

absl::Status PutOnNode(const TableSpec& spec, Columns columns, const std::string& name,
                       std::vector<NodeDevices>& nodes, std::vector<Slice>* slices) {
  for (NodeDevices& node : nodes) {
    if (node.front().node_name == name) return SplitRows(spec, columns, PointersTo(node), slices);
  }
  return NoTarget(spec, name, "node");
}

// Like Tile, at the places in request.targets.
absl::Status TileAtTargets(const TableSpec& spec, const PlacementRequest& request,
                           std::vector<NodeDevices>& nodes, std::vector<Slice>* slices) {
  const ShardingTraits traits = TraitsOf(request.sharding);
  if (request.sharding == ShardingType::kRowWise) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name, ": row_wise has no targets; name nodes and devices"));
  }
  const std::vector<Columns> blocks = traits.cuts_columns
                                          ? CutIntoBlocks(spec, request.min_partition)
                                          : std::vector<Columns>{{0, spec.dim}};
  if (blocks.size() != request.targets.size()) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, " has ", blocks.size(),
                                                   " column blocks, but there are ",
                                                   request.targets.size(), " targets"));
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    EMBLA_RETURN_IF_ERROR(traits.shares_hosts
                              ? PutOnNode(spec, blocks[b], request.targets[b], nodes, slices)
                              : PutOnDevice(spec, blocks[b], request.targets[b], nodes, slices));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const NodeSpec*>> AllowedNodes(const PlacementRequest& request,
                                                          const std::vector<NodeSpec>& nodes) {
  std::map<NodeId, const NodeSpec*> allowed;
  if (request.nodes.empty()) {
    for (const NodeSpec& node : nodes) allowed.emplace(node.id, &node);
  }
  for (const std::string& name : request.nodes) {
    const auto it = std::find_if(nodes.begin(), nodes.end(),
                                 [&name](const NodeSpec& node) { return node.name == name; });
    if (it == nodes.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no node \"", name.substr(0, 128), "\""));
    }
    allowed.emplace(it->id, &*it);
  }
  if (allowed.empty()) return absl::InvalidArgumentError("there are no nodes to place on");
  std::vector<const NodeSpec*> by_id;
  by_id.reserve(allowed.size());
  for (const auto& [id, node] : allowed) by_id.push_back(node);
  return by_id;
}

absl::StatusOr<NodeDevices> AllowedDevices(const PlacementRequest& request, const NodeSpec& node,
                                           const DeviceLoads& loads) {
  std::vector<std::uint32_t> indices = request.devices;
  if (indices.empty()) {
    for (std::uint32_t i = 0; i < node.devices.size(); ++i) indices.push_back(i);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  NodeDevices devices;
  for (const std::uint32_t index : indices) {
    if (index >= node.devices.size()) {
      return absl::InvalidArgumentError(absl::StrCat("node ", node.name, " has no device ", index,
                                                     ", only ", node.devices.size()));
    }
    const DeviceId id{node.id, index};
    devices.push_back({.id = id,
                       .node_name = node.name,
                       .memory_bytes = node.devices[index].memory_bytes,
                       .load_bytes = loads.Of(id),
                       .fullest = index});
  }
  if (devices.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("node ", node.name, " has no devices"));
  }
  return devices;
}

// The devices of group 0, each standing for the one at its position in every group.
absl::StatusOr<NodeDevices> FoldGroups(const NodeSpec& node, const NodeDevices& devices,
                                       std::uint32_t groups) {
  EMBLA_ASSIGN_OR_RETURN(const std::uint32_t per_group,
                         DevicesPerGroup(node.name, node.devices.size(), groups));
  NodeDevices folded;
  std::size_t copies = 0;
  for (const Device& device : devices) {
    const std::uint32_t position = device.id.index % per_group;
    const auto first = std::find_if(folded.begin(), folded.end(), [position](const Device& other) {
      return other.id.index == position;
    });
    if (device.id.index < per_group) {
      folded.push_back(device);
    } else if (first != folded.end()) {
      ++copies;
      const std::int64_t load_bytes = std::max(first->load_bytes, device.load_bytes);
      const std::int64_t free_bytes = std::min(first->free_bytes(), device.free_bytes());
      if (device.free_bytes() < first->free_bytes()) first->fullest = device.id.index;
      first->load_bytes = load_bytes;
      first->memory_bytes = load_bytes + free_bytes;
    }
  }
  if (!folded.empty() && copies == folded.size() * (groups - 1) &&
      copies + folded.size() == devices.size()) {
    return folded;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the devices allowed on node ", node.name, " are not the same in all ", groups,
      " replica groups: each group has ", per_group, " devices of that node, group 0 the first"));
}

// Group 0's tiling, and its copies on the devices of the other groups.
std::vector<std::vector<Slice>> CopyToGroups(const TableSpec& spec,
                                             const std::vector<const NodeSpec*>& nodes,
                                             const std::vector<Slice>& first) {
  std::vector<std::vector<Slice>> groups(spec.replica_groups, first);
  for (std::uint32_t group = 1; group < groups.size(); ++group) {
    for (Slice& slice : groups[group]) {
      const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const NodeSpec* candidate) {
        return candidate->id == slice.device.node;
      });
      const auto devices = static_cast<std::uint32_t>((*node)->devices.size());
      slice.device.index = DeviceOfGroup(slice.device.index, group, devices / spec.replica_groups);
    }
  }
  return groups;
}

}  // namespace

DeviceLoads::DeviceLoads(const TableList& tables) {
  for (const TablePlan& table : tables) Add(table);
}

void DeviceLoads::Add(const TablePlan& table) {
  for (const std::vector<Slice>& replica : table.replicas) {
    for (const Slice& slice : replica) bytes_[slice.device] += SliceBytes(table.spec, slice);
  }
}

std::int64_t DeviceLoads::Of(DeviceId device) const {
  const auto found = bytes_.find(device);
  return found == bytes_.end() ? 0 : found->second;
}

std::uint32_t ColumnBlockWidth(const TableSpec& spec, std::uint32_t min_partition) {
  const std::uint32_t granule = spec.column_granule_width;
  const std::uint32_t narrowest = min_partition == 0 ? kMinPartitionDefault : min_partition;
  for (std::uint32_t width = granule; width < spec.dim; width += granule) {
    if (width >= narrowest && spec.dim % width == 0) return width;
  }
  return spec.dim;
}

absl::StatusOr<TablePlan> PlaceTable(const TableSpec& spec, const PlacementRequest& request,
                                     const std::vector<NodeSpec>& nodes, const DeviceLoads& loads,
                                     const GivenUp& given_up) {
  TablePlan table;
  table.spec = spec;
  table.spec.SetDefaults();
  table.sharding = request.sharding;
  if (request.automatic) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name, ": sharding auto needs the planner"));
  }
  EMBLA_RETURN_IF_ERROR(table.spec.Validate());
  EMBLA_RETURN_IF_ERROR(CheckShardingFits(table.spec, request.sharding));
  EMBLA_ASSIGN_OR_RETURN(const std::vector<const NodeSpec*> allowed, AllowedNodes(request, nodes));
  std::vector<NodeDevices> candidates;
  for (const NodeSpec* const node : allowed) {
    EMBLA_ASSIGN_OR_RETURN(candidates.emplace_back(), AllowedDevices(request, *node, loads));
    if (!table.grouped() || TraitsOf(request.sharding).has_copies) continue;
    EMBLA_ASSIGN_OR_RETURN(candidates.back(),
                           FoldGroups(*node, candidates.back(), spec.replica_groups));
  }
  if (TraitsOf(request.sharding).has_copies) {
    if (!request.targets.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", spec.name, ": data_parallel has no targets"));
    }
    EMBLA_ASSIGN_OR_RETURN(table.replicas, Replicate(table.spec, candidates));
  } else {
    std::vector<Slice> slices;
    EMBLA_RETURN_IF_ERROR(request.targets.empty()
                              ? Tile(table.spec, request, candidates, &slices, given_up)
                              : TileAtTargets(table.spec, request, candidates, &slices));
    std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::tie(a.column_begin, a.row_begin) < std::tie(b.column_begin, b.row_begin);
    });
    EMBLA_RETURN_IF_ERROR(Annotate(CheckOptimizerFits(table.spec, CutsColumns(table.spec, slices)),
                                   "table " + spec.name));
    table.replicas = CopyToGroups(table.spec, allowed, slices);
  }
  EMBLA_RETURN_IF_ERROR(Annotate(CheckGroupCount(table), "table " + spec.name));
  return table;
}

}  // namespace embla
