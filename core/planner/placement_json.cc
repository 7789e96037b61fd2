#include "core/planner/placement_json.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/json_fields.h"
#include "core/plan/names.h"

namespace embla {
namespace {

constexpr std::string_view kAutomatic = "auto";

absl::StatusOr<std::vector<std::string>> Strings(const Json& items, const char* name) {
  std::vector<std::string> strings;
  for (const Json& item : items) {
    if (!item.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement field \"", name, "\": not every item is a string"));
    }
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

}  // namespace

std::string PlacementRequestToJson(const PlacementRequest& request) {
  Json json = {{"sharding", request.automatic ? std::string(kAutomatic)
                                              : std::string(NameOf(request.sharding))},
               {"nodes", request.nodes},
               {"devices", request.devices},
               {"min_partition", request.min_partition}};
  if (!request.targets.empty()) json["targets"] = request.targets;
  return DumpJson(json);
}

absl::StatusOr<PlacementRequest> PlacementRequestFromJson(std::string_view json) {
  EMBLA_ASSIGN_OR_RETURN(const Json document, ParseJson(json));
  JsonFields fields(document, "placement");
  PlacementRequest request;
  request.automatic = fields.Text("sharding") == kAutomatic;
  if (!request.automatic) {
    fields.MaybeWord("sharding", &FromName<ShardingType>, &request.sharding);
  }
  fields.MaybeUnsigned("min_partition", kDimMax, &request.min_partition);
  const Json none = Json::array();
  const auto list = [&](std::string_view name) -> const Json& {
    return fields.Has(name) ? fields.Array(name) : none;
  };
  const Json& nodes = list("nodes");
  const Json& devices = list("devices");
  const Json& targets = list("targets");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  EMBLA_ASSIGN_OR_RETURN(request.nodes, Strings(nodes, "nodes"));
  EMBLA_ASSIGN_OR_RETURN(request.targets, Strings(targets, "targets"));
  for (const Json& device : devices) {
    if (!device.is_number_unsigned() || device.get<std::uint64_t>() > UINT32_MAX) {
      return absl::InvalidArgumentError(
          "placement field \"devices\": not every item is a device number");
    }
    request.devices.push_back(device.get<std::uint32_t>());
  }
  return request;
}

}  // namespace embla
