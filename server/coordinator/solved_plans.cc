#include "server/coordinator/solved_plans.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

using planner::ProblemDigest;

constexpr std::string_view kSolvedPrefix = "planner/solved/";
constexpr std::size_t kDigestBytes = 64;

struct SolvedPlan {
  std::string key;
  std::int64_t unix_ms = 0;
  ProblemDigest inputs;
  std::string plan;
};

bool IsDigest(const std::string& text) {
  return text.size() == kDigestBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

std::string KeyOf(const ProblemDigest& inputs) {
  return absl::StrCat(ToAbsl(kSolvedPrefix), inputs.tables, inputs.topology, inputs.rules,
                      inputs.options);
}

absl::StatusOr<SolvedPlan> Parse(const StateEntry& entry) {
  SolvedPlan solved{.key = entry.key, .unix_ms = 0, .inputs = {}, .plan = {}};
  const auto parse = [&]() -> absl::Status {
    EMBLA_ASSIGN_OR_RETURN(const Json document, ParseJson(entry.value));
    JsonFields fields(document, "solved plan");
    solved.unix_ms = fields.Signed("unix_ms", 0, INT64_MAX);
    solved.plan = fields.Text("plan");
    JsonFields inputs(fields.Object("inputs"), "inputs");
    EMBLA_RETURN_IF_ERROR(fields.Finish());
    solved.inputs = {.tables = inputs.Text("tables"),
                     .topology = inputs.Text("topology"),
                     .rules = inputs.Text("rules"),
                     .options = inputs.Text("options")};
    return inputs.Finish();
  };
  if (const absl::Status status = parse(); !status.ok()) {
    return absl::DataLossError(
        absl::StrCat("state key ", entry.key, " is not readable: ", status.message()));
  }
  return solved;
}

absl::StatusOr<std::vector<SolvedPlan>> ReadAll(const StateStore& store) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(kSolvedPrefix));
  std::vector<SolvedPlan> all;
  for (const StateEntry& entry : entries) {
    EMBLA_ASSIGN_OR_RETURN(all.emplace_back(), Parse(entry));
  }
  return all;
}

int DifferentParts(const ProblemDigest& a, const ProblemDigest& b) {
  return (a.tables != b.tables) + (a.topology != b.topology) + (a.rules != b.rules) +
         (a.options != b.options);
}

}  // namespace

absl::Status PutSolvedPlan(StateStore& store, const ProblemDigest& inputs,
                           const std::string& plan_json, absl::Time now) {
  for (const std::string& part : {inputs.tables, inputs.topology, inputs.rules, inputs.options}) {
    if (!IsDigest(part)) return absl::InvalidArgumentError("an input's digest is no SHA-256");
  }
  if (plan_json.size() > kSolvedPlanBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", plan_json.size(),
                                                   " bytes; kept are plans of up to ",
                                                   kSolvedPlanBytesMax));
  }
  EMBLA_ASSIGN_OR_RETURN(std::vector<SolvedPlan> all, ReadAll(store));
  const std::string key = KeyOf(inputs);
  std::erase_if(all, [&](const SolvedPlan& solved) { return solved.key == key; });
  std::sort(all.begin(), all.end(), [](const SolvedPlan& a, const SolvedPlan& b) {
    return std::pair(a.unix_ms, a.key) < std::pair(b.unix_ms, b.key);
  });
  std::vector<StateWrite> writes;
  for (std::size_t i = 0; i + kSolvedPlansMax <= all.size(); ++i) {
    writes.push_back({all[i].key, std::nullopt});
  }
  writes.push_back({key, DumpJson({{"unix_ms", absl::ToUnixMillis(now)},
                                   {"inputs",
                                    {{"tables", inputs.tables},
                                     {"topology", inputs.topology},
                                     {"rules", inputs.rules},
                                     {"options", inputs.options}}},
                                   {"plan", plan_json}})});
  return store.Commit({}, writes).status();
}

absl::StatusOr<std::string> FindSolvedPlan(const StateStore& store, const ProblemDigest& inputs) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<SolvedPlan> all, ReadAll(store));
  const SolvedPlan* nearest = nullptr;
  for (const SolvedPlan& solved : all) {
    const int different = DifferentParts(solved.inputs, inputs);
    if (different == 0) return solved.plan;
    if (different == 1 && (nearest == nullptr || solved.unix_ms > nearest->unix_ms)) {
      nearest = &solved;
    }
  }
  if (nearest == nullptr) return absl::NotFoundError("no plan is kept for these inputs");
  return absl::FailedPreconditionError(
      absl::StrCat("the plan that is kept was made for other inputs: ",
                   planner::FirstDifference(nearest->inputs, inputs), " changed"));
}

}  // namespace embla
