#include "tools/embla/cluster_plan_cmd.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"
#include "core/plan/plan_diff.h"
#include "core/plan/plan_json.h"
#include "core/planner/checker/checker.h"
#include "core/planner/cluster/cluster_problem.h"
#include "core/planner/explain/explain.h"
#include "core/planner/placement_json.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/names.h"
#include "core/planner/problem/units.h"
#include "core/planner/solver/solve.h"
#include "tools/embla/plan_cmd.h"
#include "tools/embla/plan_report.h"
#include "tools/embla/table_create_cmd.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

using Json = nlohmann::ordered_json;
using planner::Planned;
using planner::Problem;

absl::StatusOr<std::vector<NodeSpec>> LiveNodes(client::Admin& admin) {
  EMBLA_ASSIGN_OR_RETURN(const v1::ListNodesReply reply,
                         admin.Call<v1::ListNodesReply>(v1::ListNodesRequest()));
  std::vector<NodeSpec> live;
  for (const v1::NodeStatus& status : reply.nodes()) {
    if (!status.live()) continue;
    EMBLA_ASSIGN_OR_RETURN(live.emplace_back(), NodeSpecFromJson(status.node_json()));
  }
  if (live.empty()) return absl::UnavailableError("no node of the cluster is live");
  return live;
}

// Sets rules that are open to what a cluster supports.
void RestrictToCluster(Problem* problem) {
  for (planner::Table& table : problem->tables) {
    if (table.rules.kernels.empty()) table.rules.kernels = {planner::Kernel::kDevice};
    if (!table.rules.types.empty()) continue;
    table.rules.types = TypesWhere(
        [](const ShardingTraits& type) { return type.auto_rank > 0 && !type.must_be_named; });
  }
}

// Tables of the cluster that `problem` does not plan: they stay where they are.
std::vector<TablePlan> OtherTables(const Plan& plan, const Problem& problem) {
  std::vector<TablePlan> others(plan.tables().begin(), plan.tables().end());
  std::erase_if(others, [&](const TablePlan& table) {
    return std::any_of(
        problem.tables.begin(), problem.tables.end(),
        [&](const planner::Table& planned) { return planned.name == table.spec.name; });
  });
  return others;
}

v1::PlanInputs InputsOf(const Problem& canonical) {
  const planner::ProblemDigest digest = planner::DigestOf(canonical);
  v1::PlanInputs inputs;
  inputs.set_tables(digest.tables);
  inputs.set_topology(digest.topology);
  inputs.set_rules(digest.rules);
  inputs.set_options(digest.options);
  return inputs;
}

// The plan that is kept for these inputs. NotFound, or another error that says why there is none.
absl::StatusOr<Planned> FindKept(client::Admin& admin, const Problem& canonical) {
  EMBLA_ASSIGN_OR_RETURN(const v1::SolvedPlan kept,
                         admin.Call<v1::SolvedPlan>(InputsOf(canonical)));
  EMBLA_ASSIGN_OR_RETURN(const planner::StoredPlan stored, planner::PlanFromJson(kept.plan_json()));
  EMBLA_ASSIGN_OR_RETURN(Planned planned, planner::PlannedOf(stored));
  // Any operator may have stored the plan, so it is checked.
  EMBLA_RETURN_IF_ERROR(planner::Check(planned.problem, planned.solution).status());
  return planned;
}

// One table of a plan that is to be applied.
struct Step {
  TableSpec spec;
  PlacementRequest placement;
  bool there = false;
};

absl::StatusOr<TableSpec> SpecOf(const planner::Table& table, const std::string& half) {
  TableSpec spec;
  spec.name = table.name;
  spec.rows = table.rows;
  spec.dim = table.dim;
  spec.optimizer.kind = table.optimizer;
  spec.lookups_per_sample = static_cast<float>(table.lookups_per_sample);
  if (table.element_bytes == 2) {
    EMBLA_ASSIGN_OR_RETURN(spec.dtype, FromName<DType>(half));
  } else if (table.element_bytes != 4) {
    return absl::FailedPreconditionError(absl::StrCat("table ", table.name, " has elements of ",
                                                      table.element_bytes,
                                                      " bytes; a cluster's have 4 or 2"));
  }
  spec.SetDefaults();
  return spec;
}

absl::Status CheckNodes(const Problem& problem, const std::vector<NodeSpec>& nodes) {
  for (const planner::Host& host : problem.topology.hosts) {
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const NodeSpec& candidate) {
      return candidate.name == host.name;
    });
    if (node == nodes.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the plan was made for other inputs: topology changed, there is no live "
                       "node ",
                       host.name));
    }
    if (node->devices.size() != host.devices.size()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the plan was made for other inputs: topology changed, node ", host.name,
                       " has ", node->devices.size(), " devices, the plan ", host.devices.size()));
    }
  }
  return absl::OkStatus();
}

// Whether the table is there already, just so. FailedPrecondition: it is there in another way.
absl::StatusOr<bool> IsThere(const Plan& plan, const Step& step,
                             const std::vector<NodeSpec>& nodes) {
  const TablePlan* const table = plan.FindTable(step.spec.name);
  if (table == nullptr) return false;
  if (table->spec.rows != step.spec.rows || table->spec.dim != step.spec.dim) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", step.spec.name, " is there with ", table->spec.rows, " x ", table->spec.dim,
        " elements, the plan has ", step.spec.rows, " x ", step.spec.dim));
  }
  EMBLA_ASSIGN_OR_RETURN(TablePlan wanted, PlaceTable(table->spec, step.placement, nodes, {}));
  std::int64_t bytes = 0;
  for (const SliceMove& move : MovesBetween(*table, wanted)) bytes += move.bytes;
  if (bytes == 0 && table->replicas.size() == 1) return true;
  return absl::FailedPreconditionError(
      absl::StrCat("table ", step.spec.name, " is there, but elsewhere: ", FormatBytes(bytes),
                   " would have to move"));
}

absl::StatusOr<std::vector<Step>> StepsOf(const planner::StoredPlan& stored, const Plan& plan,
                                          const std::vector<NodeSpec>& nodes,
                                          const std::string& half) {
  if (stored.replicas > 1) {
    return absl::FailedPreconditionError(
        "the plan has replica groups; create such tables with table create --replica-groups");
  }
  EMBLA_ASSIGN_OR_RETURN(const Planned planned, planner::PlannedOf(stored));
  EMBLA_RETURN_IF_ERROR(planner::Check(planned.problem, planned.solution).status());
  EMBLA_RETURN_IF_ERROR(CheckNodes(planned.problem, nodes));
  std::vector<Step> steps;
  for (std::size_t t = 0; t < planned.problem.tables.size(); ++t) {
    const planner::Table& table = planned.problem.tables[t];
    Step step;
    EMBLA_ASSIGN_OR_RETURN(step.spec, SpecOf(table, half));
    EMBLA_ASSIGN_OR_RETURN(step.placement, planner::PlacementOf(planned.problem, table.name,
                                                                planned.solution.choices[t]));
    if (step.placement.targets.empty()) step.placement.nodes = table.rules.hosts;
    EMBLA_ASSIGN_OR_RETURN(step.there, IsThere(plan, step, nodes));
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string NodeName(const Plan& from, const Plan& to, NodeId id) {
  for (const Plan* const plan : {&to, &from}) {
    if (const NodeSpec* const node = plan->FindNode(id)) return node->name;
  }
  return absl::StrCat("node ", ToInt(id));
}

std::string_view WordOf(TableDiff::Kind kind) {
  switch (kind) {
    case TableDiff::Kind::kCreated:
      return "created";
    case TableDiff::Kind::kDropped:
      return "dropped";
    case TableDiff::Kind::kMoved:
      return "moved";
    case TableDiff::Kind::kSpecChanged:
      return "set";
    case TableDiff::Kind::kMembersChanged:
      return "members";
  }
  return "";
}

std::string DeviceName(const Plan& from, const Plan& to, DeviceId device) {
  return absl::StrCat(NodeName(from, to, device.node), ":", device.index);
}

Json DiffView(const Plan& from, const Plan& to, const PlanDiff& diff) {
  Json tables = Json::array();
  for (const TableDiff& table : diff.tables) {
    Json moves = Json::array();
    for (const SliceMove& move : table.moves) {
      moves.push_back({{"rows", {move.row_begin, move.row_end}},
                       {"columns", {move.column_begin, move.column_end}},
                       {"from", DeviceName(from, to, move.from)},
                       {"to", DeviceName(from, to, move.to)},
                       {"bytes", move.bytes}});
    }
    tables.push_back({{"table", table.name},
                      {"change", WordOf(table.kind)},
                      {"bytes", table.bytes},
                      {"moves", std::move(moves)}});
  }
  return {{"from", ToInt(from.version())},       {"to", ToInt(to.version())},
          {"nodes_added", diff.nodes_added},     {"nodes_removed", diff.nodes_removed},
          {"nodes_changed", diff.nodes_changed}, {"moved_bytes", diff.moved_bytes()},
          {"tables", std::move(tables)}};
}

void PutNames(std::string_view what, const std::vector<std::string>& names, const Output& output) {
  if (names.empty()) return;
  output.out << "nodes " << what << ": " << absl::StrJoin(names, ", ") << "\n";
}

void PutDiff(const Plan& from, const Plan& to, const PlanDiff& diff, const Output& output) {
  output.out << "plan " << ToInt(from.version()) << " -> " << ToInt(to.version()) << "\n";
  if (diff.empty()) output.out << "no difference\n";
  PutNames("added", diff.nodes_added, output);
  PutNames("removed", diff.nodes_removed, output);
  PutNames("changed", diff.nodes_changed, output);
  if (diff.tables.empty()) return;
  TextTable text({"table", "change", ">bytes", "rows", "columns", "from", "to"});
  for (const TableDiff& table : diff.tables) {
    text.Add(
        {table.name, std::string(WordOf(table.kind)), FormatBytes(table.bytes), "", "", "", ""});
    for (const SliceMove& move : table.moves) {
      text.Add({"", "", FormatBytes(move.bytes),
                absl::StrCat("[", move.row_begin, ", ", move.row_end, ")"),
                absl::StrCat("[", move.column_begin, ", ", move.column_end, ")"),
                DeviceName(from, to, move.from), DeviceName(from, to, move.to)});
    }
  }
  output.out << text.Render();
}

absl::StatusOr<Plan> FetchPlanAt(client::Admin& admin, std::uint64_t version) {
  if (version == 0) return FetchPlan(admin);
  v1::GetPlanAtRequest request;
  request.set_version(version);
  EMBLA_ASSIGN_OR_RETURN(const v1::Plan plan, admin.Call<v1::Plan>(request));
  return PlanFromJson(plan.json());
}

}  // namespace

absl::Status PlanSolveOnClusterVerb(client::Admin& admin, const PlanSolveFlags& flags,
                                    const std::function<double()>& seconds, const Output& output) {
  if (!flags.prev.empty()) {
    return absl::InvalidArgumentError("--prev does not go with --cluster");
  }
  EMBLA_ASSIGN_OR_RETURN(const std::vector<NodeSpec> nodes, LiveNodes(admin));
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  planner::Topology machines = planner::TopologyOf(nodes, {});
  EMBLA_ASSIGN_OR_RETURN(Problem problem, ProblemFromFlags(flags.input, &machines));
  problem.topology = planner::TopologyOf(nodes, OtherTables(plan, problem));
  RestrictToCluster(&problem);
  problem = planner::Canonical(std::move(problem));
  const absl::StatusOr<Planned> kept = FindKept(admin, problem);
  if (kept.ok()) {
    if (!output.json) output.out << "kept from an earlier solve of the same inputs\n";
    return ShowPlanned(*kept, 0, flags, output);
  }
  if (absl::IsFailedPrecondition(kept.status()) && !output.json) {
    output.out << "solved anew: " << kept.status().message() << "\n";
  }
  const double start = seconds();
  EMBLA_ASSIGN_OR_RETURN(const Planned planned, planner::Solve(problem));
  const double solve_ms = (seconds() - start) * 1e3;
  EMBLA_ASSIGN_OR_RETURN(const planner::Explanation explanation,
                         planner::Explain(planned.problem, planned.solution));
  v1::SolvedPlan solved;
  *solved.mutable_inputs() = InputsOf(problem);
  solved.set_plan_json(planner::PlanToJson(planned, explanation, solve_ms).dump());
  const absl::Status put = admin.Call<v1::PutSolvedPlanReply>(solved).status();
  // A plan that is too long to keep is no worse.
  if (!put.ok() && !output.json) output.out << "not kept: " << put.message() << "\n";
  return ShowPlanned(planned, solve_ms, flags, output);
}

absl::Status PlanApplyVerb(client::Admin& admin, const PlanApplyFlags& flags,
                           const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const planner::StoredPlan stored, ReadPlan(flags.plan));
  EMBLA_ASSIGN_OR_RETURN(const std::vector<NodeSpec> nodes, LiveNodes(admin));
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  EMBLA_ASSIGN_OR_RETURN(const std::vector<Step> steps, StepsOf(stored, plan, nodes, flags.half));
  Json created = Json::array(), unchanged = Json::array();
  std::vector<TableRequest> missing;
  for (const Step& step : steps) {
    (step.there ? unchanged : created).push_back(step.spec.name);
    if (!step.there) missing.push_back({.spec = step.spec, .placement = step.placement});
  }
  if (!missing.empty() && !flags.dry_run) {
    EMBLA_RETURN_IF_ERROR(CreateTables(admin, missing, {}, output).status());
  }
  if (output.json) {
    output.PutJson({{"created", created}, {"unchanged", unchanged}, {"dry_run", flags.dry_run}});
    return absl::OkStatus();
  }
  output.out << (flags.dry_run ? "would create " : "created ") << created.size() << " tables, "
             << unchanged.size() << " are there already\n";
  return absl::OkStatus();
}

absl::Status PlanDiffVerb(client::Admin& admin, std::uint64_t from, std::uint64_t to,
                          const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const Plan after, FetchPlanAt(admin, to));
  if (from == 0) from = std::max<std::uint64_t>(ToInt(after.version()), 2) - 1;
  EMBLA_ASSIGN_OR_RETURN(const Plan before, FetchPlanAt(admin, from));
  const PlanDiff diff = DiffPlans(before, after);
  if (output.json) {
    output.PutJson(DiffView(before, after, diff));
  } else {
    PutDiff(before, after, diff, output);
  }
  return absl::OkStatus();
}

absl::Status PlanExplainVerb(client::Admin& admin, const std::string& table, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const Plan plan, FetchPlan(admin));
  EMBLA_RETURN_IF_ERROR(FindTable(plan, table).status());
  EMBLA_ASSIGN_OR_RETURN(const Planned planned, planner::PlannedOf(plan));
  const std::vector<planner::Table>& tables = planned.problem.tables;
  const auto own = std::find_if(tables.begin(), tables.end(),
                                [&](const planner::Table& other) { return other.name == table; });
  if (own == tables.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", table,
                     " is data_parallel, has replica groups, or has been cut unevenly by "
                     "moves: the planner does not model it"));
  }
  EMBLA_ASSIGN_OR_RETURN(const planner::Explanation explanation,
                         planner::Explain(planned.problem, planned.solution));
  const std::size_t number = own - tables.begin();
  const planner::TableExplanation& why = explanation.tables[number];
  const planner::Choice& choice = planned.solution.choices[number];
  if (output.json) {
    Json view = {{"table", table},
                 {"cut", planner::CutText(choice.cut)},
                 {"reason", std::string(planner::NameOf(why.reason))},
                 {"text", why.text},
                 {"work_ms_per_shard", planner::MsFromTicks(why.price.work)},
                 {"max_load_ms", planner::MsFromTicks(planned.solution.max_load)},
                 {"lower_bound_ms", planner::MsFromTicks(planned.solution.lower_bound)}};
    if (why.runner_up) {
      view["runner_up"] = {{"cut", planner::CutText(why.runner_up->cut)},
                           {"margin_ms", why.runner_up->margin_ms}};
    }
    output.PutJson(view);
    return absl::OkStatus();
  }
  output.out << table << ": " << planner::CutText(choice.cut) << "\n  " << why.text << "\n";
  if (why.runner_up) {
    output.out << absl::StrFormat("  next best: %s, %s\n", planner::CutText(why.runner_up->cut),
                                  MarginText(why.runner_up->margin_ms));
  }
  output.out << absl::StrFormat("  cluster: max load %.4g ms, no plan is below %.4g ms\n",
                                planner::MsFromTicks(planned.solution.max_load),
                                planner::MsFromTicks(planned.solution.lower_bound));
  return absl::OkStatus();
}

absl::Status PlanHistoryVerb(client::Admin& admin, std::uint32_t limit, const Output& output) {
  v1::GetPlanHistoryRequest request;
  request.set_limit(limit);
  EMBLA_ASSIGN_OR_RETURN(const v1::PlanHistory history, admin.Call<v1::PlanHistory>(request));
  Json view = Json::array();
  TextTable text({">version", "time", "cause"});
  for (const v1::PlanChange& change : history.changes()) {
    const absl::Time at = absl::FromUnixMillis(change.unix_ms());
    view.push_back(
        {{"plan_version", change.version()}, {"time", TimeView(at)}, {"cause", change.cause()}});
    text.Add({absl::StrCat(change.version()), TimeText(at), change.cause()});
  }
  if (output.json) {
    output.PutJson(view);
  } else {
    output.out << text.Render();
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
