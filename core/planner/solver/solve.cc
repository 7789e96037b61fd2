#include "core/planner/solver/solve.h"

#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/options.h"
#include "core/planner/solver/portfolio.h"

namespace embla::planner {
namespace {

absl::StatusOr<Solution> SolveGroup(const Problem& problem, const SolveOptions& settings) {
  const Machine machine = MachineOf(problem);
  const std::unique_ptr<CostModel> cost = MakeCostModel(problem);
  EMBLA_ASSIGN_OR_RETURN(const OptionSet options, MakeOptions(problem, machine, *cost));
  const Proof proof = ProveBound(options, machine);
  Portfolio portfolio(options, machine, proof, settings);
  std::optional<Layout> layout = portfolio.Run();
  if (!layout) return absl::ResourceExhaustedError("no plan");
  Solution solution = layout->ToSolution();
  solution.lower_bound = proof.bound;
  solution.certificate = proof.certificate;
  solution.operations = proof.operations + portfolio.operations();
  return solution;
}

}  // namespace

absl::StatusOr<Planned> Solve(Problem problem, const SolveOptions& options) {
  EMBLA_RETURN_IF_ERROR(Validate(problem));
  Planned planned;
  planned.problem = Canonical(std::move(problem));
  EMBLA_ASSIGN_OR_RETURN(planned.solution, SolveGroup(planned.problem, options));
  return planned;
}

}  // namespace embla::planner
