#include "tools/embla/plan_input.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/planner/io/csv.h"
#include "core/planner/io/problem_json.h"
#include "core/planner/io/table_json.h"
#include "core/planner/io/topology_json.h"
#include "core/planner/problem/names.h"
#include "tools/embla/yaml.h"

namespace embla::cli {
namespace {

using planner::Document;
using planner::Problem;

bool EndsWith(const std::string& path, std::string_view ending) {
  return std::string_view(path).ends_with(ending);
}

absl::StatusOr<Document> DocumentFromText(const std::string& path, const std::string& text) {
  if (!EndsWith(path, ".yaml") && !EndsWith(path, ".yml")) return planner::ParseDocument(text);
  EMBLA_ASSIGN_OR_RETURN(const nlohmann::json json, JsonFromYaml(text));
  return planner::ParseDocument(
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

absl::StatusOr<Document> ReadDocument(const std::string& path) {
  EMBLA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  absl::StatusOr<Document> document = DocumentFromText(path, text);
  if (!document.ok()) return Annotate(document.status(), path);
  return document;
}

// The kind of a file with tables shows in its first character, if not in its name.
bool LooksLikeCsv(const std::string& path, const std::string& text) {
  if (EndsWith(path, ".csv")) return true;
  if (EndsWith(path, ".json") || EndsWith(path, ".yaml") || EndsWith(path, ".yml")) return false;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos || (text[first] != '{' && text[first] != '[');
}

absl::Status AddTables(const std::string& path, Problem* problem) {
  EMBLA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  if (LooksLikeCsv(path, text)) {
    EMBLA_ASSIGN_OR_RETURN(problem->tables, planner::TablesFromCsv(text));
    return absl::OkStatus();
  }
  EMBLA_ASSIGN_OR_RETURN(const Document document, DocumentFromText(path, text));
  return planner::ReadProblem(document, problem);
}

absl::Status AddTopology(const PlanInputFlags& flags, Problem* problem) {
  planner::TopologyDefaults defaults;
  if (!flags.device_memory.empty()) {
    EMBLA_ASSIGN_OR_RETURN(defaults.device_bytes, planner::BytesFromText(flags.device_memory));
  }
  if (planner::IsTopologyWord(flags.topology)) {
    EMBLA_ASSIGN_OR_RETURN(problem->topology, planner::TopologyFromWord(flags.topology, defaults));
    return absl::OkStatus();
  }
  if (!flags.device_memory.empty()) {
    return absl::InvalidArgumentError("--device-memory is for --topology HxD; a file has its own");
  }
  if (flags.topology.empty()) {
    if (!problem->topology.hosts.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--topology is missing: a file, or as 2x8");
  }
  EMBLA_ASSIGN_OR_RETURN(const Document document, ReadDocument(flags.topology));
  absl::StatusOr<planner::Topology> topology = planner::TopologyFromJson(document);
  if (!topology.ok()) return Annotate(topology.status(), flags.topology);
  problem->topology = *std::move(topology);
  return absl::OkStatus();
}

absl::Status AddOptions(const PlanInputFlags& flags, Problem* problem) {
  if (flags.batch >= 0) problem->local_batch = flags.batch;
  if (flags.reserve >= 0) problem->reservation.fraction = flags.reserve;
  if (!flags.cost.empty()) {
    EMBLA_ASSIGN_OR_RETURN(problem->cost, planner::CostKindFromName(flags.cost));
  }
  if (flags.replicas == "auto") {
    problem->replicas = 0;
  } else if (!flags.replicas.empty() &&
             (!absl::SimpleAtoi(flags.replicas, &problem->replicas) || problem->replicas < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--replicas ", flags.replicas, " is neither a number above 0 nor auto"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

absl::StatusOr<Problem> ProblemFromFlags(const PlanInputFlags& flags,
                                         const planner::Topology* machines) {
  Problem problem;
  EMBLA_RETURN_IF_ERROR(Annotate(AddTables(flags.tables, &problem), flags.tables));
  if (machines == nullptr) {
    EMBLA_RETURN_IF_ERROR(AddTopology(flags, &problem));
  } else if (flags.topology.empty() && flags.device_memory.empty()) {
    problem.topology = *machines;
  } else {
    return absl::InvalidArgumentError("--topology and --device-memory do not go with --cluster");
  }
  if (!flags.constraints.empty()) {
    EMBLA_ASSIGN_OR_RETURN(const Document rules, ReadDocument(flags.constraints));
    EMBLA_RETURN_IF_ERROR(
        Annotate(planner::ApplyConstraints(rules, &problem.tables), flags.constraints));
  }
  if (!flags.calibration.empty()) {
    EMBLA_ASSIGN_OR_RETURN(const Document factors, ReadDocument(flags.calibration));
    EMBLA_RETURN_IF_ERROR(
        Annotate(planner::ApplyCalibration(factors, &problem), flags.calibration));
  }
  EMBLA_RETURN_IF_ERROR(AddOptions(flags, &problem));
  EMBLA_RETURN_IF_ERROR(planner::Validate(problem));
  return problem;
}

}  // namespace embla::cli
