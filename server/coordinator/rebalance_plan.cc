// The planner's re-plan as moves. It may only place column blocks and rows of blocks elsewhere:
// tables keep their type and their cuts, since moves never cut anew. Tilings that it cannot
// express, as moves have left them, are balanced over the devices they are on. Tests:
// move_plan_test.cc.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/planner/cluster/cluster_problem.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/replan.h"
#include "server/coordinator/move_plan.h"
#include "server/coordinator/unit_moves.h"

namespace embla {
namespace {

std::vector<NodeSpec> Takers(const MoveScope& scope) {
  std::vector<NodeSpec> nodes;
  for (const NodeSpec& node : scope.plan.nodes()) {
    if (scope.live.contains(node.id) && !scope.drained.contains(node.id)) nodes.push_back(node);
  }
  return nodes;
}

class Devices {
 public:
  Devices(const MoveScope& scope, const planner::Problem& canonical)
      : plan_(scope.plan), canonical_(canonical), machine_(planner::MachineOf(canonical)) {}

  DeviceId OfDevice(std::uint32_t device) const {
    const std::uint32_t host = machine_.host_of[device];
    return OfHost(host, device - machine_.host_begin[host]);
  }
  DeviceId OfHost(std::uint32_t host, std::uint32_t index) const {
    return {plan_.FindNode(canonical_.topology.hosts[host].name)->id, index};
  }

 private:
  const Plan& plan_;
  const planner::Problem& canonical_;
  const planner::Machine machine_;
};

// Gives what `choice` has elsewhere, where there is room. Slices are by columns, then rows, as the
// blocks of a choice are.
void GiveAsChosen(const TablePlan& table, const planner::Choice& choice, const Devices& devices,
                  UnitMoves& moves) {
  if (choice.placement == planner::Placement::kEverywhere) return;
  const std::vector<UnitCut> cuts = moves.CutsOf(table);
  if (cuts.size() != choice.targets.size()) return;
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    std::uint32_t block = 0;
    for (GranuleRun run; run.begin < cuts[c].owners.size(); run.begin = run.end, ++block) {
      run.end = RunAround(cuts[c], run.begin).end;
      const DeviceId from = cuts[c].owners[run.begin];
      const DeviceId to = choice.placement == planner::Placement::kHosts
                              ? devices.OfHost(choice.targets[c], block)
                              : devices.OfDevice(choice.targets[c]);
      const std::int64_t bytes = RunBytes(table.spec, cuts[c], run);
      if (from != to && moves.FreeBytes(table, to) >= bytes) moves.GiveRun(table, c, run, to);
    }
  }
}

absl::Status FollowPlanner(const MoveScope& scope, UnitMoves& moves) {
  planner::Cluster cluster = planner::ClusterOf(Takers(scope), scope.plan.tables());
  if (cluster.problem.tables.empty()) return absl::OkStatus();
  planner::Planned previous;
  previous.problem = cluster.problem;
  previous.solution.choices = cluster.choices;
  EMBLA_ASSIGN_OR_RETURN(const planner::Replanned replanned,
                         planner::Replan(cluster.problem, previous));
  const planner::Problem& canonical = replanned.planned.problem;
  const Devices devices(scope, canonical);
  for (std::size_t t = 0; t < canonical.tables.size(); ++t) {
    const auto known =
        std::ranges::find(cluster.problem.tables, canonical.tables[t].name, &planner::Table::name);
    const planner::Choice& chosen = replanned.planned.solution.choices[t];
    if (known == cluster.problem.tables.end()) continue;
    const planner::Choice& before = cluster.choices[known - cluster.problem.tables.begin()];
    if (!(chosen.cut == before.cut)) continue;
    GiveAsChosen(*scope.plan.FindTable(canonical.tables[t].name), chosen, devices, moves);
  }
  return absl::OkStatus();
}

// Whether the granules of a cut differ by more than one between its devices, or some are on nodes
// that take none.
bool IsUneven(const std::vector<DeviceId>& takers, const UnitCut& cut, std::size_t* holders) {
  std::map<DeviceId, std::uint32_t> counts;
  for (const DeviceId device : cut.owners) ++counts[device];
  *holders = counts.size();
  const auto [least, most] =
      std::ranges::minmax_element(counts, {}, [](const auto& entry) { return entry.second; });
  return most->second - least->second > 1 ||
         std::ranges::any_of(counts, [&takers](const auto& entry) {
           return std::ranges::count(takers, entry.first) == 0;
         });
}

void BalanceUneven(const MoveScope& scope, UnitMoves& moves) {
  for (const TablePlan& table : scope.plan.tables()) {
    if (!CheckMovable(table).ok()) continue;
    const std::vector<UnitCut> cuts = CutsOf(table);
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      std::size_t holders = 0;
      if (!IsUneven(moves.TakersOf(table), cuts[c], &holders) || moves.CutsOf(table)[c] != cuts[c])
        continue;
      UnitMoves trial = moves;
      if (ReshardCut(scope, table, c, static_cast<std::uint32_t>(holders), trial).ok() &&
          trial.Finish().ok()) {
        moves = std::move(trial);
      }
    }
  }
}

}  // namespace

absl::StatusOr<MovePlan> PlanRebalance(const MoveScope& scope) {
  UnitMoves moves(scope);
  EMBLA_RETURN_IF_ERROR(FollowPlanner(scope, moves));
  BalanceUneven(scope, moves);
  AddMissingCopies(scope, moves);
  return moves.Finish();
}

}  // namespace embla
