#include "core/planner/placement_json.h"

#include "core/base/status_macros.h"
#include "core/plan/json_fields.h"
#include "core/plan/names.h"

namespace embla {

std::string PlacementRequestToJson(const PlacementRequest& request) {
  return DumpJson({{"sharding", std::string(NameOf(request.sharding))},
                   {"nodes", request.nodes},
                   {"devices", request.devices},
                   {"min_partition", request.min_partition}});
}

absl::StatusOr<PlacementRequest> PlacementRequestFromJson(std::string_view json) {
  EMBLA_ASSIGN_OR_RETURN(const Json document, ParseJson(json));
  JsonFields fields(document, "placement");
  PlacementRequest request;
  fields.Text("sharding");
  fields.MaybeWord("sharding", &FromName<ShardingType>, &request.sharding);
  fields.MaybeUnsigned("min_partition", kDimMax, &request.min_partition);
  const Json none = Json::array();
  const Json& nodes = fields.Has("nodes") ? fields.Array("nodes") : none;
  const Json& devices = fields.Has("devices") ? fields.Array("devices") : none;
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  for (const Json& node : nodes) {
    if (!node.is_string()) {
      return absl::InvalidArgumentError("placement field \"nodes\": not every item is a string");
    }
    request.nodes.push_back(node.get<std::string>());
  }
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
