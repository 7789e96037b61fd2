#include "core/planner/cluster/auto_placement.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/cluster/cluster_problem.h"
#include "core/planner/problem/units.h"
#include "core/planner/solver/replan.h"

namespace embla::planner {
namespace {

// From the simplest.
constexpr ShardingType kTypes[] = {ShardingType::kTableWise,  ShardingType::kTableColumnWise,
                                   ShardingType::kColumnWise, ShardingType::kTableRowWise,
                                   ShardingType::kRowWise,    ShardingType::kGridShard};

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
  // Where the memory is so full that others would have to move, this type is none for now.
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

}  // namespace

absl::StatusOr<AutoPlacement> ChoosePlacement(const TableSpec& spec,
                                              const PlacementRequest& request,
                                              const std::vector<NodeSpec>& nodes,
                                              const TableList& existing, const GivenUp& given_up) {
  if (spec.replica_groups > 1 || !request.targets.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name, ": sharding auto is for tables without ",
                     spec.replica_groups > 1 ? "replica groups" : "targets", "; name a type"));
  }
  const Cluster cluster = ClusterOf(nodes, existing);
  Table table = TableOf(spec);
  EMBLA_RETURN_IF_ERROR(Restrict(request, nodes, &table));
  std::vector<Candidate> candidates;
  absl::Status error = absl::ResourceExhaustedError(
      absl::StrCat("table ", spec.name, ": there is room only if other tables move"));
  for (const ShardingType type : kTypes) {
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
  EMBLA_ASSIGN_OR_RETURN(placement.request, PlacementOf(best.problem, spec.name, best.choice));
  // Types without targets keep the restrictions.
  if (placement.request.targets.empty()) {
    placement.request.nodes = request.nodes;
    placement.request.devices = request.devices;
  }
  placement.reason = ReasonOf(candidates, best);
  return placement;
}

absl::StatusOr<TablePlan> PlaceOrChoose(const TableSpec& spec, const PlacementRequest& request,
                                        const std::vector<NodeSpec>& nodes,
                                        const TableList& existing, const GivenUp& given_up) {
  if (!request.automatic) return PlaceTable(spec, request, nodes, existing, given_up);
  TableSpec whole = spec;
  whole.SetDefaults();
  EMBLA_RETURN_IF_ERROR(whole.Validate());
  EMBLA_ASSIGN_OR_RETURN(const AutoPlacement chosen,
                         ChoosePlacement(whole, request, nodes, existing, given_up));
  LogInfo("planner", "placement chosen table=", spec.name, " reason=", chosen.reason);
  return PlaceTable(whole, chosen.request, nodes, existing, given_up);
}

}  // namespace embla::planner
