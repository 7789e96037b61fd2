#include "core/planner/cluster/cluster_problem.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"
#include "core/plan/zch_memory.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/replan.h"

namespace embla::planner {
namespace {

// The planner cuts columns in multiples of this.
constexpr std::uint32_t kPlannerGranule = 4;

// Memory and network of a node with CPU devices, GiB/s: orders of magnitude, until measured
// factors say better.
constexpr double kCpuMemory = 20;

// The devices that hold each column block, in the order of rows.
struct Block {
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::vector<std::uint32_t> devices;
};

class Numbers {
 public:
  Numbers(const std::vector<NodeSpec>& nodes, const Problem& canonical)
      : machine_(MachineOf(canonical)) {
    std::map<std::string, std::uint32_t> host_of;
    for (std::uint32_t h = 0; h < canonical.topology.hosts.size(); ++h) {
      host_of.emplace(canonical.topology.hosts[h].name, h);
    }
    for (const NodeSpec& node : nodes) {
      if (const auto it = host_of.find(node.name); it != host_of.end()) {
        hosts_.emplace(node.id, it->second);
      }
    }
  }

  std::optional<std::uint32_t> DeviceOf(DeviceId id) const {
    const auto host = hosts_.find(id.node);
    if (host == hosts_.end() || id.index >= machine_.devices_of(host->second)) return std::nullopt;
    return machine_.host_begin[host->second] + id.index;
  }
  // The host whose devices these are, each once and in order.
  std::optional<std::uint32_t> WholeHost(const std::vector<std::uint32_t>& devices) const {
    const std::uint32_t host = machine_.host_of[devices.front()];
    if (devices.size() != machine_.devices_of(host)) return std::nullopt;
    for (std::uint32_t i = 0; i < devices.size(); ++i) {
      if (devices[i] != machine_.host_begin[host] + i) return std::nullopt;
    }
    return host;
  }
  std::uint32_t host_of(std::uint32_t device) const { return machine_.host_of[device]; }

 private:
  const Machine machine_;
  std::map<NodeId, std::uint32_t> hosts_;
};

// Slices are sorted by columns, then rows. None: a device is unknown, blocks differ in width, or
// rows are shared unevenly or twice by one device.
std::optional<std::vector<Block>> BlocksOf(const TablePlan& table, const Numbers& numbers) {
  std::vector<Block> blocks;
  for (const Slice& slice : table.primary()) {
    const std::optional<std::uint32_t> device = numbers.DeviceOf(slice.device);
    if (!device) return std::nullopt;
    if (blocks.empty() || blocks.back().column_begin != slice.column_begin) {
      blocks.push_back({slice.column_begin, slice.column_end, {}});
    }
    blocks.back().devices.push_back(*device);
  }
  for (const Block& block : blocks) {
    std::vector<std::uint32_t> sorted = block.devices;
    std::sort(sorted.begin(), sorted.end());
    const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    if (twice || block.devices.size() != blocks.front().devices.size() ||
        block.column_end - block.column_begin != blocks.front().column_end) {
      return std::nullopt;
    }
  }
  return blocks;
}

// The most bytes of a row block above the even share, in granules: ceil blocks cost the planner no
// more than one.
bool SharesEvenly(const TablePlan& table, std::size_t row_blocks) {
  const TableSpec& spec = table.spec;
  const std::int64_t most =
      (spec.row_granules + static_cast<std::int64_t>(row_blocks) - 1) / row_blocks;
  return std::all_of(table.primary().begin(), table.primary().end(), [&](const Slice& slice) {
    return slice.rows() <= (most * spec.rows + spec.row_granules - 1) / spec.row_granules + 1;
  });
}

// Whole copies of data_parallel tables come and go, also where there is one.
bool IsExpressible(const TablePlan& table) {
  return !TraitsOf(table.sharding).has_copies && !table.replicated() && !table.grouped();
}

Cut CutOf(const std::vector<Block>& blocks) {
  Cut cut;
  cut.kernel = Kernel::kDevice;
  cut.width = blocks.front().column_end;
  cut.column_blocks = static_cast<std::uint32_t>(blocks.size());
  cut.row_blocks = static_cast<std::uint32_t>(blocks.front().devices.size());
  return cut;
}

// Blocks of whole columns, on any devices.
bool PlaceColumns(const TablePlan& table, const std::vector<Block>& blocks, const Numbers& numbers,
                  Choice* choice) {
  choice->placement = Placement::kShards;
  bool one_host = true;
  for (const Block& block : blocks) {
    choice->targets.push_back(block.devices.front());
    one_host = one_host && numbers.host_of(block.devices.front()) ==
                               numbers.host_of(blocks.front().devices.front());
  }
  if (blocks.size() == 1) {
    choice->cut.type = ShardingType::kTableWise;
  } else if (one_host && table.sharding == ShardingType::kTableColumnWise) {
    choice->cut.type = ShardingType::kTableColumnWise;
  } else {
    choice->cut.type = ShardingType::kColumnWise;
  }
  return true;
}

// Blocks whose rows are shared: over all the table's devices, or over whole nodes.
bool PlaceRows(const TablePlan& table, const std::vector<Block>& blocks, const Numbers& numbers,
               Choice* choice) {
  if (!SharesEvenly(table, choice->cut.row_blocks)) return false;
  if (blocks.size() == 1 && table.sharding == ShardingType::kRowWise) {
    choice->cut.type = ShardingType::kRowWise;
    choice->placement = Placement::kEverywhere;
    return true;
  }
  choice->cut.type = blocks.size() == 1 ? ShardingType::kTableRowWise : ShardingType::kGridShard;
  choice->placement = Placement::kHosts;
  for (const Block& block : blocks) {
    const std::optional<std::uint32_t> host = numbers.WholeHost(block.devices);
    if (!host) return false;
    choice->targets.push_back(*host);
  }
  return true;
}

}  // namespace

Cluster ClusterOf(const std::vector<NodeSpec>& nodes, const TableList& tables) {
  Cluster cluster;
  cluster.problem.topology = TopologyOf(nodes, {});
  cluster.problem.cost = CostKind::kEmbla;
  cluster.problem.reservation.fraction = 0;
  const Problem bare = Canonical(cluster.problem);
  std::vector<std::pair<std::string, Choice>> choices;
  std::vector<TablePlan> others;
  for (const TablePlan& table : tables) {
    std::optional<Choice> choice = ChoiceOf(table, nodes, bare);
    if (!choice) {
      others.push_back(table);
      continue;
    }
    Table planned = TableOf(table.spec);
    planned.rules.types = {choice->cut.type};
    if (choice->cut.column_blocks > 1) planned.rules.min_partition = choice->cut.width;
    if (choice->placement == Placement::kEverywhere) {
      for (const Slice& slice : table.primary()) {
        const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const NodeSpec& candidate) {
          return candidate.id == slice.device.node;
        });
        planned.rules.devices.push_back(absl::StrCat(node->name, ":", slice.device.index));
      }
    }
    cluster.problem.tables.push_back(std::move(planned));
    choices.emplace_back(table.spec.name, *std::move(choice));
  }
  cluster.problem.topology = TopologyOf(nodes, others);
  cluster.problem = Canonical(std::move(cluster.problem));
  std::sort(choices.begin(), choices.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [name, choice] : choices) cluster.choices.push_back(std::move(choice));
  return cluster;
}

namespace {

// Bandwidth of a device's memory, GiB/s.
double MemoryBandwidth(const DeviceSpec& device) {
  if (device.memory_bytes_per_second > 0) {
    return static_cast<double>(device.memory_bytes_per_second) / (1 << 30);
  }
  return device.kind == DeviceKind::kCpu ? kCpuMemory : Bandwidths().device_memory;
}

// Bandwidths of the fastest memory, and of the slowest link between two devices of a node.
Bandwidths BandwidthsOf(const std::vector<NodeSpec>& nodes) {
  Bandwidths bandwidth;
  double fastest = 0;
  for (const NodeSpec& node : nodes) {
    for (const DeviceSpec& device : node.devices) {
      fastest = std::max(fastest, MemoryBandwidth(device));
      if (device.kind == DeviceKind::kCpu) {
        bandwidth.host_memory = bandwidth.intra_host = kCpuMemory;
      } else if (!device.peer_access && node.devices.size() > 1) {
        bandwidth.intra_host = std::min(bandwidth.intra_host, bandwidth.host_to_device);
      }
    }
  }
  if (fastest > 0) bandwidth.device_memory = fastest;
  return bandwidth;
}

// How much longer the device takes than the fastest one.
double Slowdown(const DeviceSpec& device, const Bandwidths& bandwidth) {
  return std::clamp(bandwidth.device_memory / MemoryBandwidth(device), 1.0, kSlowdownMax);
}

}  // namespace

Topology TopologyOf(const std::vector<NodeSpec>& nodes, const TableList& tables) {
  const DeviceLoads used = tables;
  Topology topology;
  topology.bandwidth = BandwidthsOf(nodes);
  for (const NodeSpec& node : nodes) {
    Host host;
    host.name = node.name;
    for (std::uint32_t i = 0; i < node.devices.size(); ++i) {
      const std::int64_t free = node.devices[i].memory_bytes - used.Of({node.id, i});
      host.devices.push_back({.memory_bytes = std::max<std::int64_t>(free, 0),
                              .slowdown = Slowdown(node.devices[i], topology.bandwidth)});
    }
    // Buffers of requests; not what a plan is short of.
    host.memory_bytes = std::int64_t{1} << 50;
    topology.hosts.push_back(std::move(host));
  }
  return topology;
}

Table TableOf(const TableSpec& spec) {
  Table table;
  table.name = spec.name;
  table.rows = spec.rows;
  table.dim = spec.dim;
  table.element_bytes = ElementBytes(spec.dtype);
  if (spec.zch.has_value()) {
    table.slot_bytes = static_cast<std::uint32_t>(IdMapBytesPerSlot(*spec.zch));
  }
  table.optimizer = spec.optimizer.kind;
  table.lookups_per_sample = spec.lookups_per_sample;
  table.rules.kernels = {Kernel::kDevice};
  const bool cuts_columns = !spec.zch.has_value() && spec.column_granule_width == kPlannerGranule &&
                            CheckOptimizerFits(spec, /*cuts_columns=*/true).ok();
  table.rules.types = TypesWhere([&](const ShardingTraits& type) {
    return type.auto_rank > 0 && (cuts_columns || !type.cuts_columns);
  });
  return table;
}

std::optional<Choice> ChoiceOf(const TablePlan& table, const std::vector<NodeSpec>& nodes,
                               const Problem& canonical) {
  if (!IsExpressible(table)) return std::nullopt;
  const Numbers numbers(nodes, canonical);
  const std::optional<std::vector<Block>> blocks = BlocksOf(table, numbers);
  if (!blocks) return std::nullopt;
  Choice choice;
  choice.cut = CutOf(*blocks);
  const bool placed = choice.cut.row_blocks == 1 ? PlaceColumns(table, *blocks, numbers, &choice)
                                                 : PlaceRows(table, *blocks, numbers, &choice);
  if (!placed) return std::nullopt;
  return choice;
}

absl::StatusOr<PlacementRequest> PlacementOf(const Problem& canonical, const std::string& table,
                                             const Choice& choice) {
  if (choice.cut.kernel != Kernel::kDevice) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", table,
                     ": the plan keeps rows outside device memory, which shard servers do not "
                     "do; allow kernel device only"));
  }
  if (TraitsOf(choice.cut.type).has_copies) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", table,
                     ": the plan has a copy on every device; a cluster's "
                     "data_parallel tables have one per node: exclude data_parallel"));
  }
  PlacementRequest request;
  request.sharding = choice.cut.type;
  request.min_partition = choice.cut.width;
  const Machine machine = MachineOf(canonical);
  for (const std::uint32_t target : choice.targets) {
    request.targets.push_back(choice.placement == Placement::kHosts
                                  ? canonical.topology.hosts[target].name
                                  : DeviceName(canonical, machine, target));
  }
  return request;
}

absl::StatusOr<Planned> PlannedOf(const Plan& plan) {
  Cluster cluster = ClusterOf(plan.nodes(), plan.tables());
  Planned previous;
  previous.problem = cluster.problem;
  previous.solution.choices = std::move(cluster.choices);
  // Other types are allowed, too: the bound and the runners-up compare with them.
  for (Table& table : cluster.problem.tables) {
    const std::vector<ShardingType> types = TableOf(plan.FindTable(table.name)->spec).rules.types;
    table.rules.types.insert(table.rules.types.end(), types.begin(), types.end());
  }
  ReplanOptions options;
  options.target_gap_ppm = kNoMoves;
  EMBLA_ASSIGN_OR_RETURN(Replanned replanned,
                         Replan(std::move(cluster.problem), previous, options));
  return std::move(replanned.planned);
}

}  // namespace embla::planner
