// From N devices to M with the fewest units moved. With n devices chosen and G granules, everyone
// ends with floor(G/n) or one more; who has more than that gives, who has less takes. Ones more go
// to those that have the most, so sum(max(0, have - share)) granules move: no tiling of these
// devices that is balanced to one granule moves fewer. Tests: move_plan_test.cc.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/move_plan.h"
#include "server/coordinator/unit_moves.h"

namespace embla {
namespace {

using Counts = std::map<DeviceId, std::uint32_t>;  // Granules by device.

struct Imbalance {
  Counts surplus;
  Counts deficit;
};

Counts CountsOf(const UnitCut& cut) {
  Counts counts;
  for (const DeviceId device : cut.owners) ++counts[device];
  return counts;
}

std::map<NodeId, std::uint32_t> PerNode(const std::vector<DeviceId>& devices) {
  std::map<NodeId, std::uint32_t> per_node;
  for (const DeviceId device : devices) ++per_node[device.node];
  return per_node;
}

// The holders that stay: on nodes that are not drained, with the most granules, then spread over
// nodes; at most `shards`.
std::vector<DeviceId> Staying(const MoveScope& scope, const Counts& counts, std::uint32_t shards) {
  std::vector<DeviceId> staying;
  for (const auto& [device, count] : counts) {
    if (!scope.drained.contains(device.node)) staying.push_back(device);
  }
  while (staying.size() > shards) {
    const std::map<NodeId, std::uint32_t> per_node = PerNode(staying);
    const auto least = std::ranges::min_element(staying, {}, [&](DeviceId device) {
      return std::tuple(counts.at(device), -std::int64_t{per_node.at(device.node)},
                        -std::int64_t{ToInt(device.node)}, -std::int64_t{device.index});
    });
    staying.erase(least);
  }
  return staying;
}

std::vector<DeviceId> Others(const UnitMoves& moves, const TablePlan& table,
                             const std::vector<DeviceId>& chosen) {
  std::vector<DeviceId> others = moves.TakersOf(table);
  std::erase_if(others,
                [&chosen](DeviceId device) { return std::ranges::count(chosen, device) > 0; });
  return others;
}

// A device beside `chosen`: with room for `bytes`, on the node that has fewest of them, the least
// full.
std::optional<DeviceId> NextDevice(const UnitMoves& moves, const TablePlan& table,
                                   const std::vector<DeviceId>& chosen, std::int64_t bytes) {
  std::map<NodeId, std::uint32_t> per_node = PerNode(chosen);
  std::optional<DeviceId> best;
  const auto rank = [&](DeviceId device) {
    return std::tuple(per_node[device.node], moves.Fullness(table, device), device);
  };
  for (const DeviceId device : Others(moves, table, chosen)) {
    if (moves.FreeBytes(table, device) < bytes) continue;
    if (!best || rank(device) < rank(*best)) best = device;
  }
  return best;
}

Imbalance ImbalanceOf(const Counts& have, std::vector<DeviceId> chosen, std::uint32_t granules) {
  const auto has = [&have](DeviceId device) {
    const auto entry = have.find(device);
    return entry == have.end() ? 0u : entry->second;
  };
  std::ranges::stable_sort(chosen, std::ranges::greater(), has);
  const auto n = static_cast<std::uint32_t>(chosen.size());
  Imbalance imbalance;
  imbalance.surplus = have;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t share = granules / n + (i < granules % n ? 1 : 0);
    const std::uint32_t had = has(chosen[i]);
    imbalance.surplus.erase(chosen[i]);
    if (had > share) imbalance.surplus[chosen[i]] = had - share;
    if (had < share) imbalance.deficit[chosen[i]] = share - had;
  }
  return imbalance;
}

using Matches = std::map<std::pair<DeviceId, DeviceId>, std::uint32_t>;  // By giver and taker.

// Matches giving devices with receiving ones: within nodes first, as such granules do not cross the
// network. Nothing of the imbalance is left.
Matches MatchUp(Imbalance& left) {
  Matches matches;
  for (const bool within_nodes : {true, false}) {
    for (auto& [to, missing] : left.deficit) {
      for (auto& [from, spare] : left.surplus) {
        const std::uint32_t granules = std::min(missing, spare);
        if (granules == 0 || (within_nodes && from.node != to.node)) continue;
        missing -= granules;
        spare -= granules;
        matches[{from, to}] += granules;
      }
    }
  }
  return matches;
}

absl::Status CheckShards(const UnitMoves& moves, const TablePlan& table, std::uint32_t shards) {
  if (shards == 0 || shards > table.spec.row_granules) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.spec.name, " has ", table.spec.row_granules,
                     " row granules: 1 to as many shards, not ", shards));
  }
  const std::size_t takers = moves.TakersOf(table).size();
  if (shards <= takers) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(shards, " shards of table ", table.spec.name, " need as many devices",
                   table.grouped() ? " in each replica group; " : "; ", takers,
                   " are on live nodes that are not drained"));
}

}  // namespace

absl::Status ReshardCut(const MoveScope& scope, const TablePlan& table, std::size_t index,
                        std::uint32_t shards, UnitMoves& moves) {
  const UnitCut cut = moves.CutsOf(table)[index];
  const Counts have = CountsOf(cut);
  std::vector<DeviceId> chosen = Staying(scope, have, shards);
  const std::uint32_t share = table.spec.row_granules / shards;
  const std::int64_t bytes = RunBytes(table.spec, cut, {0, share});
  while (chosen.size() < shards) {
    const std::optional<DeviceId> next = NextDevice(moves, table, chosen, bytes);
    if (!next) return moves.NoRoom(table, bytes, Others(moves, table, chosen));
    chosen.push_back(*next);
  }
  Imbalance imbalance = ImbalanceOf(have, chosen, table.spec.row_granules);
  for (const auto& [way, granules] : MatchUp(imbalance)) {
    moves.Give(table, index, way.first, way.second, granules);
  }
  return absl::OkStatus();
}

absl::StatusOr<MovePlan> PlanReshard(const MoveScope& scope, std::string_view name,
                                     std::uint32_t shards) {
  const TablePlan* const copied = scope.plan.FindTable(name);
  if (copied != nullptr && HasCopies(*copied)) {
    UnitMoves moves(scope);
    EMBLA_RETURN_IF_ERROR(ChangeCopyCount(scope, *copied, shards, moves));
    return moves.Finish();
  }
  EMBLA_ASSIGN_OR_RETURN(const TablePlan* const table, FindMovable(scope.plan, name));
  UnitMoves moves(scope);
  EMBLA_RETURN_IF_ERROR(CheckShards(moves, *table, shards));
  const std::size_t cuts = moves.CutsOf(*table).size();
  for (std::size_t c = 0; c < cuts; ++c) {
    EMBLA_RETURN_IF_ERROR(ReshardCut(scope, *table, c, shards, moves));
  }
  return moves.Finish();
}

}  // namespace embla
