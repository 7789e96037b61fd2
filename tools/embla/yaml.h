// YAML as JSON: one reader for both, as JSON is a part of YAML.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace embla::cli {

// Plain scalars become null, bool, integer or number where they look like one; quoted ones stay
// strings. Errors: InvalidArgument with line and column; also for more than 32 levels.
absl::StatusOr<nlohmann::json> JsonFromYaml(const std::string& text);

}  // namespace embla::cli
