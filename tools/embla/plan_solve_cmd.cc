#include "tools/embla/plan_solve_cmd.h"

#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/planner/checker/checker.h"
#include "core/planner/explain/explain.h"
#include "core/planner/explain/picture.h"
#include "core/planner/io/plan_json.h"
#include "core/planner/io/stored_plan.h"
#include "core/planner/problem/machine.h"
#include "core/planner/solver/replan.h"
#include "core/planner/solver/replicas.h"
#include "core/planner/solver/solve.h"
#include "tools/embla/plan_report.h"

namespace embla::cli {
namespace {

using planner::CheckReport;
using planner::MsFromTicks;
using planner::Planned;
using planner::Problem;

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

// The plan was made for these inputs.
absl::Status SameInputs(const planner::StoredPlan& plan, const Problem& problem) {
  const std::string part = planner::FirstDifference(plan.inputs, planner::DigestOf(problem));
  if (part.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the plan was made for other inputs: ", part, " changed"));
}

// A previous plan is trusted no more than any other file.
absl::StatusOr<Planned> ReadPrevious(const std::string& path) {
  EMBLA_ASSIGN_OR_RETURN(const planner::StoredPlan stored, ReadPlan(path));
  absl::StatusOr<Planned> planned = planner::PlannedOf(stored);
  if (!planned.ok()) return Annotate(planned.status(), path);
  EMBLA_RETURN_IF_ERROR(
      Annotate(planner::Check(planned->problem, planned->solution).status(), path));
  return planned;
}

// By table of the new plan: it was in the old one, and nothing of it moves.
std::vector<bool> KeptTables(const planner::Replanned& replanned, const Planned& previous) {
  const std::vector<planner::Table>& tables = replanned.planned.problem.tables;
  absl::flat_hash_set<std::string> old;
  for (const planner::Table& table : previous.problem.tables) old.insert(table.name);
  std::vector<bool> kept(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) kept[t] = old.contains(tables[t].name);
  for (const planner::Move& move : replanned.moves) kept[move.table] = false;
  return kept;
}

// A plan, made afresh or from a previous one.
struct Outcome {
  planner::Replanned replanned;
  std::vector<bool> kept;  // Empty without a previous plan.

  const Planned& planned() const { return replanned.planned; }
  bool is_replan() const { return !kept.empty(); }
};

absl::StatusOr<Outcome> SolveOrReplan(const PlanSolveFlags& flags, Problem problem,
                                      const Planned* previous) {
  Outcome outcome;
  if (previous == nullptr) {
    EMBLA_ASSIGN_OR_RETURN(outcome.replanned.planned, planner::Solve(std::move(problem)));
    return outcome;
  }
  planner::ReplanOptions options;
  options.target_gap_ppm = static_cast<std::int64_t>(flags.target_gap_percent * 10'000);
  EMBLA_ASSIGN_OR_RETURN(outcome.replanned,
                         planner::Replan(std::move(problem), *previous, options));
  outcome.kept = KeptTables(outcome.replanned, *previous);
  return outcome;
}

// Prints the plan: checked, explained, drawn.
absl::Status Show(const Outcome& outcome, double solve_ms, const PlanSolveFlags& flags,
                  const Output& output) {
  const Planned& planned = outcome.planned();
  if (flags.check) {
    EMBLA_RETURN_IF_ERROR(planner::Check(planned.problem, planned.solution).status());
  }
  EMBLA_ASSIGN_OR_RETURN(const planner::Explanation explanation,
                         planner::Explain(planned.problem, planned.solution, outcome.kept));
  if (!flags.svg.empty()) {
    EMBLA_RETURN_IF_ERROR(
        WriteFile(flags.svg, planner::PictureOf(planned.problem, planned.solution, explanation)));
  }
  if (output.json) {
    planner::Document json = outcome.is_replan()
                                 ? planner::ReplanToJson(outcome.replanned, explanation, solve_ms)
                                 : planner::PlanToJson(planned, explanation, solve_ms);
    if (flags.check) json["checked"] = true;
    output.PutJson(json);
    return absl::OkStatus();
  }
  output.out << PlanReport(planned, explanation, {solve_ms, flags.check, flags.all_tables});
  if (outcome.is_replan()) output.out << MovesReport(outcome.replanned, flags.all_tables);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<planner::StoredPlan> ReadPlan(const std::string& path) {
  EMBLA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  absl::StatusOr<planner::StoredPlan> plan = planner::PlanFromJson(text);
  if (!plan.ok()) return Annotate(plan.status(), path);
  return plan;
}

absl::Status ShowPlanned(const Planned& planned, double solve_ms, const PlanSolveFlags& flags,
                         const Output& output) {
  Outcome outcome;
  outcome.replanned.planned = planned;
  return Show(outcome, solve_ms, flags, output);
}

absl::Status PlanSolveVerb(const PlanSolveFlags& flags, const std::function<double()>& seconds,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(Problem problem, ProblemFromFlags(flags.input));
  std::optional<Planned> previous;
  if (!flags.prev.empty()) {
    EMBLA_ASSIGN_OR_RETURN(previous, ReadPrevious(flags.prev));
  }
  const double start = seconds();
  EMBLA_ASSIGN_OR_RETURN(
      const Outcome outcome,
      SolveOrReplan(flags, std::move(problem), previous.has_value() ? &*previous : nullptr));
  return Show(outcome, (seconds() - start) * 1e3, flags, output);
}

absl::Status PlanCheckVerb(const std::string& plan, const PlanInputFlags& input,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const planner::StoredPlan stored, ReadPlan(plan));
  Problem problem = stored.problem;
  if (!input.tables.empty()) {
    EMBLA_ASSIGN_OR_RETURN(problem, ProblemFromFlags(input));
    EMBLA_ASSIGN_OR_RETURN(
        problem, planner::GroupShare(planner::Canonical(std::move(problem)), stored.replicas));
  }
  EMBLA_RETURN_IF_ERROR(SameInputs(stored, problem));
  EMBLA_ASSIGN_OR_RETURN(const planner::Solution solution, planner::BindPlan(stored, problem));
  EMBLA_ASSIGN_OR_RETURN(const CheckReport report, planner::Check(problem, solution));
  const std::string hash = planner::PlanHash(problem, solution);
  if (hash != stored.plan_hash) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan says its hash is ", stored.plan_hash, ", it is ", hash));
  }
  if (output.json) {
    output.PutJson({{"accepted", true},
                    {"plan_hash", hash},
                    {"max_load_ms", MsFromTicks(report.max_load)},
                    {"proven_bound_ms", MsFromTicks(report.proven_bound)},
                    {"proven_gap", report.proven_gap},
                    {"claimed_search_bound_ms", MsFromTicks(report.claimed_search_bound)}});
    return absl::OkStatus();
  }
  output.out << absl::StrFormat(
      "accepted: every table placed once and as its rules allow, all memory holds, loads are as "
      "stated\nmax load %.6g ms, no plan is below %.6g ms: gap at most %.3f %%\n",
      MsFromTicks(report.max_load), MsFromTicks(report.proven_bound), 100 * report.proven_gap);
  if (report.claimed_search_bound > 0) {
    output.out << absl::StrFormat(
        "not checked: the plan claims a bound of %.6g ms by exhaustive search\n",
        MsFromTicks(report.claimed_search_bound));
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
