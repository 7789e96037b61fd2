// A placement request as JSON: {"sharding": "row_wise", "nodes": ["n0"], "devices": [0, 1],
// "min_partition": 32}. Only "sharding" is required. Page: docs/plan_format.md.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/planner/placement.h"

namespace embla {

std::string PlacementRequestToJson(const PlacementRequest& request);
absl::StatusOr<PlacementRequest> PlacementRequestFromJson(std::string_view json);

}  // namespace embla
