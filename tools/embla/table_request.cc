#include "tools/embla/table_request.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/plan/plan_json.h"
#include "core/planner/placement_json.h"
#include "nlohmann/json.hpp"
#include "tools/embla/yaml.h"

namespace embla::cli {
namespace {

using nlohmann::json;

// Sets `value` to the enum called `name`; an empty name keeps it.
template <typename Enum>
absl::Status SetByName(const std::string& name, Enum& value) {
  if (name.empty()) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(value, FromName<Enum>(name));
  return absl::OkStatus();
}

// Rows travel in int8, too, but no table keeps them so.
absl::Status SetDType(const std::string& name, DType& value) {
  if (SetByName(name, value).ok() && value != DType::kInt8Rowwise) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dtype \"", name, "\" is not one of fp32, fp16, bf16"));
}

absl::Status Check(const TableRequest& request) {
  TableSpec spec = request.spec;
  spec.SetDefaults();
  return spec.Validate();
}

absl::StatusOr<TableRequest> RequestFromJson(json document) {
  if (!document.is_object()) return absl::InvalidArgumentError("a table is not an object");
  TableRequest request;
  const auto placement = document.find("placement");
  if (placement == document.end()) return absl::InvalidArgumentError("placement is missing");
  EMBLA_ASSIGN_OR_RETURN(request.placement, PlacementRequestFromJson(placement->dump()));
  document.erase(placement);
  EMBLA_ASSIGN_OR_RETURN(request.spec, TableSpecFromJson(document.dump()));
  EMBLA_RETURN_IF_ERROR(Check(request));
  return request;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a directory, not a file"));
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

absl::StatusOr<std::optional<SyncSpec>> SyncFromFlags(const TableFlags& flags) {
  if (!flags.sync) {
    if (!flags.step_timeout_ms && flags.on_silence.empty() && !flags.steps_ahead) {
      return std::nullopt;
    }
    return absl::InvalidArgumentError(
        "--step-timeout-ms, --on-silence and --steps-ahead are of tables with --sync");
  }
  SyncSpec sync;
  sync.step_timeout_ms = flags.step_timeout_ms.value_or(sync.step_timeout_ms);
  sync.steps_ahead_max = flags.steps_ahead.value_or(sync.steps_ahead_max);
  EMBLA_RETURN_IF_ERROR(SetByName(flags.on_silence, sync.on_silence));
  return sync;
}

absl::StatusOr<TableRequest> RequestFromWords(const TableFlags& flags) {
  TableRequest request;
  TableSpec& spec = request.spec;
  spec.name = flags.name;
  spec.rows = flags.rows;
  spec.dim = flags.dim;
  spec.seed = flags.seed;
  spec.row_granules = flags.row_granules;
  spec.column_granule_width = flags.column_granule_width;
  spec.replica_groups = flags.replica_groups;
  spec.lookups_per_sample = flags.lookups_per_sample;
  spec.sync_every_steps = flags.sync_every_steps;
  spec.callers = flags.callers;
  spec.optimizer = flags.numbers;
  spec.init.a = flags.init_a;
  spec.init.b = flags.init_b;
  EMBLA_ASSIGN_OR_RETURN(spec.sync, SyncFromFlags(flags));
  EMBLA_ASSIGN_OR_RETURN(spec.zch, ZchFromFlags(flags.zch));
  if (flags.zch.capacity != 0) spec.rows = flags.zch.capacity;
  EMBLA_RETURN_IF_ERROR(SetDType(flags.dtype, spec.dtype));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.rounding, spec.rounding));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.bounds, spec.bounds));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.nan_policy, spec.nan_policy));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.durability, spec.durability));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.optimizer, spec.optimizer.kind));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.weight_decay_mode, spec.optimizer.weight_decay_mode));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.bias_correction, spec.optimizer.bias_correction));
  EMBLA_RETURN_IF_ERROR(SetByName(flags.init, spec.init.kind));
  if (flags.sharding.empty()) {
    return absl::InvalidArgumentError("--sharding is missing: say how the table is cut");
  }
  request.placement.automatic = flags.sharding == "auto";
  if (!request.placement.automatic) {
    EMBLA_RETURN_IF_ERROR(SetByName(flags.sharding, request.placement.sharding));
  }
  request.placement.nodes = flags.nodes;
  request.placement.devices = flags.devices;
  request.placement.min_partition = flags.min_partition;
  EMBLA_RETURN_IF_ERROR(Check(request));
  return request;
}

}  // namespace

absl::StatusOr<std::vector<TableRequest>> RequestsFromText(const std::string& text) {
  EMBLA_ASSIGN_OR_RETURN(json document, JsonFromYaml(text));
  if (!document.is_array()) document = json::array({std::move(document)});
  std::vector<TableRequest> requests;
  for (json& item : document) {
    absl::StatusOr<TableRequest> request = RequestFromJson(std::move(item));
    if (!request.ok()) {
      return Annotate(request.status(), absl::StrCat("table ", requests.size() + 1));
    }
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError("no table in it");
  return requests;
}

absl::StatusOr<std::vector<TableRequest>> RequestsFromFlags(const TableFlags& flags) {
  if (flags.file.empty()) {
    EMBLA_ASSIGN_OR_RETURN(TableRequest request, RequestFromWords(flags));
    return std::vector<TableRequest>{std::move(request)};
  }
  EMBLA_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.file));
  absl::StatusOr<std::vector<TableRequest>> requests = RequestsFromText(text);
  if (!requests.ok()) return Annotate(requests.status(), flags.file);
  return requests;
}

}  // namespace embla::cli
