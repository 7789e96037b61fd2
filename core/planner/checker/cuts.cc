#include "core/planner/checker/cuts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/status_macros.h"

namespace embla::planner {
namespace {

template <typename T>
bool Contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool AllowsType(const TableRules& rules, ShardingType type) {
  return rules.types.empty() ? type != ShardingType::kGridShard : Contains(rules.types, type);
}

bool AllowsKernel(const TableRules& rules, ShardingType type, Kernel kernel) {
  if (type == ShardingType::kDataParallel && kernel != Kernel::kDevice) return false;
  return rules.kernels.empty() ? kernel != Kernel::kSsd : Contains(rules.kernels, kernel);
}

bool CutsColumns(ShardingType type) {
  return type == ShardingType::kColumnWise || type == ShardingType::kTableColumnWise ||
         type == ShardingType::kGridShard;
}

// The narrowest allowed block and, with all_widths, every dim / 2^k above it.
std::set<std::uint32_t> Widths(const Problem& problem, const Table& table) {
  const std::uint32_t least =
      table.rules.min_partition != 0 ? table.rules.min_partition : problem.min_partition;
  const std::uint32_t narrowest = ColumnWidth(table.dim, least);
  std::set<std::uint32_t> widths = {narrowest};
  for (std::uint32_t width = table.dim; problem.all_widths && width > narrowest; width /= 2) {
    if (width % 4 != 0) break;
    widths.insert(width);
  }
  return widths;
}

// Whether shards of this cut can keep the distance that `spread` asks for.
bool Spreads(Spread spread, const Cut& cut, const AllowedPlaces& places) {
  if (spread == Spread::kAny || cut.shards() == 1) return true;
  const std::size_t hosts = places.hosts.size();
  const std::size_t devices = places.devices.size();
  switch (cut.type) {
    case ShardingType::kRowWise:
    case ShardingType::kDataParallel:
      return spread == Spread::kDevices || hosts == devices;
    case ShardingType::kColumnWise:
      return cut.shards() <= (spread == Spread::kDevices ? devices : hosts);
    case ShardingType::kGridShard:
      return spread == Spread::kDevices && cut.column_blocks <= places.complete.size();
    case ShardingType::kTableWise:
    case ShardingType::kTableColumnWise:
    case ShardingType::kTableRowWise:  // All shards on one host.
      return spread == Spread::kDevices && cut.shards() <= devices;
  }
  return false;
}

// Numbers of row blocks that `type` may have.
std::set<std::uint32_t> RowBlocks(const Machine& machine, ShardingType type,
                                  const AllowedPlaces& places) {
  switch (type) {
    case ShardingType::kRowWise:
    case ShardingType::kDataParallel:
      return {static_cast<std::uint32_t>(places.devices.size())};
    case ShardingType::kTableRowWise:
    case ShardingType::kGridShard: {
      std::set<std::uint32_t> counts;
      for (const std::uint32_t host : places.complete) counts.insert(machine.devices_of(host));
      return counts;
    }
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise:
      return {1};
  }
  return {};
}

}  // namespace

absl::StatusOr<const AllowedPlaces*> PlaceBook::At(const TableRules& rules) {
  Key key(rules.hosts, rules.devices, rules.groups, rules.pin);
  if (const auto it = places_.find(key); it != places_.end()) return &it->second;
  AllowedPlaces places;
  EMBLA_ASSIGN_OR_RETURN(places.devices, AllowedDevices(problem_, rules));
  places.has.assign(machine_.devices(), 0);
  places.counts.assign(machine_.hosts(), 0);
  for (const std::uint32_t device : places.devices) {
    places.has[device] = 1;
    ++places.counts[machine_.host_of[device]];
  }
  for (std::uint32_t host = 0; host < machine_.hosts(); ++host) {
    if (places.counts[host] > 0) places.hosts.push_back(host);
    if (places.counts[host] == machine_.devices_of(host)) places.complete.push_back(host);
  }
  return &places_.emplace(std::move(key), std::move(places)).first->second;
}

std::vector<Cut> AllowedCuts(const Problem& problem, const Machine& machine, const Table& table,
                             const AllowedPlaces& places) {
  std::vector<Cut> cuts;
  const std::set<std::uint32_t> narrow = Widths(problem, table);
  const std::set<std::uint32_t> whole = {table.dim};
  for (int number = 1; number <= 7; ++number) {
    const auto type = static_cast<ShardingType>(number);
    if (!AllowsType(table.rules, type)) continue;
    for (const std::uint32_t rows : RowBlocks(machine, type, places)) {
      for (const std::uint32_t width : CutsColumns(type) ? narrow : whole) {
        for (int kernel = 0; kernel < kKernels; ++kernel) {
          const Cut cut{type, static_cast<Kernel>(kernel), width, table.dim / width, rows};
          if (!AllowsKernel(table.rules, type, cut.kernel)) continue;
          if (Spreads(table.rules.spread, cut, places)) cuts.push_back(cut);
        }
      }
    }
  }
  return cuts;
}

}  // namespace embla::planner
