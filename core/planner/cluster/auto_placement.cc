#include "core/planner/cluster/auto_placement.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/cluster/cluster_problem.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/units.h"
#include "core/planner/solver/replan.h"

namespace embla::planner {
namespace {

// Sharding types that `auto` tries, simplest first.
std::vector<ShardingType> TypesToTry() {
  std::vector<ShardingType> types =
      TypesWhere([](const ShardingTraits& traits) { return traits.auto_rank > 0; });
  std::sort(types.begin(), types.end(), [](ShardingType a, ShardingType b) {
    return TraitsOf(a).auto_rank < TraitsOf(b).auto_rank;
  });
  return types;
}

absl::Status Restrict(const PlacementRequest& request, const std::vector<NodeSpec>& nodes,
                      Table* table) {
  table->rules.hosts = request.nodes;
  table->rules.min_partition = request.min_partition;
  for (const NodeSpec& node : nodes) {
    const auto& allowed = request.nodes;
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), node.name) == allowed.end()) {
      continue;
    }
    for (const std::uint32_t index : request.devices) {
      if (index >= node.devices.size()) {
        return absl::InvalidArgumentError(absl::StrCat("node ", node.name, " has no device ", index,
                                                       ", only ", node.devices.size()));
      }
      table->rules.devices.push_back(absl::StrCat(node.name, ":", index));
    }
  }
  return absl::OkStatus();
}

struct Candidate {
  ShardingType type;
  Ticks max_load = 0;
  Choice choice;
  Problem problem;
};

// The best placement of the table under one type; none when that type is impossible.
absl::StatusOr<std::optional<Candidate>> Try(const Cluster& cluster, const Table& table,
                                             ShardingType type) {
  Planned previous;
  previous.problem = cluster.problem;
  previous.solution.choices = cluster.choices;
  Problem problem = cluster.problem;
  problem.tables.push_back(table);
  problem.tables.back().rules.types = {type};
  ReplanOptions options;
  options.target_gap_ppm = kNoMoves;
  absl::StatusOr<Replanned> planned = Replan(std::move(problem), previous, options);
  // The error of a type that is allowed but impossible is told when all are.
  if (!planned.ok()) return planned.status();
  // If the memory is so full that other tables would have to move, this type is no choice for now.
  if (!planned->moves.empty()) return std::nullopt;
  const auto& tables = planned->planned.problem.tables;
  const auto own = std::find_if(tables.begin(), tables.end(), [&](const Table& candidate) {
    return candidate.name == table.name;
  });
  return Candidate{type, planned->planned.solution.max_load,
                   planned->planned.solution.choices[own - tables.begin()],
                   std::move(planned->planned.problem)};
}

std::string ReasonOf(const std::vector<Candidate>& candidates, const Candidate& best) {
  std::string reason = absl::StrFormat("%s: max load %.4g ms", std::string(NameOf(best.type)),
                                       MsFromTicks(best.max_load));
  const Candidate* next = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.type == best.type) continue;
    if (next == nullptr || candidate.max_load < next->max_load) next = &candidate;
  }
  if (next != nullptr) {
    absl::StrAppendFormat(&reason, ", next best %s with %.4g ms", std::string(NameOf(next->type)),
                          MsFromTicks(next->max_load));
  }
  return reason;
}

absl::Status CheckMayChoose(const TableSpec& spec, const PlacementRequest& request) {
  if (spec.replica_groups == 1 && request.targets.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name, ": sharding auto is for tables without ",
                   spec.replica_groups > 1 ? "replica groups" : "targets", "; name a type"));
}

// An error among those of many tables says which one it is about.
absl::Status AboutTable(const absl::Status& status, const TableSpec& spec) {
  const std::string table = "table " + spec.name;
  return absl::StrContains(status.message(), table) ? status : Annotate(status, table);
}

// Types without targets keep the restrictions.
absl::StatusOr<PlacementRequest> RequestOf(const Problem& canonical, const TableSpec& spec,
                                           const Choice& choice, const PlacementRequest& wanted) {
  EMBLA_ASSIGN_OR_RETURN(PlacementRequest request, PlacementOf(canonical, spec.name, choice));
  if (request.targets.empty()) {
    request.nodes = wanted.nodes;
    request.devices = wanted.devices;
  }
  return request;
}

// Holds the tables of a cluster to the devices that they are on: shards of a table are alike, so
// which of them lies where changes no load.
void Hold(const std::vector<Choice>& choices, Problem* problem) {
  const Machine machine = MachineOf(*problem);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    TableRules& rules = problem->tables[i].rules;
    for (const std::uint32_t target : choices[i].targets) {
      if (choices[i].placement == Placement::kHosts) {
        rules.hosts.push_back(problem->topology.hosts[target].name);
      } else {
        rules.devices.push_back(DeviceName(*problem, machine, target));
      }
    }
  }
}

// Chooses the placements that minimize the max load of all tables, in the order of `tables`.
absl::StatusOr<std::vector<PlacementRequest>> ChooseTogether(std::span<const TableToPlace> tables,
                                                             const std::vector<NodeSpec>& nodes,
                                                             const TableList& existing) {
  Cluster cluster = ClusterOf(nodes, existing);
  Hold(cluster.choices, &cluster.problem);
  for (const auto& [spec, request] : tables) {
    EMBLA_RETURN_IF_ERROR(CheckMayChoose(spec, request));
    Table table = TableOf(spec);
    EMBLA_RETURN_IF_ERROR(AboutTable(Restrict(request, nodes, &table), spec));
    cluster.problem.tables.push_back(std::move(table));
  }
  EMBLA_ASSIGN_OR_RETURN(const Planned planned, Solve(std::move(cluster.problem)));
  LogInfo("planner", "placements chosen tables=", tables.size(), " reason=",
          absl::StrFormat("max load %.4g ms, proven least %.4g ms",
                          MsFromTicks(planned.solution.max_load),
                          MsFromTicks(planned.solution.lower_bound)));
  absl::flat_hash_map<std::string_view, const Choice*> choices;
  for (std::size_t i = 0; i < planned.problem.tables.size(); ++i) {
    choices.emplace(planned.problem.tables[i].name, &planned.solution.choices[i]);
  }
  std::vector<PlacementRequest> requests;
  requests.reserve(tables.size());
  for (const auto& [spec, request] : tables) {
    EMBLA_ASSIGN_OR_RETURN(requests.emplace_back(),
                           RequestOf(planned.problem, spec, *choices.at(spec.name), request));
  }
  return requests;
}

}  // namespace

absl::StatusOr<AutoPlacement> ChoosePlacement(const TableSpec& spec,
                                              const PlacementRequest& request,
                                              const std::vector<NodeSpec>& nodes,
                                              const TableList& existing, const GivenUp& given_up) {
  EMBLA_RETURN_IF_ERROR(CheckMayChoose(spec, request));
  const Cluster cluster = ClusterOf(nodes, existing);
  Table table = TableOf(spec);
  EMBLA_RETURN_IF_ERROR(Restrict(request, nodes, &table));
  std::vector<Candidate> candidates;
  absl::Status error = absl::ResourceExhaustedError(
      absl::StrCat("table ", spec.name, ": there is room only if other tables move"));
  for (const ShardingType type : TypesToTry()) {
    const auto& allowed = table.rules.types;
    if (std::find(allowed.begin(), allowed.end(), type) == allowed.end()) continue;
    if (IsGivenUp(given_up)) return absl::CancelledError("nobody waits for the placement");
    absl::StatusOr<std::optional<Candidate>> candidate = Try(cluster, table, type);
    if (!candidate.ok()) {
      error = candidate.status();
    } else if (candidate->has_value()) {
      candidates.push_back(**std::move(candidate));
    }
  }
  if (candidates.empty()) return error;
  const Candidate& best = *std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.max_load < b.max_load; });
  AutoPlacement placement;
  EMBLA_ASSIGN_OR_RETURN(placement.request, RequestOf(best.problem, spec, best.choice, request));
  placement.reason = ReasonOf(candidates, best);
  return placement;
}

absl::StatusOr<std::vector<TablePlan>> PlaceTables(std::span<const TableToPlace> tables,
                                                   const std::vector<NodeSpec>& nodes,
                                                   const TableList& existing,
                                                   const GivenUp& given_up) {
  DeviceLoads loads = existing;
  std::vector<TablePlan> placed(tables.size());
  std::vector<std::size_t> automatic;
  std::vector<TablePtr> others = existing.pointers();
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].request.automatic) {
      automatic.push_back(i);
      continue;
    }
    absl::StatusOr<TablePlan> table =
        PlaceTable(tables[i].spec, tables[i].request, nodes, loads, given_up);
    if (!table.ok()) return AboutTable(table.status(), tables[i].spec);
    placed[i] = *std::move(table);
    loads.Add(placed[i]);
    others.push_back(std::make_shared<const TablePlan>(placed[i]));
  }
  if (automatic.empty()) return placed;
  std::vector<TableToPlace> wanted;
  for (const std::size_t i : automatic) {
    wanted.push_back(tables[i]);
    wanted.back().spec.SetDefaults();
    EMBLA_RETURN_IF_ERROR(wanted.back().spec.Validate());
  }
  const TableList beside(std::move(others));
  std::vector<PlacementRequest> chosen;
  if (wanted.size() == 1) {
    EMBLA_ASSIGN_OR_RETURN(
        AutoPlacement placement,
        ChoosePlacement(wanted[0].spec, wanted[0].request, nodes, beside, given_up));
    LogInfo("planner", "placement chosen table=", wanted[0].spec.name,
            " reason=", placement.reason);
    chosen.push_back(std::move(placement.request));
  } else {
    EMBLA_ASSIGN_OR_RETURN(chosen, ChooseTogether(wanted, nodes, beside));
  }
  for (std::size_t i = 0; i < automatic.size(); ++i) {
    TablePlan& table = placed[automatic[i]];
    EMBLA_ASSIGN_OR_RETURN(table, PlaceTable(wanted[i].spec, chosen[i], nodes, loads, given_up));
    loads.Add(table);
  }
  return placed;
}

absl::StatusOr<TablePlan> PlaceOrChoose(const TableSpec& spec, const PlacementRequest& request,
                                        const std::vector<NodeSpec>& nodes,
                                        const TableList& existing, const GivenUp& given_up) {
  const TableToPlace table{spec, request};
  EMBLA_ASSIGN_OR_RETURN(std::vector<TablePlan> placed,
                         PlaceTables({&table, 1}, nodes, existing, given_up));
  return std::move(placed.front());
}

}  // namespace embla::planner
