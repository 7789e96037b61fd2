#include "tools/embla/verify_cmd.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/embla/invocation.h"
#include "tools/embla/plan_cmd.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"
#include "tools/embla/unit_check.h"

namespace embla::cli {
namespace {

constexpr int kLooksMax = 12;  // With a pause after each.

struct Look {
  Plan plan;
  TableEvidence evidence;
  TableVerdict verdict;
};

// NotFound, Unavailable. Aborted: the plan changed meanwhile.
absl::StatusOr<Look> LookAt(client::Admin& admin, client::Inspector& inspector,
                            const VerifyRequest& request) {
  const std::string& name = request.table;
  Look look;
  look.evidence.groups_synced = request.synced;
  EMBLA_ASSIGN_OR_RETURN(const v1::ListJobsReply reply,
                         admin.Call<v1::ListJobsReply>(v1::ListJobsRequest()));
  look.evidence.job_runs = std::ranges::any_of(
      reply.jobs(), [](const v1::Job& job) { return !client::IsOver(job.state()); });
  EMBLA_ASSIGN_OR_RETURN(look.plan, FetchPlan(admin));
  const TablePlan* const table = look.plan.FindTable(std::string_view(name));
  if (table == nullptr) return absl::NotFoundError(absl::StrCat("there is no table ", name));
  EMBLA_ASSIGN_OR_RETURN(look.evidence.owners, inspector.Owners(name));
  for (const NodeSpec& node : look.plan.nodes()) {
    EMBLA_ASSIGN_OR_RETURN(look.evidence.units[node.id],
                           inspector.UnitsOn(node.address, ToInt(table->spec.id)));
  }
  EMBLA_ASSIGN_OR_RETURN(const Plan after, FetchPlan(admin));
  if (after.version() != look.plan.version()) {
    return absl::AbortedError(absl::StrCat("table ", name,
                                           ": the plan changes all the time; "
                                           "run verify again when no job runs"));
  }
  look.verdict = CheckUnits(look.plan, *table, look.evidence);
  return look;
}

Json ViewOf(const std::string& table, const Look& look) {
  Json findings = Json::array();
  for (const UnitFinding& finding : look.verdict.findings) {
    findings.push_back({{"row_granule", finding.row_granule},
                        {"column_begin", finding.column_begin},
                        {"what", finding.what},
                        {"remedy", finding.remedy}});
  }
  Json units = Json::array();
  for (const auto& [node, held] : look.evidence.units) {
    const NodeSpec* const spec = look.plan.FindNode(node);
    for (const client::UnitOnNode& unit : held) {
      if (unit.state != client::UnitOnNode::State::kServed) continue;
      units.push_back({{"row_granule", unit.row_granule},
                       {"column_begin", unit.column_begin},
                       {"column_end", unit.column_end},
                       {"replica_group", unit.replica_group},
                       {"node", spec == nullptr ? "" : spec->name},
                       {"device", unit.device},
                       {"rows", unit.rows},
                       {"crc32c", absl::StrFormat("%08x", unit.crc32c)}});
    }
  }
  return {{"table", table},
          {"plan_version", ToInt(look.plan.version())},
          {"job_runs", look.evidence.job_runs},
          {"units_expected", look.verdict.units},
          {"rows", look.verdict.rows},
          {"digest", absl::StrFormat("%016x", look.verdict.digest)},
          {"units_without_one_owner", look.verdict.several_owners},
          {"findings", std::move(findings)},
          {"units", std::move(units)}};
}

void Show(const std::string& table, const Look& look, const Output& output) {
  if (output.json) return output.PutJson(ViewOf(table, look));
  const TableVerdict& verdict = look.verdict;
  for (const UnitFinding& finding : verdict.findings) {
    output.out << finding.what << ": " << finding.remedy << "\n";
  }
  output.out << "table " << table << ", plan " << ToInt(look.plan.version()) << ": "
             << FormatCount(static_cast<std::int64_t>(verdict.units)) << " units, "
             << FormatCount(verdict.rows) << " rows, digest "
             << absl::StrFormat("%016x", verdict.digest)
             << (look.evidence.job_runs ? ", a job runs" : "")
             << (verdict.findings.empty() ? ", all well" : "") << "\n";
}

}  // namespace

std::vector<Verb> VerifyVerbs() {
  const auto request = std::make_shared<VerifyRequest>();
  return {{.name = "verify",
           .help = "whether what the nodes hold of a table is what the plan says",
           .arguments = {{"--table", "table name", &request->table},
                         {"--synced",
                          "replica groups were averaged and nobody has trained since: they must be "
                          "equal",
                          &request->synced, false}},
           .run_alone = [request](const Invocation& in) { return in.VerifyTable(*request); }}};
}

absl::Status VerifyTableVerb(client::Admin& admin, client::Inspector& inspector,
                             const VerifyRequest& request, const std::function<void()>& pause,
                             const Output& output) {
  absl::StatusOr<Look> look = absl::AbortedError("");
  for (int i = 0; i < kLooksMax; ++i) {
    if (i > 0) pause();
    look = LookAt(admin, inspector, request);
    if (look.ok() ? look->verdict.findings.empty() : !absl::IsAborted(look.status())) break;
  }
  if (!look.ok()) return look.status();
  Show(request.table, *look, output);
  const std::vector<UnitFinding>& findings = look->verdict.findings;
  if (findings.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(findings.size(), " findings, the first: ",
                                          findings.front().what, "; ", findings.front().remedy));
}

}  // namespace embla::cli
