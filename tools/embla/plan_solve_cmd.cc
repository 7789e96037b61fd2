#include "tools/embla/plan_solve_cmd.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/planner/checker/checker.h"
#include "core/planner/explain/explain.h"
#include "core/planner/explain/picture.h"
#include "core/planner/io/plan_json.h"
#include "core/planner/problem/machine.h"
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

}  // namespace

absl::Status PlanSolveVerb(const PlanSolveFlags& flags, const std::function<double()>& seconds,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(Problem problem, ProblemFromFlags(flags.input));
  const double start = seconds();
  EMBLA_ASSIGN_OR_RETURN(const Planned planned, planner::Solve(std::move(problem)));
  const double solve_ms = (seconds() - start) * 1e3;
  if (flags.check) {
    EMBLA_RETURN_IF_ERROR(planner::Check(planned.problem, planned.solution).status());
  }
  EMBLA_ASSIGN_OR_RETURN(const planner::Explanation explanation,
                         planner::Explain(planned.problem, planned.solution));
  if (!flags.svg.empty()) {
    EMBLA_RETURN_IF_ERROR(
        WriteFile(flags.svg, planner::PictureOf(planned.problem, planned.solution, explanation)));
  }
  if (output.json) {
    planner::Document json = planner::PlanToJson(planned, explanation, solve_ms);
    if (flags.check) json["checked"] = true;
    output.PutJson(json);
  } else {
    output.out << PlanReport(planned, explanation, {solve_ms, flags.check, flags.all_tables});
  }
  return absl::OkStatus();
}

absl::Status PlanCheckVerb(const std::string& plan, const PlanInputFlags& input,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(plan));
  const absl::StatusOr<planner::StoredPlan> stored = planner::PlanFromJson(text);
  if (!stored.ok()) return Annotate(stored.status(), plan);
  EMBLA_ASSIGN_OR_RETURN(Problem problem, ProblemFromFlags(input));
  EMBLA_ASSIGN_OR_RETURN(
      problem, planner::GroupShare(planner::Canonical(std::move(problem)), stored->replicas));
  EMBLA_RETURN_IF_ERROR(SameInputs(*stored, problem));
  EMBLA_ASSIGN_OR_RETURN(const planner::Solution solution, planner::BindPlan(*stored, problem));
  EMBLA_ASSIGN_OR_RETURN(const CheckReport report, planner::Check(problem, solution));
  const std::string hash = planner::PlanHash(problem, solution);
  if (hash != stored->plan_hash) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan says its hash is ", stored->plan_hash, ", it is ", hash));
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
