#include "core/planner/solver/solve.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/level.h"
#include "core/planner/solver/narrow.h"
#include "core/planner/solver/options.h"
#include "core/planner/solver/portfolio.h"
#include "core/planner/solver/replicas.h"
#include "core/planner/solver/shortage.h"

namespace embla::planner {
namespace {

// Beyond these, exhaustive search does not come far.
constexpr std::uint32_t kSearchTablesMax = 64;
constexpr std::uint32_t kSearchDevicesMax = 256;

bool MaySearch(const OptionSet& options, const Machine& machine, const SolveOptions& settings) {
  return settings.search_operations_max > 0 && options.tables() <= kSearchTablesMax &&
         machine.devices() <= kSearchDevicesMax;
}

absl::StatusOr<Solution> SolveGroup(const Problem& problem, const SolveOptions& settings) {
  const Machine machine = MachineOf(problem);
  const std::unique_ptr<CostModel> cost = MakeCostModel(problem);
  EMBLA_ASSIGN_OR_RETURN(const OptionSet options, MakeOptions(problem, machine, *cost));
  const Proof proof = ProveBound(options, machine);
  Portfolio portfolio(options, machine, proof, settings);
  std::optional<Layout> layout = proof.fits ? portfolio.Run() : std::nullopt;
  SearchOutcome found{proof.bound, 0};
  if (proof.fits && MaySearch(options, machine, settings)) {
    const SearchLimits limits{proof.bound, settings.goal_gap_ppm, settings.search_operations_max};
    found = NarrowBySearch(options, machine, proof.prices, limits, &layout);
  }
  if (!layout) {
    return NoPlanError(problem, machine, options, !proof.fits || found.bound == kTicksMax);
  }
  LevelHosts(&*layout);
  Solution solution = layout->ToSolution();
  solution.lower_bound = std::max(proof.bound, found.bound);
  if (found.bound > proof.bound) solution.search_bound = found.bound;
  solution.certificate = proof.certificate;
  solution.operations = proof.operations + portfolio.operations() + found.operations;
  return solution;
}

absl::StatusOr<Planned> PlanGroups(const Problem& canonical, std::uint32_t replicas,
                                   const SolveOptions& options) {
  Planned planned;
  planned.replicas = replicas;
  EMBLA_ASSIGN_OR_RETURN(planned.problem, GroupShare(canonical, replicas));
  EMBLA_ASSIGN_OR_RETURN(planned.solution, SolveGroup(planned.problem, options));
  return planned;
}

}  // namespace

absl::StatusOr<Planned> Solve(Problem problem, const SolveOptions& options) {
  EMBLA_RETURN_IF_ERROR(Validate(problem));
  problem = Canonical(std::move(problem));
  if (problem.replicas != 0) return PlanGroups(problem, problem.replicas, options);
  // The best of all numbers of groups; of equals the fewest. The first error tells why none fits:
  // fewer groups always have more room.
  absl::StatusOr<Planned> best = absl::UnknownError("no number of groups");
  for (const std::uint32_t replicas : ReplicaChoices(problem.topology)) {
    absl::StatusOr<Planned> planned = PlanGroups(problem, replicas, options);
    if (replicas == 1 ||
        (planned.ok() && (!best.ok() || planned->solution.max_load < best->solution.max_load))) {
      best = std::move(planned);
    }
  }
  return best;
}

}  // namespace embla::planner
